"""Weights that several ops read: colocated ops of several groups, such as modules or stages."""

from __future__ import annotations

import numpy as np

from placewright.graph import Floats, Ints
from placewright.problem import Problem


def units_across(problem: Problem, op_group: Ints) -> list[Ints]:
    """The ops of each colocated unit that is in several groups."""
    order = np.argsort(problem.op_unit, kind="stable")
    ends = np.flatnonzero(np.diff(problem.op_unit[order])) + 1
    units = np.split(order.astype(np.int32), ends)
    return [unit for unit in units if len(unit) > 1 and len(np.unique(op_group[unit])) > 1]


def held_weights(problem: Problem) -> Floats:
    """`[op]` bytes that stay where the op is, its KV cache apart."""
    cache = problem.op_cache if problem.op_cache.size else 0.0
    return np.maximum(problem.op_memory - cache, 0.0)
