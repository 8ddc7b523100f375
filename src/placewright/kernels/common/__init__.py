"""Kernels that serve several objectives."""
