"""What blocks of several subgraphs take at least, by the paces of their accelerators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np

from placewright.graph import Floats, Wide
from placewright.kernels.invocation.ideal_blocks import Desk, Work, fill_blocks
from placewright.planners.invocation.ideals.kinds import Kinds
from placewright.planners.invocation.ideals.listing import Ideals

MOST_BYTES = 1 << 29
MOST_STEPS = {4: 200_000, 3: 1_000_000, 2: 4_000_000}
"""By how many accelerators: so many steps at most."""
NEVER = 1e3  # times what all nodes take where they are slowest
FEW_STEPS = 50_000
MOST_PARTS, PARTS_OF_FEW = 6, 8

Paces = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Blocks:
    """``seconds[row, step]`` by the paces of accelerators, ``row[paces]``, which rise.

    ``spared[level]`` seconds that a subgraph more can spare at most: m of them take at least what
    all nodes take on whatever is quickest, less m - 1 times that. (In an order in which they may be
    done each is done beside the part of the longest chain before it that it has nothing to do with,
    so it makes the chain longer by what it takes but for the less of both.)
    """

    row: dict[Paces, int]
    seconds: Floats
    spared: Floats

    def rows(self, kinds: Kinds, count: Wide) -> Wide:
        """`[number]` the row of a combination, ``count[number, kind]``, or -1."""
        paces = (np.sort(np.repeat(kinds.paces, each)).tolist() for each in count)
        return np.array([self.row.get(tuple(each), -1) for each in paces], dtype=np.int64)

    def backwards(self, order: Wide) -> Blocks:
        """For the steps from the other end, in that order."""
        seconds = np.ascontiguousarray(self.seconds[:, order])
        return replace(self, seconds=seconds, spared=np.ascontiguousarray(self.spared[::-1]))


def blocks_of(ideals: Ideals, kinds: Kinds) -> Blocks:
    """Of as many accelerators as there are few enough steps for; of none, if they are too many."""
    paces, steps = kinds.paces, len(ideals.steps.targets)
    slots = np.bincount(paces, kinds.slots)
    levels = len(ideals.starts) - 1
    for most, limit in MOST_STEPS.items():
        combinations = _combinations(slots.tolist(), most)
        rows = len(combinations) - len(slots)
        if steps <= limit and 8 * rows * steps <= MOST_BYTES:
            break
    else:
        return Blocks({}, np.zeros((0, steps)), np.full(levels, np.inf))
    seconds, spared = np.empty((rows, steps)), np.zeros(levels)
    if rows:
        _fill(ideals, kinds, combinations, seconds, spared)
    several = combinations[len(slots) :]
    return Blocks({each: row for row, each in enumerate(several)}, seconds, spared)


def _combinations(slots: list[float], most: int) -> list[Paces]:
    """By rising size, of up to so many accelerators."""
    return [
        each
        for size in range(1, most + 1)
        for each in combinations_with_replacement(range(len(slots)), size)
        if all(each.count(pace) <= slots[pace] for pace in {*each})
    ]


def _fill(
    ideals: Ideals, kinds: Kinds, combinations: list[Paces], seconds: Floats, spared: Floats
) -> None:
    graph = ideals.graph
    first = [int(np.flatnonzero(kinds.paces == pace)[0]) for pace in range(kinds.paces.max() + 1)]
    time = ideals.node_time(kinds)[:, first]
    time = np.where(np.isfinite(time), time, NEVER * ideals.slowest(time))
    divisions = [_divisions(each, combinations) for each in combinations]
    one, other = np.array([pair for each in divisions for pair in each]).reshape(-1, 2).T
    work = Work(
        time,
        np.column_stack([time[:, [*{*each}]].min(axis=1) for each in combinations]),
        time.min(axis=1),
        np.array([len(each) for each in combinations]),
        np.append(0, np.cumsum([len(each) for each in divisions])),
        np.ascontiguousarray(one, dtype=np.int64),
        np.ascontiguousarray(other, dtype=np.int64),
        *graph.leaders,
        ideals.comparable,
    )
    parts = PARTS_OF_FEW if len(ideals.steps.targets) <= FEW_STEPS else MOST_PARTS
    desk = _desk(ideals, parts, len(combinations))
    fill_blocks(ideals.bits, ideals.level, ideals.steps, work, parts, desk, seconds, spared)


def _desk(ideals: Ideals, parts: int, count: int) -> Desk:
    nodes, sets = ideals.graph.node_count, 1 << parts
    return Desk(
        np.zeros(nodes, dtype=np.int64),
        np.zeros(nodes, dtype=np.int64),
        np.zeros(nodes),
        np.zeros((parts, ideals.bits.shape[1]), dtype=np.uint64),
        np.zeros((sets, count)),
        np.zeros(sets),
        np.zeros((sets, count)),
        np.zeros((parts, count)),
        np.zeros(parts),
        np.zeros(sets),
        np.zeros((sets, count)),
    )


def _divisions(paces: Paces, combinations: list[Paces]) -> list[tuple[int, int]]:
    """The numbers of what two parties may have, each of at least one accelerator."""
    found = set()
    for chosen in range(1, (1 << len(paces)) - 1):
        one = tuple(pace for place, pace in enumerate(paces) if chosen >> place & 1)
        other = tuple(pace for place, pace in enumerate(paces) if not chosen >> place & 1)
        found.add((combinations.index(one), combinations.index(other)))
    return sorted(found)
