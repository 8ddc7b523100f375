"""The repair of a plan for latency, as a planner that `solve` asks, times and judges."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from placewright.analysis.orders import by_mean_rank
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Floats, Ints
from placewright.planners.base import LatencyPlanner, Proposal, no_room
from placewright.problem import Problem
from placewright.simulate.latency import insert_in_order
from placewright.whatif.moves import Judge, descend

NAME = "replan"
MOST_WORK = 20_000_000  # evaluations × items that improving a repair takes


class Repair(LatencyPlanner):
    """What was on lost devices to the best of those left; the rest stays where it was.

    Several ways to begin: each lost unit in rank order where it finishes first (HEFT with the
    rest fixed), all of them to one device; the best is improved by moving the lost units again,
    which costs no more bytes. Where a device has less room than before, units leave it: the
    smallest that makes room by itself, or else the largest first.

    `home[unit]` is the device where it was, or -1; `capacity` the memory of the devices as last
    planned with (less than they have, where peak memory needs it).
    """

    name: ClassVar[str] = NAME

    def __init__(self, home: Ints, sets: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]):
        self.home = home
        self.sets = sets
        self.capacity: Floats | None = None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        self.capacity = problem.device_memory
        fixed = _staying(problem, self.home)
        judge = Judge(problem, fixed, problem.device_memory, budget, MOST_WORK)
        starts = [judge.state(each) for each in _repairs(problem, fixed)]
        best = min(starts, key=lambda state: state.value)
        with contextlib.suppress(KeyboardInterrupt):
            best = descend(judge, best, 0.0, self.sets, fixed < 0)
        return Proposal(best.placement(problem))


def _staying(problem: Problem, home: Ints) -> Ints:
    """`[unit]` where a unit stays: pinned, or at home while there is room; else -1."""
    pinned = problem.unit_pinned
    fixed = np.where(pinned >= 0, pinned, home).astype(np.int32)
    for device in range(problem.device_count):
        over = -float(problem.free_memory(fixed)[device])
        while over > 0:
            there = np.flatnonzero((fixed == device) & (pinned < 0) & (problem.unit_memory > 0))
            if not len(there):
                raise InfeasibleError(
                    f"the ops pinned to '{problem.device_names[device]}' do not fit it"
                )
            memory = problem.unit_memory[there]
            enough = there[memory >= over]
            leaving = (
                enough[problem.unit_memory[enough].argmin()] if len(enough) else
                there[memory.argmax()]
            )  # fmt: skip
            fixed[leaving] = -1
            over = -float(problem.free_memory(fixed)[device])
    return fixed


def _repairs(problem: Problem, fixed: Ints) -> list[Ints]:
    """Whole placements: by earliest finish, and all that is lost on one device with room."""
    found = []
    lost = fixed < 0
    for device in range(problem.device_count):
        candidate = np.where(lost, device, fixed).astype(np.int32)
        free = problem.free_memory(fixed)[device] - problem.unit_memory[lost].sum()
        if free >= 0 and np.isfinite(problem.unit_time[lost, device]).all():
            found.append(candidate)
    order = by_mean_rank(problem)
    placement, failed = insert_in_order(problem, order, fixed)
    if failed < 0:
        found.append(problem.unit_device(placement.device))
    elif not found:
        raise no_room(problem, int(problem.op_unit[failed]), problem.free_memory(fixed), NAME)
    return found
