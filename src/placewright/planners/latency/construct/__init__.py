"""Planners that build one plan and are done: list schedulers, linear programs, partitioners."""
