"""A walk over assignments of ops to slots: what annealing and local search have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from placewright.analysis.slots import accelerators, cpu_choices, placement_of, slots_of
from placewright.budget import Pace, Progress
from placewright.graph import Whole
from placewright.kernels.invocation import search as kernel
from placewright.kernels.invocation.timing import latency, network_of, work_for
from placewright.plan import Placement
from placewright.planners.invocation.starts import LinearSearch

FIRST_PACE = 1e-4  # seconds per evaluation, until it is known


class Walk(Pace):
    """A search under way: the problem's arrays, the current and the best slots, the budget.

    It begins from the budget's start where that is better than the one given.
    """

    def __init__(self, search: LinearSearch, start: Whole, limit: float) -> None:
        """`limit` is the most evaluations, `start[op]` the slots to start from.

        What `search` has told its listener of is not told again.
        """
        super().__init__(search.budget, limit)
        problem = search.problem
        self.problem, self.atoms, self.rng = problem, search.atoms, search.rng
        self.seconds_per_evaluation = FIRST_PACE
        self.network = network_of(problem)
        self.work = work_for(problem)
        ops = problem.op_count
        most_moved = (1 + kernel.MOST_EJECTIONS) * ops
        choices = self.network.unit_allowed.sum(axis=1)
        self.space = kernel.Space(
            cpu_choices(problem),
            accelerators(problem),
            np.flatnonzero(choices[problem.op_unit] > 1),
        )
        self.state = kernel.State(
            np.array(start, dtype=np.int64),
            np.array(start, dtype=np.int64),
            np.zeros(problem.device_count),
            np.full(2, np.inf),
        )
        self.scratch = kernel.Scratch(
            np.zeros(most_moved, dtype=np.int64),
            np.zeros(most_moved, dtype=np.int64),
            np.full(ops, -1),
            np.full(ops, -1),
            np.zeros(ops + 1, dtype=np.int64),
            np.zeros(2, dtype=np.int64),
        )
        self.earlier: tuple[float, Whole] = (math.inf, self.state.best_slot)
        self.restart_from(start)
        self.known, self.reporter = search.known, search.reporter
        if self.budget.start is not None:
            slots = slots_of(problem, self.budget.start)
            if latency(problem, slots) <= self.best:
                self.restart_from(slots)

    def placement(self) -> Placement:
        """The best slots."""
        value, slots = self.earlier
        return placement_of(self.problem, slots if value < self.chain else self.state.best_slot)

    @property
    def value(self) -> float:
        """Seconds: the latency of the current slots."""
        return float(self.state.value[kernel.CURRENT])

    @property
    def chain(self) -> float:
        """Seconds: the latency of the best slots since it began anew."""
        return float(self.state.value[kernel.BEST])

    @property
    def best(self) -> float:
        """Seconds: the latency of the best slots."""
        return min(self.chain, self.earlier[0])

    def restart_from(self, op_slot: Whole) -> None:
        self.state.op_slot[:] = op_slot
        kernel.settle(self.network, self.state, self.work)

    def restart_from_best(self) -> None:
        """From the best since it began anew."""
        self.restart_from(self.state.best_slot.copy())

    def begin_anew(self, op_slot: Whole) -> None:
        """From these slots, as if there were none before; the best of all is kept."""
        if self.chain < self.earlier[0]:
            self.earlier = self.chain, self.state.best_slot.copy()
        self.state.value[:] = math.inf
        self.restart_from(op_slot)

    def anneal(self, count: int, temperature: float, cooling: float) -> float:
        """So many evaluations; the temperature it ends with."""
        ended = kernel.anneal(
            self.network, self.atoms, self.space, self.state, self.work, self.scratch,
            self.rng, count, temperature, cooling,
        )  # fmt: skip
        if self.best < math.inf:
            self.reporter.tell(self.best, self.placement)
        return float(ended)

    def part(self, wanted: float, what: str, on_progress: Progress) -> Iterator[int]:
        """As `chunks`, for so many evaluations in all."""
        end = self.done + wanted
        for count in self.chunks(what, on_progress):
            fewer = int(min(count, max(1, end - self.done)))
            yield fewer
            if self.done + fewer >= end:
                self.done += fewer  # as `chunks` would have counted
                return
            self.done -= count - fewer

    @property
    def evaluations_left(self) -> float:
        """How many the time and the limit leave at the pace so far."""
        return min(self.limit - self.done, super().evaluations_left)
