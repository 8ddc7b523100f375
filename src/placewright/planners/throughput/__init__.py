"""Planners for objective ``throughput``: stages of a pipeline, the largest load least.

`analysis.contracted` says what must stay together where stages are contiguous and in which order
nodes may follow each other; every planner here starts from it.
"""
