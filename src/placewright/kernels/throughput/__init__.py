"""Kernels of objective ``throughput``: loads, cuts of orders, ideals."""
