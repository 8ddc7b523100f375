"""Moving pieces of a pipeline: loads brought under a limit with few bytes, and bytes saved again.

The value of a pipeline is its largest load, so a move that lightens one of two full devices saves
nothing by itself. A search therefore has a limit on the loads: first those above it are lowered,
each time by the change that lowers them most per byte; then what need not have moved goes home,
as long as the loads stay below. Limits from what the repair comes to down to what a planner finds
give the trade of `replan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.whatif.moves import differences, doubling, ends, unit_sets
from placewright.whatif.pipeline_split import Key, Pipeline, Replicas, Split, better

MOST_EXCHANGED = 64  # devices of which any two may change places
MOST_SWAPPED = 20_000  # pairs of nodes that are looked at

Measure = Callable[[Split], Key]
Change = Callable[[Split], tuple[Ints, Replicas] | None]
"""The devices and replicas of a split after a change; None where it is none."""


@dataclass(frozen=True, eq=False)
class Shift:
    """Nodes to one device each, or all to one."""

    nodes: Wide
    device: Ints | int

    def __call__(self, split: Split) -> tuple[Ints, Replicas] | None:
        after = split.node_device.copy()
        after[self.nodes] = self.device
        for stage in split.replicas:  # ops name the first of a stage
            after[np.isin(after, stage[1:])] = stage[0]
        return None if np.array_equal(after, split.node_device) else (after, split.replicas)


@dataclass(frozen=True)
class Exchange:
    """Two devices in each other's place: a new one for a lost one, a quicker one for a slower."""

    one: int
    two: int

    def __call__(self, split: Split) -> tuple[Ints, Replicas] | None:
        names = np.arange(split.loads.shape[1], dtype=np.int32)
        names[[self.one, self.two]] = self.two, self.one
        replicas = tuple(tuple(names[list(stage)].tolist()) for stage in split.replicas)
        return names[split.node_device], replicas


@dataclass(frozen=True)
class Join:
    """An idle device as one more replica of a stage."""

    first: int
    device: int

    def __call__(self, split: Split) -> tuple[Ints, Replicas] | None:
        busy = {*split.node_device.tolist(), *(d for stage in split.replicas for d in stage)}
        if self.device in busy or self.first not in busy:
            return None
        mine = next((s for s in split.replicas if s[0] == self.first), (self.first,))
        others = tuple(s for s in split.replicas if s[0] != self.first)
        return split.node_device, (*others, (*mine, self.device))


@dataclass(frozen=True)
class Leave:
    """One replica of a stage less."""

    device: int

    def __call__(self, split: Split) -> tuple[Ints, Replicas] | None:
        mine = next((stage for stage in split.replicas if self.device in stage), None)
        if mine is None:
            return None
        rest = tuple(d for d in mine if d != self.device)
        others = tuple(stage for stage in split.replicas if stage is not mine)
        after = np.where(split.node_device == mine[0], rest[0], split.node_device)
        return after.astype(np.int32), (*others, rest) if len(rest) > 1 else others


@dataclass(frozen=True, eq=False)
class Part:
    """One replica leaves its stage with some of its nodes, which it has already."""

    nodes: Wide
    device: int

    def __call__(self, split: Split) -> tuple[Ints, Replicas] | None:
        left = Leave(self.device)(split)
        if left is None:
            return None
        after, replicas = left[0].copy(), left[1]
        after[self.nodes] = self.device
        return after, replicas


# -- changes -----------------------------------------------------------------------------------


class Changes:
    """The changes that may be worth trying, from large to small, seen from a split.

    Only nodes that are `movable[node]` go; `whole` devices and replicas change too. A target has a
    device for each node, where it may be good.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        movable: Flags,
        targets: Sequence[Ints] = (),
        *,
        whole: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self.movable = movable
        self.targets = targets
        self.whole = whole

    def of(self, split: Split, wanted: Flags) -> Iterator[Change]:
        """Those with some node that is wanted elsewhere."""
        wanted = wanted & self.movable
        for target in self.targets:
            for nodes in differences(split.node_device, target):
                nodes = nodes[self.movable[nodes]]
                if wanted[nodes].any():
                    yield Shift(nodes, target[nodes])
        if self.whole:
            yield from self._of_stages(split, wanted)
        order = self.order(split)
        for nodes, device in ends(split.node_device, order[self.movable[order]]):
            if wanted[nodes].any():
                yield Shift(nodes, device)
        for nodes in self.sets:
            nodes = nodes[self.movable[nodes]]
            if not wanted[nodes].any():
                continue
            for target in self.targets:
                yield Shift(nodes, target[nodes])
            for device in self._near(split, nodes):
                yield Shift(nodes, device)
        if not self.pipeline.problem.options.contiguous:
            yield from self._swapped(split, wanted)

    def _swapped(self, split: Split, wanted: Flags) -> Iterator[Change]:
        """Two nodes in each other's place, which in a row would hardly ever stay one."""
        ones, others = np.flatnonzero(wanted), np.flatnonzero(self.movable)
        if len(ones) * len(others) > MOST_SWAPPED:
            return
        device = split.node_device
        for one in ones.tolist():
            for other in others[device[others] != device[one]].tolist():
                yield Shift(np.array([one, other]), device[[other, one]])

    def _of_stages(self, split: Split, wanted: Flags) -> Iterator[Change]:
        """Whole devices exchanged, replicas that come and go."""
        count = self.pipeline.problem.device_count
        concerned = set(split.node_device[wanted].tolist())
        for stage in split.replicas:
            concerned |= set(stage) if stage[0] in concerned else set()
        if count <= MOST_EXCHANGED:
            for one, two in combinations(range(count), 2):
                if one in concerned or two in concerned:
                    yield Exchange(one, two)
        if not self.pipeline.problem.options.replicate:
            return
        for first in sorted(set(split.node_device.tolist())):
            for device in range(count):
                yield Join(first, device)
        for stage in split.replicas:
            for device in stage:
                yield Leave(device)
                for nodes in self._pieces(split, stage[0]):
                    yield Part(nodes, device)

    def _pieces(self, split: Split, first: int) -> Iterator[Wide]:
        """The first or last 1, 2, 4, … nodes of a stage, along the data, and half of them."""
        order = self.order(split)
        mine = order[split.node_device[order] == first]
        for length in {*doubling(len(mine)), len(mine) // 2}:
            if 0 < length < len(mine):
                yield mine[:length]
                yield mine[-length:]

    def _near(self, split: Split, nodes: Wide) -> list[int]:
        """Devices that nodes may go to: in a row those beside theirs, else all; idle ones."""
        board, count = self.pipeline.board, self.pipeline.problem.device_count
        used = np.unique(split.node_device)
        rank = board.row_rank(split.node_device)
        if rank is None or not len(rank):
            return list(range(count))
        row = used[np.argsort(rank[used])]
        places = np.flatnonzero(np.isin(row, split.node_device[nodes]))
        low, high = max(int(places[0]) - 1, 0), int(places[-1]) + 2
        idle = np.setdiff1d(np.arange(count), used)
        return [*row[low:high].tolist(), *idle.tolist()]

    def order(self, split: Split) -> Wide:
        """Nodes along the data; in a row, device after device."""
        board = self.pipeline.board
        rank = board.row_rank(split.node_device)
        if rank is None or not len(rank):
            return self._along
        place = np.empty(len(self._along), dtype=np.int64)
        place[self._along] = np.arange(len(place))
        return np.lexsort((place, rank[split.node_device]))

    @cached_property
    def _along(self) -> Wide:
        return self.pipeline.board.orders(1, 0)[0]

    @cached_property
    def sets(self) -> list[Wide]:
        """Of nodes, what `unit_sets` has of units, and each node; large ones first, each once."""
        board = self.pipeline.board
        _, first = np.unique(board.problem.op_unit, return_index=True)
        node = board.graph.op_node[first]
        found = [np.unique(node[units]) for units in unit_sets(board.problem)]
        distinct = {each.tobytes(): each for each in found}
        return sorted(distinct.values(), key=len, reverse=True)


# -- searches ----------------------------------------------------------------------------------


def descend(
    changes: Changes, start: Split, measure: Measure, wanted: Callable[[Split], Flags], limit: float
) -> Split:
    """Any change that lowers the measure, until none does or the work is spent.

    No more than `limit` bytes move.
    """
    pipeline, split, improved = changes.pipeline, start, True
    while improved and not pipeline.spent():
        improved = False
        for change in changes.of(split, wanted(split)):
            if pipeline.spent():
                break
            found = _after(pipeline, split, change, limit)
            if found is None or not better(measure(found), measure(split)):
                continue
            if pipeline.in_row(found):
                split, improved = found, True
    return split


def under(changes: Changes, start: Split, limits: Floats, tight: float) -> Split:
    """Loads brought below ``limits[pass]`` as far as it goes; then bytes saved again.

    No more than `tight` bytes move.
    """
    pipeline = changes.pipeline
    split = start
    while (excess := split.excess(limits)) > 0 and not pipeline.spent():
        lowered = _cheapest(changes, split, limits, excess, tight)
        if lowered is None:
            return split
        split = lowered

    def measure(each: Split) -> Key:
        return each.over, each.excess(limits), each.moved

    def away(each: Split) -> Flags:
        here = pipeline.coming[pipeline.rows, each.node_device]
        return np.asarray((here > pipeline.least_coming) | bool(each.replicas))

    return descend(changes, split, measure, away, tight)


def _cheapest(
    changes: Changes, split: Split, limits: Floats, excess: float, tight: float
) -> Split | None:
    """The split after the change that lowers the excess most per byte."""
    pipeline = changes.pipeline
    full: Flags = np.asarray((split.loads > limits[:, None]).any(axis=0))
    busy: Flags = full[split.node_device]
    for stage in split.replicas:
        busy |= (split.node_device == stage[0]) & bool(full[list(stage)].any())
    least = 1e-9 * pipeline.least_coming.sum() + 1e-3 * float(pipeline.coming.max(initial=0.0))
    best: tuple[float, Split | None] = (0.0, None)
    for change in changes.of(split, busy):
        if pipeline.spent():
            break
        found = _after(pipeline, split, change, tight)
        if found is None:
            continue
        gain = excess - found.excess(limits)
        rate = gain / max(found.moved - split.moved, least or 1.0)
        if gain > 1e-9 * excess and rate > best[0] and pipeline.in_row(found):
            best = rate, found
    return best[1]


def _after(pipeline: Pipeline, split: Split, change: Change, limit: float) -> Split | None:
    """The split after a change that is one, and moves no more than `limit` and fits no worse."""
    changed = change(split)
    if changed is None:
        return None
    if pipeline.moved(*changed) > max(limit, split.moved):
        return None
    found = pipeline.split(*changed)
    if found.over > split.over:
        return None
    if found.over <= 0 and found.moved <= limit:
        pipeline.offer(found)
    return found


def renamed(pipeline: Pipeline, start: Split) -> Split:
    """The split with devices exchanged so that fewer bytes move, and it is no worse."""
    split, improved = start, True
    count = pipeline.problem.device_count
    while improved and not pipeline.spent():
        improved = False
        for one, two in combinations(range(count), 2):
            if pipeline.spent():
                break
            changed = Exchange(one, two)(split)
            if changed is None or pipeline.moved(*changed) >= split.moved:
                continue
            found = pipeline.split(*changed)
            if found.over <= 0 and not better((start.value,), (found.value,)):
                split, improved = found, True
    return split
