"""Planners for objective ``throughput``: stages of a pipeline, the largest load least.

`pieces` says what must stay together where stages are contiguous and in which order pieces may
follow each other; every planner here starts from it.
"""
