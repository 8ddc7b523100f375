"""The plan to start from, and devices that are as good as one another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from placewright.analysis.symmetry import equal_devices
from placewright.outcome import Schedule
from placewright.plan import Placement
from placewright.problem import Problem
from placewright.simulate.latency import schedule_placement, time_placement
from placewright.simulate.peak import peak_excess

MOST_DEVICES = 64  # that are compared pair by pair, with all their channels


@dataclass(frozen=True, eq=False)
class Incumbent:
    """The best plan so far."""

    placement: Placement
    schedule: Schedule

    @property
    def value(self) -> float:
        return self.schedule.makespan


def timed(problem: Problem, placement: Placement) -> Incumbent:
    if placement.sequence is None:
        placement = schedule_placement(problem, placement.device)
    return Incumbent(placement, time_placement(problem, placement))


def fitting(
    problem: Problem, placements: Iterable[Placement], best: Incumbent | None = None
) -> Incumbent | None:
    """The shortest of `placements`, and of `best` before them, whose peak fits where that counts.

    That ops keep no more than there is room for is up to who makes the placements.
    """
    for placement in placements:
        found = timed(problem, placement)
        if best is not None and found.value >= best.value:
            continue
        if (peak_excess(problem, found.placement, found.schedule) <= 0).all():
            best = found
    return best


def longest(problem: Problem) -> float:
    """Seconds: all ops and transfers in a row, each at its slowest; 1 if none takes any time."""
    ops = np.where(np.isfinite(problem.op_time), problem.op_time, 0.0).max(axis=1).sum()
    sizes = problem.tensor_bytes[problem.edge_tensor]
    moves = problem.link_latency.max() + sizes * problem.link_seconds_per_byte.max()
    return float(ops + moves.sum()) or 1.0


def interchangeable_devices(problem: Problem) -> list[list[int]]:
    """Groups of two or more devices that can be swapped without changing any schedule.

    Not looked for among more than `MOST_DEVICES`.
    """
    return equal_devices(problem) if problem.device_count <= MOST_DEVICES else []
