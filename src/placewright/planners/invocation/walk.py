"""A walk over assignments of ops to slots: what annealing and local search have in common."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np

from placewright.kernels import invocation_search as kernel
from placewright.kernels.invocation import Whole, network_of, work_for
from placewright.kernels.invocation_segments import Atoms
from placewright.planners.base import Budget, Progress
from placewright.planners.invocation.base import accelerators, cpu_choices
from placewright.problem import Problem

CHUNK_SECONDS = 0.1  # between two looks at the clock
FIRST_CHUNK = 16


class Walk:
    """A search under way: the problem's arrays, the current and the best slots, the budget."""

    def __init__(
        self,
        problem: Problem,
        atoms: Atoms,
        start: Whole,
        rng: np.random.Generator,
        budget: Budget,
        limit: float,
    ) -> None:
        """`limit` is the most evaluations, `start[op]` the slots to start from."""
        self.problem, self.atoms, self.rng = problem, atoms, rng
        self.budget, self.limit = budget, limit
        self.done = 0
        self.seconds_per_evaluation = 1e-4
        self.network = network_of(problem)
        self.work = work_for(problem)
        ops = problem.op_count
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
            np.zeros(ops, dtype=np.int64),
            np.zeros(ops, dtype=np.int64),
            np.full(ops, -1),
            np.full(ops, -1),
            np.zeros(ops + 1, dtype=np.int64),
            np.zeros(2, dtype=np.int64),
        )
        self.restart_from(start)

    @property
    def value(self) -> float:
        """Seconds: the latency of the current slots."""
        return float(self.state.value[kernel.CURRENT])

    @property
    def best(self) -> float:
        """Seconds: the latency of the best slots."""
        return float(self.state.value[kernel.BEST])

    def restart_from(self, op_slot: Whole) -> None:
        self.state.op_slot[:] = op_slot
        kernel.settle(self.network, self.state, self.work)

    def restart_from_best(self) -> None:
        self.restart_from(self.state.best_slot.copy())

    def anneal(self, count: int, temperature: float, cooling: float) -> float:
        """So many evaluations; the temperature it ends with."""
        ended = kernel.anneal(
            self.network, self.atoms, self.space, self.state, self.work, self.scratch,
            self.rng, count, temperature, cooling,
        )  # fmt: skip
        self.done += count
        return float(ended)

    def chunks(self, wanted: float, what: str, on_progress: Progress) -> Iterator[int]:
        """Numbers of evaluations to do next, `wanted` in all, until limit or time are used up."""
        size = FIRST_CHUNK
        end = min(self.limit, self.done + wanted)
        while self.done < end and self.budget.left > 0:
            on_progress(what, self.progress)
            started, before = time.perf_counter(), self.done
            yield int(min(size, end - self.done))
            spent = time.perf_counter() - started
            self.seconds_per_evaluation = max(spent / max(self.done - before, 1), 1e-9)
            until_end = min(CHUNK_SECONDS, max(self.budget.left, 0.0))
            size = max(1, min(4 * size, int(until_end / self.seconds_per_evaluation)))

    @property
    def progress(self) -> float:
        seconds = self.budget.seconds
        elapsed = 1.0 - self.budget.left / seconds if 0 < seconds < math.inf else 0.0
        return min(1.0, max(self.done / self.limit, elapsed))

    @property
    def evaluations_left(self) -> float:
        """How many the time and the limit leave at the pace so far."""
        by_time = max(self.budget.left, 0.0) / self.seconds_per_evaluation
        return min(self.limit - self.done, by_time)
