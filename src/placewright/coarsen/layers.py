"""Layers: contract what the model itself calls one (Tarnawski et al. 2020, §6.2)."""

from __future__ import annotations

import numpy as np

from placewright.coarsen.contraction import acyclic_groups
from placewright.coarsen.room import Room
from placewright.graph import Ints, frozen
from placewright.problem import Problem


def layer_groups(problem: Problem) -> Ints:
    """`[op]` group: the ops of one layer (module) and pass together, then every cycle that makes.

    Ops that belong to no module stay alone, and so do those of a group that no device could take
    (as pinned, with all that is colocated with it). The contraction is a DAG still: what is
    within a group was one before.
    """
    number = {module: index for index, module in enumerate(dict.fromkeys(problem.op_modules))}
    layer = [number[module] if module else -1 for module in problem.op_modules]
    group = acyclic_groups(problem, np.array(layer))
    members: list[list[int]] = [[] for _ in range(int(group.max()) + 1)]
    for op, each in enumerate(group.tolist()):
        members[each].append(op)
    room = Room(problem)
    whole = np.array([room.together(ops) for ops in members])
    key = np.where(whole[group], group, len(members) + np.arange(problem.op_count))
    return frozen(np.unique(key, return_inverse=True)[1], np.int32)
