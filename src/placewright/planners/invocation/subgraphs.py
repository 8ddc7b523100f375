"""From ops on devices to contiguous subgraphs: for placements that were made without any."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from placewright.analysis.slots import placement_of, slot_of
from placewright.errors import InfeasibleError
from placewright.graph import Whole
from placewright.kernels.invocation.timing import latency
from placewright.plan import Placement
from placewright.problem import Problem


def with_subgraphs(problem: Problem, device: Whole, planner: str) -> Placement:
    """The placement with one subgraph per accelerator and way, or as few as merging leads to.

    InfeasibleError if that is more than allowed.
    """
    slots, needed, accelerator = subgraph_slots(problem, device)
    if slots is None:
        raise InfeasibleError(
            f"planner '{planner}': its split is not contiguous, it falls into {needed} "
            f"subgraphs on '{problem.device_names[accelerator]}' and "
            f"{problem.options.subgraphs} are allowed; allow more (subgraphs={needed}) "
            "or try another planner"
        )
    return placement_of(problem, slots)


def subgraph_slots(problem: Problem, device: Whole) -> tuple[Whole | None, int, int]:
    """`[op]` slots of ops on these devices, None if there are too few.

    And the most subgraphs that an accelerator has in a way, and which that is.
    """
    whole = slot_of(problem, device)
    if latency(problem, whole) < math.inf:
        return whole, 1, -1
    number = merged_levels(problem, device)
    most, where = 1, -1
    for accelerator in np.flatnonzero(~problem.is_cpu).tolist():
        for way in (False, True):
            there = (device == accelerator) & (problem.is_backward == way)
            kinds, number[there] = np.unique(number[there], return_inverse=True)
            if len(kinds) > most:
                most, where = len(kinds), accelerator
    fits = most <= problem.options.subgraphs
    return (slot_of(problem, device, number) if fits else None), most, where


def merged_levels(problem: Problem, device: Whole) -> Whole:
    """`[op]` numbers of contiguous subgraphs that can run in this order, merged where possible.

    An op's level is how often a path to it changes device, at most. Ops of one device, way and
    level are contiguous; then subgraphs of neighbouring levels are merged if all can still run.
    """
    number = _levels(problem, device)
    wide = replace(problem, options=replace(problem.options, subgraphs=int(number.max()) + 1))
    for accelerator in np.flatnonzero(~problem.is_cpu).tolist():
        for way in (False, True):
            there = (device == accelerator) & (problem.is_backward == way)
            for before, after in pairwise(np.unique(number[there]).tolist()):
                tried = number.copy()
                tried[there & (number == before)] = after
                if latency(wide, slot_of(wide, device, tried)) < math.inf:
                    number = tried
    return number


def _levels(problem: Problem, device: Whole) -> Whole:
    level = np.zeros(problem.op_count, dtype=np.int64)
    back = problem.is_backward
    offsets, edges = problem.op_inputs
    for op in problem.topological_order.tolist():
        for edge in edges[offsets[op] : offsets[op + 1]]:
            producer = problem.edge_producer[edge]
            same = device[op] == device[producer] and back[op] == back[producer]
            level[op] = max(level[op], level[producer] + (not same))
    return level
