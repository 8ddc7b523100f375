"""Constraint programming for objective ``latency``: the whole graph at once, or a window of a plan.

`frame` says what a model is about, `model` writes it for CP-SAT, `window` takes it from a schedule
and puts the answer back, `neighbourhood` chooses windows; the planners are in `planner`.
"""
