"""Planners for objective ``invocation-latency`` (Tarnawski et al. 2020, §4 and §7)."""
