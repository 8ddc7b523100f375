"""A program cut by a placement: a `Stage` per rank, as data and as a function.

`cutting.py` cuts; `code.py` is what a stage does, step by step; `targets.py` names the functions it
calls, `layout.py` says how tensors travel, `compiled.py` makes a Python function of it;
`inplace.py` lets caches be written to, `constants.py` takes tensors out of a graph.
"""
