"""Costs of ops that were not measured, made from those that were (Moirai §III-C).

`families` says which ops are alike, `samples` what there is to learn from, `fit` how the time of
an op follows from its work, `predict` applies that to a graph, and `check` says how well it does
on models and devices that are left out.
"""
