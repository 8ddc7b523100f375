"""What planners for throughput take from a budget's start, and tell its listener."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from placewright.budget import Budget
from placewright.graph import Ints
from placewright.plan import Placement
from placewright.problem import ROUNDING, Problem
from placewright.simulate import evaluate

SECONDS_BETWEEN = 0.5  # two plans told, or two bounds


class PipelineReporter:
    """Tells the budget's listener of plans better than its start, and of bounds; not too often."""

    def __init__(self, problem: Problem, budget: Budget) -> None:
        self.problem, self.listener = problem, budget.listener
        start = budget.start
        self.start = start if start is not None and _fits(problem, start) else None
        self.start_value = (
            float("inf") if self.start is None else evaluate(problem, self.start).value
        )
        self.value = self.start_value  # of the best plan known
        self.waiting: Ints | None = None
        self._next = self._next_bound = time.monotonic()

    def proved(self, lower_bound: float, source: str) -> None:
        """A bound better than those before; left out if it comes soon after another."""
        if time.monotonic() >= self._next_bound:
            self.listener.proved(lower_bound, source)
            self._next_bound = time.monotonic() + SECONDS_BETWEEN

    def found(self, unit_device: Ints, value: float) -> None:
        """A plan and its value in seconds; told now or, if it is too soon, at a later call."""
        if value < self.value:
            self.value, self.waiting = value, unit_device.copy()
        if self.waiting is not None and time.monotonic() >= self._next:
            self.listener.found(placement_of(self.problem, self.waiting))
            self.waiting = None
            self._next = time.monotonic() + SECONDS_BETWEEN

    def answer(self, unit_device: Ints, value: float) -> Placement:
        """The plan, or the start unless that is worse: only a start can have replicas."""
        if self.start is not None and self.start_value <= value:
            return self.start
        return placement_of(self.problem, unit_device)


def placement_of(problem: Problem, unit_device: Ints) -> Placement:
    return Placement(unit_device[problem.op_unit])


def start_units(problem: Problem, budget: Budget) -> Ints | None:
    """`[unit]` the devices of the budget's start, replicas left out; None without one that fits.

    Without its replicas it may be worth less than the start itself (see `PipelineReporter.answer`).
    """
    start = budget.start
    if start is None or not _fits(problem, replace(start, replicas=(), replica_shares=())):
        return None
    return _units_of(problem, start)


def _fits(problem: Problem, start: Placement) -> bool:
    """Whether a start holds here: `solving` may ask with pins or less memory than it was found for.

    On all devices of each stage, that is with all replicas.
    """
    if start.replicas and not problem.options.replicate:
        return False
    if start.replica_shares and problem.options.shares == "equal":
        return False
    unit_device = _units_of(problem, start)
    allowed = problem.unit_allowed[np.arange(problem.unit_count), unit_device].all()
    used = np.bincount(unit_device, problem.unit_memory, problem.device_count)
    for stage in start.replicas:
        allowed &= problem.unit_allowed[np.ix_(unit_device == stage[0], stage)].all()
        used[list(stage)] = used[stage[0]]
    return bool(allowed and not (used > problem.device_memory * (1 + ROUNDING)).any())


def _units_of(problem: Problem, placement: Placement) -> Ints:
    first = np.unique(problem.op_unit, return_index=True)[1]
    return np.asarray(placement.device, dtype=np.int32)[first]
