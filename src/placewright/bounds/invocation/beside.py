"""Subgraphs beside two holders of a chain: which there can be, and what ops take on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placewright.graph import Flags, Floats, Whole
from placewright.problem import LONG_ROUNDING

MOST_BESIDE = 16
MOST_COMBINATIONS = 256
MOST_CELLS = 2_000_000  # combinations × places × groups × groups
MOST_SORTED = 500  # ops whose longest are looked for


@dataclass(frozen=True)
class Combinations:
    """`count[number, group]` subgraphs on each group of kinds; number 0 is none.

    The others have one more of the group `added` than their `parent`. A group has the kinds of one
    pace; all kinds, where there would be too many combinations. If `is_cut_off`, the largest stand
    for as many subgraphs and more.
    """

    group: Whole
    count: Whole
    parent: Whole
    added: Whole
    is_cut_off: bool

    @classmethod
    def none(cls) -> Combinations:
        """Of chains beside which nothing counts."""
        first, count = np.zeros(1, dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
        return cls(first[:0], count, first, first, False)

    @classmethod
    def of(cls, slots: Sequence[int], paces: Whole, places: int, ops: int) -> Combinations:
        """Of so many subgraphs of each kind, with up to so many ops between two places."""
        for group in (paces, np.zeros(len(slots), dtype=np.int64)):
            room = np.bincount(group, slots).astype(np.int64)
            cells = places * (len(room) + 1) ** 2
            limit = max(1 + len(room), min(MOST_COMBINATIONS, MOST_CELLS // cells))
            found = cls._up_to(limit, group, room, min(ops, int(room.sum())))
            if not found.is_cut_off:
                break
        return found

    @classmethod
    def _up_to(cls, limit: int, group: Whole, room: Whole, most: int) -> Combinations:
        """All of one subgraph, all of two, and so on, while these are within the limit."""
        counts, parents, added = [(0,) * len(room)], [0], [0]
        ring = range(1)
        for _ in range(min(most, MOST_BESIDE)):
            found = [
                (tuple(number + (one == group) for group, number in enumerate(counts[parent])),
                 parent, one)
                for parent in ring
                for one in range(added[parent], len(room))
                if counts[parent][one] < room[one]
            ]  # fmt: skip
            if len(counts) + len(found) > limit:
                break
            ring = range(len(counts), len(counts) + len(found))
            for each, parent, one in found:
                counts.append(each)
                parents.append(parent)
                added.append(one)
        largest = sum(counts[-1])
        return cls(group, np.array(counts), np.array(parents), np.array(added), largest < most)

    @property
    def size(self) -> Whole:
        """`[number]` how many subgraphs."""
        return np.asarray(self.count.sum(axis=1))

    def stand_for_more(self, ops: int) -> Flags:
        """`[number]` whether there may be more than these, with so many ops to hold."""
        largest = self.size == self.size[-1]
        return np.asarray(largest & self.is_cut_off & (self.size < ops))

    def least_of_groups(self, by_kind: Floats) -> Floats:
        """`[row, group]` the least of each group's kinds; the last group, of none, has infinity."""
        least = np.full((len(by_kind), self.count.shape[1] + 1), np.inf)
        for kind, group in enumerate(self.group.tolist()):
            least[:, group] = np.minimum(least[:, group], by_kind[:, kind])
        return least


def weights(combinations: Combinations, time: Floats) -> Floats:
    """`[number, group]` of each accelerator of a group its part of all, the larger the faster.

    The parts of a combination's accelerators add up to 1. ``time[op, group]`` seconds.
    """
    fastest = time.min(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(np.isfinite(time) & (fastest > 0), time / fastest, np.nan)
    known = np.isfinite(ratio).any(axis=0)
    speed = np.ones(time.shape[1])
    speed[known] = 1 / np.nanmean(ratio[:, known], axis=0)
    total = combinations.count @ speed
    return np.where(combinations.count > 0, speed / np.maximum(total, 1e-300)[:, None], 0.0)


def shares(weight: Floats, time: Floats, price: Floats) -> Floats:
    """`[number, op]` seconds that each op adds at least to what a combination is busy.

    ``weight[number, group]`` as of `weights`; ``price[op, group]`` what an op pays beside.
    """
    share = np.full((len(weight), len(time)), np.inf)
    for number, parts in enumerate(weight):
        for group in np.flatnonzero(parts).tolist():
            each = parts[group] * time[:, group] + price[:, group]
            share[number] = np.minimum(share[number], each)
    return share


def two_longest(time: Floats, combinations: Combinations) -> Floats:
    """`[number, first]` seconds of the first so many ops, of which some two are not at once.

    Of any p + 1 ops, p being the number of subgraphs beside.
    """
    floor = np.zeros((len(combinations.count), len(time) + 1))
    if len(time) > MOST_SORTED:
        return floor
    first = np.tril(np.broadcast_to(time, (len(time), len(time))))
    longest = -np.sort(-first, axis=1)
    for number, size in enumerate(combinations.size.tolist()):
        floor[number, 1:] = longest[:, 0]
        if 0 < size < len(time):
            pair = longest[:, size - 1] + longest[:, size]
            enough = np.arange(1, len(time) + 1) > size
            floor[number, 1:] = np.where(enough, np.maximum(pair, longest[:, 0]), longest[:, 0])
    return floor * (1 - LONG_ROUNDING)
