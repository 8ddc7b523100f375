"""The search on one level: devices and an order of the ops, being improved by the kernels."""

from __future__ import annotations

import numpy as np

from placewright.graph import Ints
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency import moves
from placewright.kernels.latency import multilevel_search as kernel
from placewright.kernels.latency import multilevel_timing as timing
from placewright.plan import Placement
from placewright.planners.latency.search.multilevel.clusters import clusters_of
from placewright.planners.latency.search.walk import breadth_first_sequence, space_of, state_of
from placewright.problem import Problem


class Search:
    """The current and the best devices and order; every transfer is sent right after its producer.

    >>> search = Search(problem, device, order, np.random.default_rng(0))  # doctest: +SKIP
    >>> search.improve(1000, temperature=1e-6)                             # doctest: +SKIP
    >>> device, order = search.placed()                                    # doctest: +SKIP
    """

    def __init__(
        self, problem: Problem, device: Ints, order: Ints, rng: np.random.Generator
    ) -> None:
        """`device[op]` fits the memory; `order` is a topological order of the ops."""
        self.problem, self.rng = problem, rng
        self.arrays = arrays_of(problem)
        self.space = space_of(problem, order)
        unit_device = problem.unit_device(device)
        self.state = state_of(problem, self.space, order, unit_device, values=3)
        self.scratch = _scratch(problem, self.space)
        self.timing = _timing(problem, self.arrays.channel_count)
        self.clusters = clusters_of(problem, rng)
        self._settle()

    @property
    def best(self) -> float:
        """Seconds: the makespan of the best."""
        return float(self.state.value[kernel.BEST])

    def try_order(self, order: Ints) -> None:
        """The best devices in another order, unless that is worse."""
        self.state.op_at[:] = order
        self.state.op_rank[order] = np.arange(len(order))
        ends = np.cumsum(self.space.block_length[order])
        self.state.block_start[:] = ends - self.space.block_length[order]
        self.state.sequence[:] = breadth_first_sequence(self.problem, order)
        self._settle()
        if self.state.value[kernel.CURRENT] > self.best:
            kernel.return_to_best(self.space, self.state)
            self._settle()

    def improve(self, evaluations: int, temperature: float) -> None:
        kernel.improve(
            self.arrays,
            self.space,
            self.clusters,
            self.state,
            self.scratch,
            self.timing,
            self.rng,
            evaluations,
            temperature,
        )

    def placement(self) -> Placement:
        """The best."""
        device = self.state.best_unit_device[self.problem.op_unit]
        return Placement(device, self.state.best_sequence)

    def placed(self) -> tuple[Ints, Ints]:
        """The best devices of the ops, and their order."""
        sequence = self.state.best_sequence
        return self.state.best_unit_device[self.problem.op_unit], sequence[sequence >= 0]

    def _settle(self) -> None:
        kernel.keep(self.state, timing.settle(self.arrays, self.space, self.state, self.timing, 0))


def _scratch(problem: Problem, space: moves.Space) -> moves.Scratch:
    nothing = np.empty(0)
    return moves.Scratch(
        op_ready=nothing,
        op_finish=nothing,
        edge_finish=nothing,
        device_free=nothing,
        channel_free=nothing,
        nothing=nothing,
        block=np.empty(int(space.block_length.max()), dtype=np.int32),
        undo_unit=np.empty(problem.unit_count, dtype=np.int32),
        undo_device=np.empty(problem.unit_count, dtype=np.int32),
        changed=np.zeros(problem.unit_count, dtype=bool),
        reordered=np.zeros(3, dtype=np.int64),
    )


def _timing(problem: Problem, channels: int) -> timing.Timing:
    n, edges, devices = problem.op_count, problem.edge_count, problem.device_count
    checkpoints = (n - 1) // timing.CHECKPOINT + 1
    return timing.Timing(
        op_finish=np.zeros(n),
        arrival=np.zeros(edges),
        sends=np.zeros(edges, dtype=np.bool_),
        op_tail=np.zeros(n),
        device_free=np.zeros(devices),
        channel_free=np.zeros(channels),
        device_at=np.zeros((checkpoints, devices)),
        channel_at=np.zeros((checkpoints, channels)),
        most_at=np.zeros(checkpoints),
        device_after=np.zeros((checkpoints + 1, devices)),
        channel_after=np.zeros((checkpoints + 1, channels)),
        kept_finish=np.zeros(n),
        kept_arrival=np.zeros(edges),
        critical=np.zeros(n, dtype=np.int32),
        critical_count=np.zeros(1, dtype=np.int64),
        touched=np.zeros(n, dtype=np.int64),
        is_touched=np.zeros(n, dtype=np.bool_),
        changed=np.zeros(checkpoints, dtype=np.bool_),
    )
