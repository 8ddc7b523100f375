"""Kernels of objective ``latency``: schedules, searches, bounds."""
