"""A shortest way over the places of a chain, with no more subgraphs than there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placewright.bounds.invocation.beside import Combinations
from placewright.bounds.invocation.between import Between
from placewright.graph import Flags, Floats, Whole
from placewright.kernels.invocation.ways import Gaps, Room, shortest_way

MOST_STEPS = 4_000_000
"""Places × places × kinds × numbers of subgraphs used, in one search for a way."""

Run = tuple[int, int, int]
"""Kind of accelerator, first and last place."""


@dataclass(frozen=True)
class _Counts:
    """How many subgraphs of each group of kinds are used, as one number; `step[kind]` adds one.

    `possible[kind, used]` whether one more may be.
    """

    step: Whole
    possible: Flags

    @classmethod
    def of(cls, slots: Sequence[int], paces: Whole, places: int) -> _Counts:
        """Each kind by itself; if these are too many those of a pace, or all, as one; or none."""
        kinds = len(slots)
        for group in (np.arange(kinds), paces, np.zeros(kinds, dtype=np.int64)):
            most = np.bincount(group, np.array(slots, dtype=np.float64)).astype(np.int64)
            number = math.prod((most + 1).tolist())
            if number * kinds * places**2 <= MOST_STEPS:
                step = np.append(1, np.cumprod(most + 1))[group]
                digit = np.arange(number)[None, :] // step[:, None] % (most[group] + 1)[:, None]
                return cls(step, digit < most[group][:, None])
        return cls(np.zeros(kinds, dtype=np.int64), np.ones((kinds, 1), dtype=np.bool_))


class Ways:
    """Ways over all places: runs in subgraphs and single ops on CPUs, and what is between them.

    At most `slots[kind]` subgraphs are used, anew after each place where the pass `turns`. Kinds
    that differ in nothing but memory have one number in `paces[kind]`.
    """

    def __init__(
        self, slots: Sequence[int], paces: Whole, turns: Flags, between: Between | None
    ) -> None:
        self.places, self.kinds = len(turns), len(slots)
        counts = _Counts.of(slots, paces, self.places)
        beside = Combinations.none() if between is None else between.combinations
        self._room = _room(counts, beside, self.kinds)
        self._turns, self._gaps = turns, self._gaps_of(between, turns)
        used, groups = counts.possible.shape[1], len(self._room.offsets) - 1
        by_kind = self.places + 2, used, self.kinds + 1
        self._best = np.empty(by_kind)
        self._came, self._source = (np.empty(by_kind, dtype=np.int64) for _ in range(2))
        working = len(beside.parent), groups, used
        self._working = np.empty(working), np.empty(working, dtype=np.int64)

    def shortest(
        self, length: Floats, on_cpu: Floats, between: Between | None = None
    ) -> tuple[float, list[Run]]:
        """Seconds of the shortest, and its runs, for ``length[kind, first, last]``.

        With `between` that counts in place of what it was made with.
        """
        gaps = self._gaps if between is None else self._gaps_of(between, self._turns)
        seconds, used = shortest_way(
            length, on_cpu, gaps, self._room, self._best, self._came, self._source, *self._working
        )
        return float(seconds), self._runs(int(used))

    def _gaps_of(self, between: Between | None, turns: Flags) -> Gaps:
        if between is not None:
            wide = np.array([len(ops) > 0 for ops in between.ops])
            tables = between.apart, between.beside, wide, between.least, between.is_mixed
            return Gaps(*tables, turns)
        ends, kinds = self.places + 1, self.kinds + 1
        nowhere = np.zeros(ends, dtype=np.bool_)
        nothing = np.zeros((ends, kinds, kinds)), np.zeros((ends, 1, 1, 1)), nowhere, np.zeros(ends)
        return Gaps(*nothing, nowhere, turns)

    def _runs(self, used: int) -> list[Run]:
        """Back from the end, where so many are in use."""
        runs: list[Run] = []
        place, kind = self.places, self.kinds
        while place > 0:
            used, before = divmod(int(self._source[place, used, kind]), self.kinds + 1)
            kind, first = before, int(self._came[place, used, before])
            if first < 0:
                break
            if kind < self.kinds:
                runs.append((kind, first, place - 1))
                used -= int(self._room.step[kind])
            place = first
        return runs


def _room(counts: _Counts, beside: Combinations, kinds: int) -> Room:
    """For the kernel, whose last kind and group are a CPU or nothing."""
    groups = beside.count.shape[1]
    group = np.append(beside.group, groups) if groups else np.zeros(kinds + 1, dtype=np.int64)
    offsets = np.append(0, np.cumsum(np.bincount(group)))
    members = np.argsort(group, kind="stable")
    return Room(counts.step, counts.possible, beside.parent, beside.added, members, offsets, group)
