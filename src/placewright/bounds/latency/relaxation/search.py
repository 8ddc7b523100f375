"""Which bound is sought next: paths over regions, then cases, with ever more effort."""

from __future__ import annotations

import numpy as np

from placewright.bounds.bound import Bound
from placewright.bounds.latency.best import lower_bound
from placewright.bounds.latency.relaxation.cases import Cases
from placewright.bounds.latency.relaxation.lagrangian import Chain
from placewright.bounds.latency.relaxation.network import network_of
from placewright.bounds.latency.relaxation.paths import Reach, settle
from placewright.bounds.latency.relaxation.regions import Regions
from placewright.bounds.latency.relaxation.solving import Solver
from placewright.bounds.latency.stretches import stretches
from placewright.budget import Budget, Progress
from placewright.formulations.latency.incumbent import longest
from placewright.problem import LONG_ROUNDING, Problem

GAIN = 1e-6  # relative: a bound that is better by less is not told
MOST_WORK = 300_000_000  # edges · pairs of devices, which each look at all paths goes through
FIRST_EFFORT = 32.0  # ops in a region, times 4 for each earlier try
MOST_EFFORT = FIRST_EFFORT * 4.0**5
SMALLEST = 8  # ops of the regions that are solved first
SIZES = (64.0, 512.0)  # of regions bounded in between, before all of them are
PATIENCE = 1.0  # times the seconds for paths, at least 1: cases that bring no gain for as long wait
BETTER = 2e-3  # that another chain must be, for its cases to be looked at anew


class Search:
    """Improves `bound` until nothing is left to try, time is up, or it is the incumbent."""

    def __init__(
        self, problem: Problem, budget: Budget, incumbent: float, on_progress: Progress
    ) -> None:
        self.problem = problem
        self.budget = budget
        self.limit = incumbent
        self.on_progress = on_progress
        self.bound = Bound(0.0, "")

    def run(self) -> Bound:
        """The best bound; after Ctrl-C the best until then."""
        try:
            self._prove(lower_bound(self.problem))
            if not self.is_over():
                self._prove(stretches(self.problem, most_work=MOST_WORK))
            self._search()
        except KeyboardInterrupt:
            pass
        return self.bound

    def is_over(self) -> bool:
        """Whether time is up or nothing is left to prove."""
        return self.budget.left <= 0 or self.bound.value >= self.limit * (1 - 2 * LONG_ROUNDING)

    def _search(self) -> None:
        if self.is_over() or self.problem.edge_count * self.problem.device_count**2 > MOST_WORK:
            return
        # Any number does: what is proved is that no schedule is shorter than it or the bound.
        self.limit = min(self.limit, longest(self.problem))
        self.network = network_of(self.problem)
        self.regions = Regions.of(self.network)
        self.solver = Solver(self.regions, self.budget)
        self.cases: Cases | None = None
        effort = FIRST_EFFORT
        while not self.is_over() and effort <= MOST_EFFORT:
            started = self.budget.left
            reach = self._follow_paths(effort)
            if self.is_over():
                break
            if self.cases is None or reach.value > self.cases.chain_value * (1 + BETTER):
                chain = Chain(self.network, self.regions, reach.steps())
                self.cases = Cases(chain, self.solver, self.budget, self.limit)
            most_idle = PATIENCE * max(started - self.budget.left, 1.0)
            self._look_at_cases(effort, most_idle if effort < MOST_EFFORT else np.inf)
            effort *= 4.0

    def _look_at_cases(self, effort: float, most_idle: float) -> None:
        """As long as there is a gain within so many seconds."""
        assert self.cases is not None
        best, since = self.bound.value, self.budget.left
        for value in self.cases.bounds(effort):
            self._found(value, "cases of a chain of regions, all else priced")
            if self.bound.value > best:
                best, since = self.bound.value, self.budget.left
            if self.is_over() or since - self.budget.left > most_idle:
                return

    def _follow_paths(self, effort: float) -> Reach:
        """Small regions are solved before ones that are larger by far are bounded.

        It takes less time, and solved they beat the bounds of larger ones, of which few then count.
        """
        self.regions.rule_out(self.limit)
        largest, sizes = SMALLEST, iter(SIZES)
        while largest <= effort and not self.is_over():
            self._follow_path(effort, largest)
            self._settle(next(sizes, np.inf))
            largest *= 2
        return self._follow_path(effort, np.inf)

    def _settle(self, largest: float) -> Reach:
        reach = settle(self.network, self.regions, self.budget, largest)
        self._found(reach.value, "paths over regions")
        return reach

    def _follow_path(self, effort: float, largest: float) -> Reach:
        """Bound and solve regions on the longest path until it has none worth no more effort."""
        while True:
            self.regions.rule_out(self.limit)
            reach = self._settle(largest)
            arcs = self.solver.waiting(reach.arcs(self.solver.closed), effort)
            if not arcs or self.is_over():
                return reach
            self.solver.raise_costs(arcs)

    def _found(self, value: float, source: str) -> None:
        value = min(value, self.limit)
        if np.isfinite(value):
            self._prove(Bound(value * (1 - LONG_ROUNDING), source))

    def _prove(self, bound: Bound) -> None:
        if bound.value > self.bound.value * (1 + GAIN):
            self.bound = bound
            self.budget.listener.proved(bound.value, bound.source)
            self.on_progress(bound.source, min(1.0, bound.value / self.limit))
