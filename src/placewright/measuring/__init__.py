"""Measuring that needs more than the ops of a source: a coarsening, or a placement of it.

`standard_evaluation` has what the ops of a large batch take from smaller ones; `fused_groups`
what groups of ops take that an engine compiles as one. `costs.profiles` measures single ops.
"""
