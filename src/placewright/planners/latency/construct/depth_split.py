"""Depth split: consecutive stages of the work on a row of devices, their cuts moved."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np

from placewright.budget import Budget, Progress
from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, MemoryAccount, NoRoomError, Proposal
from placewright.planners.latency.construct.simple import fastest_first
from placewright.problem import Problem
from placewright.simulate.latency import quicker_schedule, rank_order

EVERY = 8  # devices up to which rows of every length are tried
HALVINGS = 40  # of the interval in which the least limit on the stages' seconds lies
STEPS = (1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128)  # of all units, by which a cut is moved
TIMED = 2_000_000  # ops that are timed while cuts are moved


class DepthSplit(LatencyPlanner):
    """Stages of units in order of depth, one on each of the fastest devices.

    Units stand in a line by decreasing depth, the longest way from a unit to the end with every op
    on its fastest device. Independent branches, or chunks of a batch, are so cut at the same place
    each and flow through the stages as through a pipeline. For one, two and more devices, fastest
    first, the line is cut so that the longest stage is as short as it can be within memory; the
    best of these rows is kept, and its cuts are moved, by less and less, where that is faster. A
    unit that its device does not support, or has no room for, goes to the next one that can take
    it.

    Each placement is timed in two orders: longest remaining way first, which lets chunks go through
    a stage side by side, and topological, chunk after chunk.
    """

    name: ClassVar[str] = "depth-split"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        line = Line(problem, self.name)
        found: list[_Split] = []
        failed: list[NoRoomError] = []
        for count in row_lengths(problem.device_count):
            if found and budget.left <= 0:
                break
            on_progress("rows of devices", (count - 1) / problem.device_count)
            try:
                found.append(line.split(line.balanced(line.devices[:count])))
            except NoRoomError as error:
                failed.append(error)
        if not found:
            raise failed[0]
        best = min(found, key=lambda split: split.makespan)
        return Proposal(_moved(line, best, budget).placement)


@dataclass(frozen=True)
class _Split:
    """``cuts[stage]``: the place in the line where the next stage begins."""

    cuts: Ints
    placement: Placement
    makespan: float


class Line:
    """A problem's units in order of depth, and its devices, the fastest first."""

    def __init__(self, problem: Problem, planner: str) -> None:
        self.problem, self.planner = problem, planner
        self.devices = fastest_first(problem)
        fastest = problem.op_time.min(axis=1)
        order = rank_order(problem, fastest, np.zeros(problem.edge_count))
        _, first = np.unique(problem.op_unit[order], return_index=True)
        self.units = np.argsort(first, kind="stable")
        time = problem.unit_time[self.units][:, self.devices]
        supported = np.isfinite(time)
        # [device, place] seconds, and bytes, of the units before a place
        self._seconds = _summed(np.where(supported, time, 0.0).T)
        self._memory = _summed(problem.unit_memory[self.units][None])[0]

    def balanced(self, row: Ints) -> Ints:
        """Cuts after which the longest stage is as short as memory allows, by bisection."""
        low, high = 0.0, float(self._seconds[: len(row), -1].max())
        cuts = self._cut(row, high)
        for _ in range(HALVINGS):
            limit = (low + high) / 2
            tried = self._cut(row, limit)
            if tried[-1] >= len(self.units):
                cuts, high = tried, limit
            else:
                low = limit
        return cuts

    def _cut(self, row: Ints, limit: float) -> Ints:
        """Each stage as long as `limit` and its device's memory allow."""
        place, cuts = 0, np.empty(len(row), dtype=np.int32)
        for stage, device in enumerate(row):
            seconds = self._seconds[stage]
            room = self._memory[place] + self.problem.device_memory[device]
            place = min(
                int(np.searchsorted(seconds, seconds[place] + limit, side="right")),
                int(np.searchsorted(self._memory, room, side="right")),
            ) - 1  # fmt: skip
            cuts[stage] = place
        return cuts

    def split(self, cuts: Ints) -> _Split:
        """The split with these cuts, in the better order; NoRoomError where it has no room."""
        stage = np.searchsorted(cuts, np.arange(len(self.units)), side="right")
        unit_device = np.empty(len(self.units), dtype=np.int32)
        unit_device[self.units] = self.devices[np.minimum(stage, len(cuts) - 1)]
        placed = self._placed(unit_device, self.devices[: len(cuts)])
        placement, schedule = quicker_schedule(self.problem, placed[self.problem.op_unit])
        return _Split(cuts, placement, schedule.makespan)

    def _placed(self, wanted: Ints, row: Ints) -> Ints:
        """``[unit]`` where it is wanted, or on the next device of the row, then any, with room."""
        problem = self.problem
        able = np.isfinite(problem.unit_time[np.arange(len(wanted)), wanted]).all()
        if able and (problem.unit_pinned < 0).all() and (problem.free_memory(wanted) >= 0).all():
            return wanted
        place = {int(device): number for number, device in enumerate(row)}
        account = MemoryAccount(problem, self.planner)
        for unit in self.units.tolist():
            later = row[place[int(wanted[unit])] :]
            account.place_first(unit, np.concatenate([later, self.devices]))
        return account.unit_device


def row_lengths(devices: int) -> list[int]:
    """How many devices a row may have: each number up to `EVERY`, its doubles, and all.

    >>> row_lengths(20)
    [1, 2, 3, 4, 5, 6, 7, 8, 16, 20]
    """
    few = range(1, min(devices, EVERY) + 1)
    doubles = (EVERY * 2**power for power in range(1, devices.bit_length()))
    return sorted({*few, *(each for each in doubles if each < devices), devices})


def _moved(line: Line, best: _Split, budget: Budget) -> _Split:
    """The best split found by moving one cut at a time, by ever smaller steps."""
    left = TIMED
    count = len(line.units)
    for step in dict.fromkeys(max(1, round(share * count)) for share in STEPS):
        improved = True
        while improved:
            improved = False
            for number, move in product(range(len(best.cuts) - 1), (-step, step)):
                left -= line.problem.op_count
                if left < 0 or budget.left <= 0:
                    return best
                cuts = best.cuts.copy()
                cuts[number] += move
                if (np.diff(cuts, prepend=0) < 0).any():
                    continue
                with suppress(NoRoomError):
                    found = line.split(cuts)
                    if found.makespan < best.makespan:
                        best, improved = found, True
    return best


def _summed(rows: Floats) -> Floats:
    """`[row, place]` sums of what comes before a place."""
    return np.concatenate([np.zeros((len(rows), 1)), np.cumsum(rows, axis=1)], axis=1)
