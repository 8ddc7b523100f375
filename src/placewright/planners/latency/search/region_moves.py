"""Steepest descent by region moves: whole regions of the graph go to another device at once.

A good plan is often hundreds of ops away from a simple one, and each single step on the way makes
it worse: the branch that only one tensor feeds is worth a second device as a whole or not at all.
`RegionMoves` tries the moves of regions, all of them where time allows, and makes those that help.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.orders import by_mean_rank, m_topo
from placewright.budget import Budget, Pace, Progress, no_progress
from placewright.errors import InfeasibleError
from placewright.formulations.latency.incumbent import Incumbent, timed
from placewright.graph import Floats, Ints, Wide
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.common.dominators import dominator_tree
from placewright.kernels.common.ranks import upward_ranks
from placewright.kernels.latency import moves
from placewright.kernels.latency import region_moves as kernel
from placewright.kernels.latency.sequential import top_levels
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, Proposal, whole_number
from placewright.planners.latency.construct.simple import SingleDevice
from placewright.planners.latency.first_incumbent import simple_start
from placewright.planners.latency.search.walk import Walk, breadth_first_sequence
from placewright.problem import Problem

MOST_WORK = 400_000_000  # items timed from one start: 4 to 8 seconds
ROUND_SHARE = 0.3  # of that, at most, for trying all moves once
# The best moves of a round are scheduled properly, so many of them and so many items.
MOST_SCHEDULED = 12
SCHEDULED_WORK = 300_000
STILL = 0.5  # of what a move gained alone, when others are made before it
GAIN = 1e-6  # relative; less is rounding
# Producers that are ready before this share of the longest path, or whose tensors are wanted that
# close to the end, are overlooked in the second pair of trees: constants, masks and the like tie
# regions together that are apart in all that matters.
LIGHT = 0.02


@dataclass(frozen=True, eq=False)
class Moves:
    """Region moves as columns: the region's `kind` and `op`, and the `device` that it goes to."""

    kind: Wide
    op: Ints
    device: Ints

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, chosen: Wide | slice) -> Moves:
        return Moves(self.kind[chosen], self.op[chosen], self.device[chosen])


class RegionMoves(LatencyPlanner):
    """Moves of whole regions to another device, the best first, until none helps.

    Starts from the best single device, and again from the best of HEFT and simpler rules or the
    budget's start. A region is all that an op dominates or post-dominates (with and without
    regard to producers that are ready near the beginning), what is behind it, before it, or
    neither and so may run beside it. A move is judged in the better of two fixed orders,
    breadth-first and by upward rank; the plans it leads to are scheduled properly.

    Option `work`, millions of items (ops and transfers) timed from each start at most (400): where
    that is too little for all moves, those of regions with much work in and outside are tried.
    """

    name: ClassVar[str] = "region-moves"

    def __init__(self, work: str | int = MOST_WORK // 1_000_000) -> None:
        self.work = 1_000_000 * whole_number(self.name, "work", work)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        return Proposal(by_region_moves(problem, budget, seed, on_progress, self.work)[0])


def by_region_moves(
    problem: Problem,
    budget: Budget,
    seed: int,
    on_progress: Progress,
    work: float = MOST_WORK,
) -> tuple[Placement, bool]:
    """The plan of `RegionMoves`, and whether Ctrl-C came: then it is the best so far.

    InfeasibleError if there is no simple plan to start from.
    """
    best = simple_start(problem, seed, budget, RegionMoves.name)
    if budget.start is None:
        budget.listener.found(best.placement)
    descent = None
    try:
        descent = Descent(problem, budget, best, on_progress)
        for start in _starts(problem, best):
            descent.run(start, work)
    except KeyboardInterrupt:
        return (descent.best if descent else best).placement, True
    return descent.best.placement, False


def _starts(problem: Problem, best: Incumbent) -> Iterator[Ints]:
    """`[unit]` devices: all on one, and those of the best simple plan."""
    single: Ints | None = None
    with contextlib.suppress(InfeasibleError):  # no device has room for everything
        single = SingleDevice().plan(problem, Budget(), 0, no_progress).placement.device
        yield problem.unit_device(single)
    if single is None or (best.placement.device != single).any():
        yield problem.unit_device(best.placement.device)


class Descent:
    """Moves made from one start after another, and the best plan so far."""

    def __init__(
        self, problem: Problem, budget: Budget, best: Incumbent, on_progress: Progress
    ) -> None:
        self.problem, self.budget, self.best = problem, budget, best
        self.on_progress = on_progress
        self.arrays = arrays_of(problem)
        self.regions = regions_of(problem)
        orders = (
            m_topo(problem),
            by_mean_rank(problem),
        )
        self.sequences = np.stack([breadth_first_sequence(problem, order) for order in orders])
        self.all_moves: Moves | None = None

    @property
    def items(self) -> int:
        """Timed for one move."""
        return int(self.sequences.size)

    def run(self, start: Ints, work: float) -> None:
        """Descend from a start until no move helps, or `work` items are timed."""
        self.walk = Walk(self.problem, Budget(), 0, np.inf, start)
        if not self.walk.choices:
            return
        self.pace = Pace(self.budget, max(1.0, work / self.items))
        most = max(1, int(ROUND_SHARE * self.pace.limit))
        if self.all_moves is None:
            self.all_moves = candidates_of(self.problem, self.regions, most)
        value = self._value()
        while self.pace.done < self.pace.limit and self.budget.left > 0:
            following = self._round(self.all_moves, value)
            if following >= value * (1 - GAIN):
                break
            value = following

    def _round(self, listed: Moves, value: float) -> float:
        """Try every move, then make those that help, the best first; the makespan then."""
        walk, values = self.walk, self._values(listed)
        order = np.argsort(values, kind="stable")
        order = order[values[order] < value * (1 - GAIN)]
        helpful = listed[order]
        if not len(helpful):
            return value
        self._schedule_the_best(helpful)
        # Many do not help any more once others are made; the next round looks at them again.
        gains = STILL * (value - values[order])
        for first, last in self._parts(len(helpful)):
            part = helpful[first:last]
            value = kernel.descend(
                self.arrays, self.regions, walk.space, walk.state, walk.scratch, self.sequences,
                part.kind, part.op, part.device, gains[first:last], value,
            )  # fmt: skip
        self._offer(walk.state.device)
        return float(value)

    def _values(self, listed: Moves) -> Floats:
        walk, values = self.walk, np.full(len(listed), np.inf)
        for first, last in self._parts(len(listed)):
            part = listed[first:last]
            kernel.move_values(
                self.arrays, self.regions, walk.space, walk.state, walk.scratch, self.sequences,
                part.kind, part.op, part.device, values[first:last],
            )  # fmt: skip
        return values

    def _parts(self, count: int) -> Iterator[tuple[int, int]]:
        """Stretches of `count` moves, as the clock and the limit let them be tried."""
        first = 0
        for size in self.pace.chunks("trying region moves", self.on_progress):
            last = min(first + size, count)
            yield first, last
            if last == count:
                self.pace.done += last - first
                break
            first = last

    def _schedule_the_best(self, listed: Moves) -> None:
        """Each alone: in a good order of its own it may be better than in the fixed ones."""
        walk = self.walk
        most = max(1, min(MOST_SCHEDULED, SCHEDULED_WORK // self.sequences.shape[1]))
        for k in range(min(len(listed), most)):
            if self.budget.left <= 0:
                break
            count = kernel.move_region(
                walk.arrays, self.regions, walk.space, walk.state, walk.scratch,
                listed.kind[k], listed.op[k], listed.device[k],
            )  # fmt: skip
            self._offer(walk.state.device)
            moves.take_back(walk.space, walk.state, walk.scratch, count)

    def _offer(self, device: Ints) -> None:
        """Tell of the placement if, in the best of the orders, it is the best plan so far."""
        device = device.copy()
        candidates = [Placement(device), *(Placement(device, each) for each in self.sequences)]
        found = min((timed(self.problem, each) for each in candidates), key=lambda each: each.value)
        if found.value < self.best.value:
            self.best = found
            self.budget.listener.found(found.placement)

    def _value(self) -> float:
        walk = self.walk
        return float(kernel.value_of(walk.arrays, walk.state, walk.scratch, self.sequences))


# -- regions ---------------------------------------------------------------------------------------


def regions_of(problem: Problem) -> kernel.Regions:
    """Dominators and post-dominators, each twice: of the whole graph, and without light ops."""
    order = problem.topological_order.copy()  # writable like its reverse: one kernel for both
    offsets, edges = (each.copy() for each in problem.op_inputs)
    producers = problem.edge_producer[edges]
    by_producer = np.argsort(problem.edge_producer, kind="stable")
    consumers = problem.consumers[by_producer]
    ends = np.searchsorted(problem.edge_producer[by_producer], np.arange(problem.op_count + 1))
    trees = []
    for share in (0.0, LIGHT):
        trees.append(dominator_tree(order, offsets, producers, _heavy(problem, share)))
        trees.append(
            dominator_tree(order[::-1].copy(), ends, consumers, _heavy(problem, share, back=True))
        )
    _, at, first, size = (np.stack(column) for column in zip(*trees, strict=True))
    return kernel.Regions(
        at=at,
        first=first,
        size=size,
        order=order,
        key=np.random.default_rng(0).integers(1 << 62, size=problem.op_count),
        met=np.zeros(problem.op_count, dtype=bool),
        found=np.empty(problem.op_count, dtype=np.int32),
    )


def candidates_of(problem: Problem, regions: kernel.Regions, most: int) -> Moves:
    """Up to `most` moves to every device, of regions that differ, those with most work first.

    Work counts that is in the region or outside it, whichever is less.
    """
    n, devices = problem.op_count, problem.device_count
    regions_listed = max(1, most // devices)
    # What is behind, before and beside takes a walk through the graph to find.
    step = max(1, -(-3 * n // regions_listed))
    some = m_topo(problem)[::step]
    kind = np.concatenate(
        [np.repeat(np.arange(kernel.TREES), n)]
        + [np.full(len(some), each) for each in (kernel.BEHIND, kernel.BEFORE, kernel.BESIDE)]
    )
    op = np.concatenate([np.tile(np.arange(n), kernel.TREES), some, some, some]).astype(np.int32)
    key, weight = _described(problem, regions, kind, op)
    distinct = np.unique(key, return_index=True)[1]
    weight = np.minimum(weight, weight.max() - weight)
    distinct = distinct[np.argsort(-weight[distinct], kind="stable")][:regions_listed]
    return Moves(
        kind=np.repeat(kind[distinct], devices),
        op=np.repeat(op[distinct], devices),
        device=np.tile(np.arange(devices, dtype=np.int32), len(distinct)),
    )


def _described(
    problem: Problem, regions: kernel.Regions, kind: Wide, op: Ints
) -> tuple[Wide, Floats]:
    """`(key, seconds)` of each region; the first are those of the trees, for all ops."""
    n, fastest = problem.op_count, problem.op_time.min(axis=1)
    keys, weights = np.zeros(len(kind), dtype=np.int64), np.zeros(len(kind))
    for tree in range(kernel.TREES):
        first = regions.first[tree]
        last = first + regions.size[tree]
        rows = slice(tree * n, (tree + 1) * n)
        for column, each in ((keys, regions.key), (weights, fastest)):
            sums = np.concatenate([np.zeros(1, each.dtype), np.cumsum(each[regions.at[tree]])])
            column[rows] = sums[last] - sums[first]
    rest = slice(kernel.TREES * n, None)
    kernel.describe(
        arrays_of(problem), regions, fastest, kind[rest], op[rest], keys[rest], weights[rest]
    )
    return keys, weights


def _heavy(problem: Problem, share: float, *, back: bool = False) -> NDArray[np.bool_]:
    """`[op]` whether the longest path up to the op, or from it (`back`), is more than a share."""
    arrays, order = arrays_of(problem), problem.topological_order
    time, nothing = problem.op_time.min(axis=1), np.zeros(problem.edge_count)
    from_op = upward_ranks(time, nothing, order, arrays)
    path = from_op if back else top_levels(time, nothing, order, arrays) + time
    if share == 0.0:
        return np.ones(problem.op_count, dtype=bool)
    heavy: NDArray[np.bool_] = path > share * from_op.max()
    return heavy
