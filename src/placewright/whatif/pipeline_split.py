"""Splits of a pipeline for `replan`: what they come to, whether they hold, how many bytes move.

Nodes are those of a `Board`: units, or where stages are contiguous what these cannot tear apart.
Bytes move to every device that runs an op, replicas included, and did not before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from placewright.budget import Budget
from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.throughput.loads import value
from placewright.plan import Placement
from placewright.planners.throughput.board import Board
from placewright.problem import LONG_ROUNDING, ROUNDING, Problem
from placewright.simulate.throughput import loads, pass_loads
from placewright.whatif.trade import Archive

CALL = 4_000  # items of a split that take as long as looking at it does
PLAIN = 20  # times as long as compiled: the definition in Python, for replicas

Replicas = tuple[tuple[int, ...], ...]
Key = tuple[float, ...]
"""What is to be low, the first before the second; see `better`."""


@dataclass(frozen=True, eq=False)
class Split:
    """`node_device[node]`, of a stage of replicas its first, and what follows.

    `loads[pass, device]` seconds; `value` their largest of each pass, added up; `moved` bytes;
    `over` bytes that devices lack room for, infinite where one cannot run what it has.
    """

    node_device: Ints
    replicas: Replicas
    loads: Floats = field(repr=False)
    value: float
    moved: float
    over: float

    @property
    def unevenness(self) -> float:
        """Falls where the loads get nearer to each other, though the largest may stay."""
        return float((self.loads**2).sum())

    def excess(self, limits: Floats) -> float:
        """Seconds by which loads are above ``limits[pass]``, in all."""
        return float(np.maximum(self.loads - limits[:, None], 0.0).sum())


def better(one: Key, other: Key) -> bool:
    """Whether the first entry that differs by more than rounding is lower."""
    for mine, theirs in zip(one, other, strict=True):
        if mine == theirs:
            continue
        margin = LONG_ROUNDING * min(max(abs(mine), abs(theirs)), 1e300)
        if mine < theirs - margin:
            return True
        if mine > theirs + margin:
            return False
    return False


class Pipeline:
    """Looks at splits of a board's nodes; counts that work, and keeps an archive of good ones.

    `held[op, device]` says which device has what an op keeps.
    """

    def __init__(
        self,
        board: Board,
        held: Flags,
        budget: Budget,
        most_work: float,
        archive: Archive[Split] | None = None,
    ) -> None:
        self.board = board
        self.problem: Problem = board.problem
        self.budget = budget
        self.work_left = most_work
        self.archive: Archive[Split] = Archive() if archive is None else archive
        graph, problem = board.graph, board.problem
        count = graph.node_count
        self.rows = np.arange(count)
        bytes_to = np.where(held, 0.0, problem.op_memory[:, None])
        self.coming = np.zeros((count, problem.device_count))  # [node, device] bytes to bring
        np.add.at(self.coming, graph.op_node, bytes_to)
        self.allowed: Flags = graph.allowed[:, graph.device_class]
        self.least_coming = np.where(self.allowed, self.coming, np.inf).min(axis=1)
        self._items = count + graph.net_count + CALL
        self._passes = 2 if problem.options.schedule == "gpipe" else 1

    @property
    def movable(self) -> Flags:
        """`[node]` whether it may be on several devices."""
        return np.asarray(self.allowed.sum(axis=1) > 1)

    @contextlib.contextmanager
    def at_most(self, work: float) -> Iterator[None]:
        """So much of the work that is left, and no more."""
        later = self.work_left - work
        self.work_left = work
        try:
            yield
        finally:
            self.work_left += later

    def spent(self) -> bool:
        return self.work_left <= 0 or self.budget.left <= 0

    def moved(self, node_device: Ints, replicas: Replicas = ()) -> float:
        total = float(self.coming[self.rows, node_device].sum())
        for stage in replicas:
            mine = np.flatnonzero(node_device == stage[0])
            total += float(self.coming[mine][:, list(stage[1:])].sum())
        return total

    def split(self, node_device: Ints, replicas: Replicas = ()) -> Split:
        """What it comes to; stages of replicas that have no node are left out."""
        used = set(node_device.tolist())
        replicas = tuple(stage for stage in replicas if stage[0] in used)
        moved = self.moved(node_device, replicas)
        if replicas:
            return self._replicated(node_device, replicas, moved)
        self.work_left -= self._items
        state = self.board.loads(node_device)
        over = self._lacking(state.used)
        if not self.allowed[self.rows, node_device].all():
            over = np.inf
        found = state.load[: self._passes]
        return Split(node_device, (), found, float(value(state)), moved, over)

    def _replicated(self, node_device: Ints, replicas: Replicas, moved: float) -> Split:
        """The same by the definition, which alone knows replicas."""
        self.work_left -= PLAIN * self._items
        problem = self.problem
        used = np.bincount(node_device, self.board.graph.memory, problem.device_count).astype(float)
        runs = bool(self.allowed[self.rows, node_device].all())
        for stage in replicas:
            used[list(stage)] = used[stage[0]]
            runs &= self._is_equal(np.flatnonzero(node_device == stage[0]), stage)
        if not runs:
            nothing = np.full((self._passes, problem.device_count), np.inf)
            return Split(node_device, replicas, nothing, np.inf, moved, np.inf)
        outcome = loads(problem, self._placement(node_device, replicas))
        found = pass_loads(problem, outcome)
        return Split(node_device, replicas, found, outcome.value, moved, self._lacking(used))

    def _lacking(self, used: Floats) -> float:
        """Bytes that do not fit, in all."""
        return float(np.maximum(used - self.problem.device_memory * (1 + ROUNDING), 0.0).sum())

    def _is_equal(self, nodes: Wide, stage: tuple[int, ...]) -> bool:
        """Whether all devices of a stage run its nodes, and equally fast."""
        if not self.allowed[nodes][:, list(stage)].all():
            return False
        times = self.problem.op_time[np.isin(self.board.graph.op_node, nodes)][:, list(stage)]
        return bool((times == times[:, :1]).all())

    def holds(self, split: Split) -> bool:
        """Whether it fits, and its stages can be put in a row where they must."""
        return split.over <= 0 and self.in_row(split)

    def in_row(self, split: Split) -> bool:
        return self.board.row_rank(split.node_device) is not None

    def offer(self, split: Split) -> None:
        """Keep what holds and no other split beats."""
        if self.archive.wants(split.value, split.moved) and self.holds(split):
            self.archive.offer(split)

    def of_placement(self, placement: Placement) -> Split | None:
        """The split of a placement; None where it tears a node apart."""
        node_device = self.board.nodes_on(self.problem.unit_device(placement.device))
        return None if node_device is None else self.split(node_device, placement.replicas)

    def placement(self, split: Split) -> Placement:
        return self._placement(split.node_device, split.replicas)

    def _placement(self, node_device: Ints, replicas: Replicas) -> Placement:
        return Placement(node_device[self.board.graph.op_node], replicas=replicas)
