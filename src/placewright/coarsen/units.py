"""Units: contract what must be together anyway, such as the blocks of a model."""

from __future__ import annotations

import numpy as np

from placewright.coarsen.contraction import acyclic_groups
from placewright.coarsen.layers import visits
from placewright.graph import Ints, frozen
from placewright.problem import Problem


def unit_groups(problem: Problem) -> Ints:
    """`[op]` group: the ops of one unit and pass together, as far as the graph stays a DAG.

    A unit that data leaves for another and comes back to, such as an embedding and a head that
    share their weights, is parted there; its parts stay colocated. Ops of a unit whose parts still
    depend on another's both ways stay alone.
    """
    unit = (2 * problem.op_unit + problem.is_backward).astype(np.int32)
    visit = visits(problem, unit)
    key = unit * (int(visit.max()) + 1) + visit
    group = acyclic_groups(problem, key.astype(np.int32))
    several = np.unique(np.stack([group, problem.op_unit], axis=1), axis=0)[:, 0]
    tied = np.bincount(several, minlength=int(group.max()) + 1) > 1
    own = len(tied) + np.arange(problem.op_count)
    return frozen(np.unique(np.where(tied[group], own, group), return_inverse=True)[1], np.int32)
