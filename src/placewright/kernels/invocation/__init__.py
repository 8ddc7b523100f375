"""Kernels of objective ``invocation-latency``: subgraphs on accelerators."""
