"""Granularity: which ops of a model may not be parted.

The problem of a granularity is the op-level one with the ops of a module, or of a block, colocated:
plans are of the same ops, and the judge checks that they are together. A bound of it is one of such
plans only; the best plan op by op may be better.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placewright.coarsen.contraction import merged_colocation
from placewright.errors import OptionError
from placewright.graph import Ints, frozen
from placewright.problem import Problem

GRANULARITIES = {
    "op": "each op by itself",
    "module": "the ops of each innermost module together",
    "block": "the ops of each repeated unit together: layers of a transformer, residual blocks",
}


def check_granularity(name: str) -> None:
    """OptionError unless `name` is a granularity."""
    if not isinstance(name, str) or name not in GRANULARITIES:
        raise OptionError(f"no granularity '{name}'; choose {', '.join(GRANULARITIES)}")


def with_granularity(problem: Problem, name: str) -> Problem:
    """`problem` with what may not be parted colocated; OptionError where it has no blocks."""
    check_granularity(name)
    if name == "op":
        return problem
    if name == "block":
        from placewright.coarsen.blocks import find_blocks

        group = find_blocks(problem, "plan with --granularity op or module").op_block
    else:
        from placewright.coarsen.layers import layer_groups

        group = layer_groups(problem)
    return together(problem, group)


def together(problem: Problem, op_group: Ints) -> Problem:
    """`problem` with the ops of each group colocated, beside those that are so already."""
    ops = frozen(np.arange(problem.op_count), np.int32)
    colocation = merged_colocation(problem, ops, problem.op_count, op_group)
    return replace(problem, colocation=colocation)
