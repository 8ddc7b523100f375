"""A walk over strings of device numbers: what the planners of `planners.search` have in common.

A string has one device per unit; its value is the makespan of the ops in breadth-first
topological order, each transfer sent right after its producer (DiviML §V-A).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np

from placewright.coarsen.orders import m_topo
from placewright.graph import Ints
from placewright.kernels import mutations
from placewright.kernels import search as kernel
from placewright.kernels.arrays import arrays_of
from placewright.plan import Placement
from placewright.planners.base import Budget, Progress
from placewright.problem import Problem
from placewright.simulate.latency import schedule_placement, time_placement

CHUNK_SECONDS = 0.08  # between two looks at the clock
FIRST_CHUNK = 16


class Walk:
    """A search under way: the problem's arrays, the current and the best string, the budget."""

    def __init__(
        self, problem: Problem, budget: Budget, seed: int, limit: float, start: Ints
    ) -> None:
        """`limit` is the most evaluations, `start[unit]` the devices to start from."""
        self.problem = problem
        self.budget = budget
        self.limit = limit
        self.done = 0
        self.seconds_per_evaluation = 0.0
        self.rng = np.random.default_rng(seed)
        self.arrays = arrays_of(problem)
        order = m_topo(problem)
        self.space = _space(problem, order)
        self.state = _state(problem, self.space, order, start)
        self.scratch = _scratch(problem, self.space)
        self.restart_from(start)

    @property
    def choices(self) -> int:
        """Units with more than one device to be on."""
        return len(self.space.movable)

    @property
    def value(self) -> float:
        """Seconds: the makespan of the current string."""
        return float(self.state.value[kernel.CURRENT])

    def restart_from(self, unit_device: Ints) -> None:
        mutations.assign_all(self.space, self.state, unit_device)
        self.settle()

    def settle(self) -> None:
        """Take the devices as they are for the current string."""
        kernel.keep(self.state, kernel.evaluate(self.arrays, self.state, self.scratch))

    def chunks(self, what: str, on_progress: Progress) -> Iterator[int]:
        """Numbers of evaluations to do next, each for about `CHUNK_SECONDS`, until the end.

        Who needs fewer takes the rest off `done`.
        """
        size = FIRST_CHUNK
        while self.done < self.limit and self.budget.left > 0:
            on_progress(what, self.progress)
            count = int(min(size, self.limit - self.done))
            started = time.perf_counter()
            yield count
            self.done += count
            self.seconds_per_evaluation = max((time.perf_counter() - started) / count, 1e-9)
            until_end = min(CHUNK_SECONDS, max(self.budget.left, 0.0))
            size = max(1, min(4 * size, int(until_end / self.seconds_per_evaluation)))

    @property
    def progress(self) -> float:
        seconds = self.budget.seconds
        elapsed = 1.0 - self.budget.left / seconds if 0 < seconds < math.inf else 0.0
        return min(1.0, max(self.done / self.limit, elapsed))

    @property
    def evaluations_left(self) -> float:
        """How many the time leaves at the pace so far."""
        return max(self.budget.left, 0.0) / max(self.seconds_per_evaluation, 1e-9)

    def placement(self) -> Placement:
        """The best string, with its own sequence or that of list scheduling into gaps."""
        device = self.state.best_unit_device[self.problem.op_unit]
        scheduled = schedule_placement(self.problem, device)
        if time_placement(self.problem, scheduled).makespan < self.state.value[kernel.BEST]:
            return scheduled
        return Placement(device, self.state.best_sequence)


def breadth_first_sequence(problem: Problem, order: Ints) -> Ints:
    """The ops in `order`, each followed by its edges in the order of their consumers."""
    n = problem.op_count
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    items = np.concatenate([np.arange(n), -1 - np.arange(problem.edge_count)])
    block = np.concatenate([rank, rank[problem.edge_producer]])
    within = np.concatenate([np.full(n, -1), rank[problem.consumers]])
    return items[np.lexsort((within, block))].astype(np.int32)


def _space(problem: Problem, order: Ints) -> mutations.Space:
    unit_ops = np.argsort(problem.op_unit, kind="stable").astype(np.int32)
    allowed = np.isfinite(problem.unit_time) & (
        problem.unit_memory[:, None] <= problem.device_memory[None, :]
    )
    by_rank, first = np.unique(problem.op_unit[order], return_index=True)
    units = by_rank[np.argsort(first)].astype(np.int32)
    return mutations.Space(
        unit_offsets=np.searchsorted(problem.op_unit[unit_ops], np.arange(problem.unit_count + 1)),
        unit_ops=unit_ops,
        op_unit=problem.op_unit,
        unit_memory=problem.unit_memory,
        allowed=allowed,
        movable=units[allowed[units].sum(axis=1) > 1],
        block_length=1 + np.bincount(problem.edge_producer, minlength=problem.op_count),
    )


def _state(problem: Problem, space: mutations.Space, order: Ints, start: Ints) -> mutations.State:
    unit_device = start.astype(np.int32)
    sequence = breadth_first_sequence(problem, order)
    op_rank = np.empty(problem.op_count, dtype=np.int32)
    op_rank[order] = np.arange(problem.op_count)
    ends = np.cumsum(space.block_length[order])
    used = np.bincount(unit_device, problem.unit_memory, problem.device_count)
    return mutations.State(
        device=unit_device[problem.op_unit],
        unit_device=unit_device,
        free=problem.device_memory - used,
        sequence=sequence,
        op_at=order.copy(),
        op_rank=op_rank,
        block_start=ends - space.block_length[order],
        value=np.full(2, np.inf),
        best_unit_device=unit_device.copy(),
        best_sequence=sequence.copy(),
    )


def _scratch(problem: Problem, space: mutations.Space) -> mutations.Scratch:
    return mutations.Scratch(
        op_ready=np.empty(problem.op_count),
        op_finish=np.empty(problem.op_count),
        edge_finish=np.empty(problem.edge_count),
        device_free=np.empty(problem.device_count),
        channel_free=np.empty(arrays_of(problem).channel_count),
        nothing=np.empty(0),
        block=np.empty(int(space.block_length.max()), dtype=np.int32),
        undo_unit=np.empty(problem.unit_count, dtype=np.int32),
        undo_device=np.empty(problem.unit_count, dtype=np.int32),
        reordered=np.zeros(3, dtype=np.int64),
    )
