"""Branch sharing: a plan with equal branches shared out over the devices, in a good order."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.planners.latency.modules.branch_assignment import shared_out
from placewright.planners.latency.modules.equal_branches import Twins
from placewright.problem import Problem
from placewright.simulate.latency import dispatch_placement, time_placement

ORDERS = 12  # in which rows of devices go to the branches; the best is kept


def shared_start(
    problem: Problem,
    groups: Iterable[Twins],
    device: Ints,
    seconds: float,
    seed: int,
    price: Floats | None = None,
) -> Placement:
    """``device[op]`` with each group shared out anew, where that can be, and a sequence.

    Where memory is short, ``price[device]`` says what a byte costs in seconds.

    Branches take their turns in topological order, so which one has which row of devices decides
    how soon each device has something to do.
    """
    rng = np.random.default_rng(seed)
    unit_device = problem.unit_device(device)
    best = dispatch_placement(problem, unit_device[problem.op_unit])
    for twins in groups:
        rows = shared_out(problem, twins, unit_device, seconds, seed, price)
        if rows is None:
            continue
        shared = unit_device.copy()
        shared[twins.unit] = rows
        if (problem.free_memory(shared) < 0.0).any():  # by a rounding error of the program
            continue
        found = []
        for number in range(ORDERS):
            shared[twins.unit] = rows if number == 0 else rng.permutation(rows)
            placement = dispatch_placement(problem, shared[problem.op_unit])
            found.append((time_placement(problem, placement).makespan, number, placement))
        best = min(found, key=lambda each: each[:2])[2]
        unit_device[problem.op_unit] = best.device
    return best
