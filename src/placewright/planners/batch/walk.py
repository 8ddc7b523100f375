"""A walk over strings of devices, one per unit and chunk: what the searches have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from placewright.analysis.orders import m_topo
from placewright.budget import Budget, Pace, Reporter
from placewright.graph import Floats, Ints, Wide
from placewright.kernels.batch import changes
from placewright.kernels.batch import search as kernel
from placewright.kernels.batch.arrays import batches_of
from placewright.kernels.batch.timing import scratch_of, settle
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.search import BEST, CURRENT
from placewright.plan import Placement
from placewright.planners.base import Proposal
from placewright.planners.batch.rows import never_worse, placement_of
from placewright.planners.batch.splits import Splits, splits_of
from placewright.problem import Problem
from placewright.simulate.batch import run_batches


class Walk(Pace):
    """A search under way: the problem's arrays, the current and the best string, the budget."""

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        seed: int,
        limit: float,
        start: Ints,
        order: Ints | None = None,
    ) -> None:
        """`limit` is the most evaluations, `start` the rows ``[unit, chunk]`` to start from.

        `order` is one of the ops; without it they come breadth first.
        """
        super().__init__(budget, limit)
        self.problem = problem
        self.rng = np.random.default_rng(seed)
        self.arrays = arrays_of(problem)
        self.batches = batches_of(problem)
        self.splits = splits_of(problem)
        self.order = m_topo(problem) if order is None else order
        self.space = _space(problem, self.splits, self.order)
        self.state = _state(problem, self.order, start)
        self.borrowed = _borrowed(problem, start.shape[1])
        self.scratch = scratch_of(problem, self.arrays.channel_count)
        kernel.keep(self.state, self.evaluate())
        known = run_batches(problem, budget.start).value if budget.start is not None else math.inf
        self.reporter = Reporter(budget, known)

    def run(self, walk: Callable[..., Any], *more: Any) -> Any:
        """Call one of the kernel's walks with the arrays it borrows, and `more`."""
        return walk(
            self.arrays,
            self.batches,
            self.space,
            self.state,
            self.borrowed,
            self.scratch,
            self.rng,
            *more,
        )

    def tell(self) -> None:
        """The budget's listener of the best string, if it is better than before."""
        self.reporter.tell(float(self.state.value[BEST]), self.placement)

    def placement(self) -> Placement:
        """The best string."""
        return placement_of(self.problem, self.state.best_rows, self.state.best_op_at)

    def answer(self) -> Proposal:
        """The best string, or the budget's start if that is as good."""
        return Proposal(never_worse(self.problem, self.budget.start, self.placement()))

    @property
    def choices(self) -> int:
        """Units that can be split in more than one way."""
        return len(self.space.movable)

    def evaluate(self) -> float:
        """Seconds: the value of the current string."""
        state = self.state
        shared = self.arrays, self.batches, state.rows, state.op_at, state.op_rank
        return float(settle(*shared, self.scratch))

    def consider(self, rows: Ints) -> None:
        """Go on from `rows` if they fit and are better than the current string."""
        before = self.state.rows.copy()
        self._assign(rows)
        value = self.evaluate()
        if changes.has_room(self.state) and value < self.state.value[CURRENT]:
            kernel.keep(self.state, value)
        else:
            self._assign(before)

    def _assign(self, rows: Ints) -> None:
        self.state.rows[:] = rows
        self.state.count[:], self.state.free[:] = _taken(self.problem, rows)


def _space(problem: Problem, splits: Splits, order: Ints) -> changes.Space:
    unit_ops = np.argsort(problem.op_unit, kind="stable").astype(np.int32)
    by_rank, first = np.unique(problem.op_unit[order], return_index=True)
    units = by_rank[np.argsort(first)].astype(np.int32)
    sizes = np.diff(splits.offsets)
    widest = np.array(
        [
            (splits.counts[first:last] > 0).sum(axis=1).max()
            for first, last in zip(splits.offsets[:-1], splits.offsets[1:], strict=True)
        ]
    )
    choice = (sizes > 1) | (widest > 1)
    return changes.Space(
        unit_offsets=np.searchsorted(problem.op_unit[unit_ops], np.arange(problem.unit_count + 1)),
        unit_ops=unit_ops,
        movable=units[choice[splits.unit_kind[units]]],
        unit_kind=splits.unit_kind,
        split_offsets=splits.offsets,
        splits=splits.counts,
    )


def _state(problem: Problem, order: Ints, start: Ints) -> changes.State:
    rank = np.empty(problem.op_count, dtype=np.int32)
    rank[order] = np.arange(problem.op_count)
    count, free = _taken(problem, start)
    return changes.State(
        rows=start.copy(),
        count=count,
        free=free,
        op_at=order.copy(),
        op_rank=rank,
        value=np.full(2, np.inf),
        best_rows=start.copy(),
        best_op_at=order.copy(),
    )


def _taken(problem: Problem, rows: Ints) -> tuple[Wide, Floats]:
    """``[unit, device]`` chunks, and the bytes free on each device."""
    count = (rows[:, :, None] == np.arange(problem.device_count)).sum(axis=1)
    used = ((count > 0) * problem.unit_memory[:, None]).sum(axis=0)
    return count, problem.device_memory - used


def _borrowed(problem: Problem, chunks: int) -> changes.Borrowed:
    return changes.Borrowed(
        row=np.empty(chunks, dtype=np.int32),
        count=np.empty(problem.device_count, dtype=np.int64),
        undo_unit=np.empty(problem.unit_count, dtype=np.int32),
        undo_row=np.empty((problem.unit_count, chunks), dtype=np.int32),
        changed=np.zeros(problem.unit_count, dtype=np.bool_),
        more=np.zeros(problem.device_count),
        moved=np.zeros(2, dtype=np.int64),
    )
