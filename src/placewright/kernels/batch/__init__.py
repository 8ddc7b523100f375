"""Kernels of objective ``batch-throughput``: inputs of a batch shared out."""
