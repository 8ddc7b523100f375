"""List schedulers: ops one after another, each on the device where it is done (or starts) first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from placewright.analysis.orders import by_mean_rank, m_topo
from placewright.budget import Budget, Progress
from placewright.graph import Ints
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.earliest_start import earliest_start_placement
from placewright.kernels.latency.units import units_of
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, Proposal, no_room
from placewright.problem import Problem
from placewright.simulate.latency import insert_in_order


class Heft(LatencyPlanner):
    """Heterogeneous Earliest Finish Time, with insertion (Topcuoglu et al. 2002).

    Ops by decreasing upward rank, computed with times averaged over the devices; each on the
    device where it finishes first, in the earliest gap that holds it. Transfers are booked on
    the channels of the problem's contention option, into gaps too.
    """

    name: ClassVar[str] = "heft"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        order = by_mean_rank(problem)
        return Proposal(_insert(problem, order, self.name, insertion=True))


class Greedy(LatencyPlanner):
    """Each op, in breadth-first order, where it finishes first after what is already there."""

    name: ClassVar[str] = "greedy"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        order = m_topo(problem)
        return Proposal(_insert(problem, order, self.name, insertion=False))


class MEtf(LatencyPlanner):
    """Earliest Task First under memory limits (Baechi's m-ETF).

    Of all ready ops and all devices with room, take the pair that can start first; ties go to
    the larger upward rank. Start times count transfers but not contention; the final schedule
    counts both.
    """

    name: ClassVar[str] = "m-etf"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        order = by_mean_rank(problem)
        priority = np.empty(problem.op_count, dtype=np.int32)
        priority[order] = np.arange(problem.op_count)
        units = units_of(problem, problem.unit_pinned)
        failed = earliest_start_placement(arrays_of(problem), priority, units)
        if failed >= 0:
            raise no_room(problem, int(problem.op_unit[failed]), units.free, self.name)
        return Proposal(Placement(units.device[problem.op_unit]))


def _insert(problem: Problem, order: Ints, planner: str, *, insertion: bool) -> Placement:
    placement, failed = insert_in_order(problem, order, problem.unit_pinned, insertion=insertion)
    if failed >= 0:
        free = problem.free_memory(problem.unit_device(placement.device))
        raise no_room(problem, int(problem.op_unit[failed]), free, planner)
    return placement
