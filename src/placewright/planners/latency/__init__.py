"""Planners for objective ``latency``."""
