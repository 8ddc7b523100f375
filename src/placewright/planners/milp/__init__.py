"""Exact planners: a mixed-integer program for the whole problem, solved through MathOpt.

`moirai` and `diviml` hold one formulation each, built in the same order: variables, constraints,
objective, decode. `instance` is what both start from (time windows, precedence, an incumbent),
`solver` is the solver, `planner` the outline they share.
"""
