"""A walk over strings of device numbers: what the planners of `planners.latency.search.strings`
have in common.

A string has one device per unit; its value is the makespan of the ops in breadth-first
topological order, each transfer sent right after its producer (DiviML §V-A).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from placewright.analysis.orders import m_topo
from placewright.budget import Budget, Pace, Progress, Reporter
from placewright.formulations.latency.incumbent import fitting
from placewright.graph import Ints
from placewright.kernels.common.arrays import arrays_of, arrays_with_memory
from placewright.kernels.latency import moves
from placewright.kernels.latency import search as kernel
from placewright.plan import Placement
from placewright.problem import Problem
from placewright.simulate.latency import time_placement


class Walk(Pace):
    """A search under way: the problem's arrays, the current and the best string, the budget."""

    def __init__(
        self, problem: Problem, budget: Budget, seed: int, limit: float, start: Ints
    ) -> None:
        """`limit` is the most evaluations, `start[unit]` the devices to start from."""
        super().__init__(budget, limit)
        self.problem = problem
        self.rng = np.random.default_rng(seed)
        self.arrays = arrays_with_memory(problem)
        order = m_topo(problem)
        self.space = space_of(problem, order)
        self.state = state_of(problem, self.space, order, start)
        self.scratch = _scratch(problem, self.space)
        self.restart_from(start)
        given = budget.start
        self._start_value = time_placement(problem, given).makespan if given else math.inf

    def chunks(self, what: str, on_progress: Progress) -> Iterator[int]:
        """As in `Pace`; tells the listener in between."""
        reporter = Reporter(self.budget, self._start_value)
        for count in super().chunks(what, on_progress):
            yield count
            reporter.tell(float(self.state.value[kernel.BEST]), self.placement)

    @property
    def choices(self) -> int:
        """Units with more than one device to be on."""
        return len(self.space.movable)

    @property
    def value(self) -> float:
        """Seconds: the makespan of the current string."""
        return float(self.state.value[kernel.CURRENT])

    def restart_from(self, unit_device: Ints) -> None:
        moves.assign_all(self.space, self.state, unit_device)
        self.settle()

    def settle(self) -> None:
        """Take the devices as they are for the current string."""
        kernel.keep(self.state, kernel.evaluate(self.arrays, self.state, self.scratch))

    def placement(self) -> Placement:
        """The best string with its own sequence or that of list scheduling into gaps.

        The budget's start if that is better.
        """
        value = float(self.state.value[kernel.BEST])
        if self.budget.start is not None and self._start_value < value:
            return self.budget.start
        device = self.state.best_unit_device[self.problem.op_unit]
        as_searched = Placement(device, self.state.best_sequence)
        found = fitting(self.problem, [as_searched, Placement(device)])
        return found.placement if found else as_searched


def breadth_first_sequence(problem: Problem, order: Ints) -> Ints:
    """The ops in `order`, each followed by its edges in the order of their consumers."""
    n = problem.op_count
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    items = np.concatenate([np.arange(n), -1 - np.arange(problem.edge_count)])
    block = np.concatenate([rank, rank[problem.edge_producer]])
    within = np.concatenate([np.full(n, -1), rank[problem.consumers]])
    return items[np.lexsort((within, block))].astype(np.int32)


def space_of(problem: Problem, order: Ints) -> moves.Space:
    """What a search may change; `order` is topological."""
    unit_ops = np.argsort(problem.op_unit, kind="stable").astype(np.int32)
    allowed = problem.unit_allowed
    by_rank, first = np.unique(problem.op_unit[order], return_index=True)
    units = by_rank[np.argsort(first)].astype(np.int32)
    return moves.Space(
        unit_offsets=np.searchsorted(problem.op_unit[unit_ops], np.arange(problem.unit_count + 1)),
        unit_ops=unit_ops,
        op_unit=problem.op_unit,
        unit_memory=problem.unit_memory,
        allowed=allowed.copy(),
        movable=units[allowed[units].sum(axis=1) > 1],
        block_length=1 + np.bincount(problem.edge_producer, minlength=problem.op_count),
    )


def state_of(
    problem: Problem, space: moves.Space, order: Ints, start: Ints, values: int = 2
) -> moves.State:
    """The state of a search that starts from ``start[unit]`` in `order`, with so many `values`."""
    unit_device = start.astype(np.int32)
    sequence = breadth_first_sequence(problem, order)
    op_rank = np.empty(problem.op_count, dtype=np.int32)
    op_rank[order] = np.arange(problem.op_count)
    ends = np.cumsum(space.block_length[order])
    return moves.State(
        device=unit_device[problem.op_unit],
        unit_device=unit_device,
        free=problem.free_memory(unit_device),
        sequence=sequence,
        op_at=np.array(order, dtype=np.int32),
        op_rank=op_rank,
        block_start=ends - space.block_length[order],
        value=np.full(values, np.inf),
        best_unit_device=unit_device.copy(),
        best_sequence=sequence.copy(),
    )


def _scratch(problem: Problem, space: moves.Space) -> moves.Scratch:
    return moves.Scratch(
        op_ready=np.empty(problem.op_count),
        op_finish=np.empty(problem.op_count),
        edge_finish=np.empty(problem.edge_count),
        device_free=np.empty(problem.device_count),
        channel_free=np.empty(arrays_of(problem).channel_count),
        nothing=np.empty(0),
        block=np.empty(int(space.block_length.max()), dtype=np.int32),
        undo_unit=np.empty(problem.unit_count, dtype=np.int32),
        undo_device=np.empty(problem.unit_count, dtype=np.int32),
        changed=np.zeros(problem.unit_count, dtype=bool),
        reordered=np.zeros(3, dtype=np.int64),
    )
