"""How `replan` repairs plans for ``latency``, and what it looks at between the ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from placewright.budget import Budget, Progress
from placewright.graph import Flags, Floats, Ints
from placewright.plan import Placement, Plan
from placewright.planners.base import Planner
from placewright.problem import LONG_ROUNDING, Problem
from placewright.whatif.changes import home_devices
from placewright.whatif.given import Given
from placewright.whatif.moves import Judge, State, descend, unit_sets
from placewright.whatif.repair import Repair
from placewright.whatif.trade import Archive

# Penalties tried, in shares of what the free replan saves per byte it moves more.
WEIGHTS = (10.0, 3.0, 1.0, 0.3, 0.1)


class LatencyWays:
    """Units move one by one, by modules and by stretches, under penalties on bytes."""

    def __init__(self, old: Plan, problem: Problem) -> None:
        self.problem = problem
        self.home = home_devices(old, problem)
        self.sets = unit_sets(problem)
        self.forced = float(problem.unit_memory[self.home < 0].sum())
        self._repairer = Repair(self.home, self.sets)

    def repairer(self, budget: Budget, work: float) -> Planner:
        """The planner of the repair; it has limits of its own."""
        return self._repairer

    def renamed(self, plan: Plan, budget: Budget, work: float) -> Placement | None:
        """The plan with devices of a kind exchanged so that fewer bytes move; None if none are."""
        judge = Judge(self.problem, self.home, self.problem.device_memory, budget, work)
        found = _renamed(judge, plan)
        return None if found is None else found.placement(self.problem)

    def between(
        self,
        ends: Sequence[Plan],
        limit: float,
        price: Callable[[float, float], float],
        budget: Budget,
        work: float,
        on_progress: Progress,
        kept: Archive[State],
    ) -> None:
        """Fill what is `kept`: descents from both ends under falling and rising penalties."""
        judge = Judge(self.problem, self.home, self._capacity, budget, work, kept)
        states = [judge.state(self.problem.unit_device(end.placement.device)) for end in ends]
        states = [state for state in states if judge.fits(state.unit_device)]
        if not states:
            return
        first, last = states[0], states[-1]
        centre = _exchange_rate(first, last, self.problem)
        targets = [last.unit_device, first.unit_device]
        if (self.home >= 0).all():
            targets.append(self.home)
        movable: Flags = np.isfinite(self.problem.unit_time).sum(axis=1) > 1
        runs = [(first, factor * centre) for factor in WEIGHTS]
        runs += [(last, factor * centre) for factor in reversed(WEIGHTS)]
        for number, (start, weight) in enumerate(runs):
            on_progress("between", number / len(runs))
            share = judge.work_left / (len(runs) - number)
            later = judge.work_left - share
            judge.work_left = share
            most = float("inf") if start.moved > limit else limit
            descend(judge, start, weight, self.sets, movable, most, targets)
            judge.work_left += later

    def given(self, placement: Placement) -> Planner:
        return Given(placement)

    def placement(self, state: State) -> Placement:
        return state.placement(self.problem)

    @property
    def _capacity(self) -> Floats:
        """As the repair needed it, where it was asked with less memory than there is."""
        capacity = self._repairer.capacity
        return self.problem.device_memory if capacity is None else capacity


def _exchange_rate(first: State, last: State, problem: Problem) -> float:
    """Seconds per byte that the penalties are around: what the free replan saves per byte.

    Where it saves nothing, a tenth of the latency for all bytes.
    """
    gain, bytes_more = first.value - last.value, last.moved - first.moved
    if gain > 0 and bytes_more > 0:
        return gain / bytes_more
    return 0.1 * first.value / max(float(problem.op_memory.sum()), 1.0)


def _renamed(judge: Judge, plan: Plan) -> State | None:
    """The plan with devices of a kind exchanged so that fewer bytes move, and it is no worse."""
    problem = judge.problem
    state = judge.state(problem.unit_device(plan.placement.device))
    start, improved = state, True
    while improved and not judge.spent():
        improved = False
        for a in range(problem.device_count):
            for b in range(a + 1, problem.device_count):
                if problem.device_kinds[a] != problem.device_kinds[b] or judge.spent():
                    continue
                names: Ints = np.arange(problem.device_count, dtype=np.int32)
                names[[a, b]] = b, a
                candidate = names[state.unit_device]
                if judge.moved(candidate) < state.moved and judge.fits(candidate):
                    found = judge.state(candidate, state.sequence)
                    if found.value <= state.value * (1 + LONG_ROUNDING):
                        state, improved = found, True
    return state if state is not start else None
