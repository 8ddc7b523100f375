"""A shortest way over the places of a chain, with no more subgraphs than there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placewright.bounds.invocation.between import Between
from placewright.graph import Flags, Floats, Whole

MOST_STEPS = 4_000_000
"""Places × places × kinds × numbers of subgraphs used, in one search for a way."""

Run = tuple[int, int, int]
"""Kind of accelerator, first and last place."""


@dataclass(frozen=True)
class _Counts:
    """How many subgraphs of each group of kinds are used, as one number; `step[kind]` adds one.

    `room[kind][used]` whether one more may be.
    """

    number: int
    step: Whole
    room: Flags

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
                return cls(number, step, digit < most[group][:, None])
        return cls(1, np.zeros(kinds, dtype=np.int64), np.ones((kinds, 1), dtype=np.bool_))


class Ways:
    """Ways over all places: runs in subgraphs and single ops on CPUs, and what is between them.

    At most `slots[kind]` subgraphs are used, anew after each place where the pass `turns`. Kinds
    that differ in nothing but memory have one number in `paces[kind]`.
    """

    def __init__(
        self, slots: Sequence[int], paces: Whole, turns: Flags, between: Between | None
    ) -> None:
        self.places, self.kinds = len(turns), len(slots)
        self.counts = _Counts.of(slots, paces, self.places)
        self.turns, self.between = turns, between

    def shortest(
        self, length: Floats, on_cpu: Floats, between: Between | None = None
    ) -> tuple[float, list[Run]]:
        """Seconds of the shortest, and its runs, for ``length[kind, first, last]``.

        With `between` that counts in place of what it was made with.
        """
        between = between or self.between
        shape = self.places + 1, self.counts.number, self.kinds + 1
        best, came = np.full(shape, np.inf), np.full(shape, -1)
        best[0, 0, self.kinds] = 0.0
        sources: list[Whole] = []
        for place in range(self.places):
            ahead, source = self._ahead(best[place], place, between)
            sources.append(source)
            for kind in range(self.kinds):
                room = np.flatnonzero(self.counts.room[kind])
                ends = ahead[kind, room][None, :] + length[kind, place, place:, None]
                after = room + self.counts.step[kind]
                known = best[place + 1 :, after, kind]
                better = ends < known
                best[place + 1 :, after, kind] = np.where(better, ends, known)
                came[place + 1 :, after, kind] = np.where(
                    better, place, came[place + 1 :, after, kind]
                )
            best[place + 1, :, self.kinds] = ahead[self.kinds] + on_cpu[place]
            came[place + 1, :, self.kinds] = place
        ahead, source = self._ahead(best[self.places], self.places, between)
        sources.append(source)
        used = int(ahead[self.kinds].argmin())
        return float(ahead[self.kinds, used]), self._runs(came, sources, used)

    def _ahead(self, best: Floats, place: int, between: Between | None) -> tuple[Floats, Whole]:
        """`[kind, used]` seconds until a holder of that kind begins here, and from where in `best`.

        A place in `best` is ``used · (kinds + 1) + kind`` of the holder before.
        """
        kinds = self.kinds + 1
        turning = 0 < place < self.places and bool(self.turns[place])
        least_kind = best.argmin(axis=1)
        used = np.arange(len(best))
        least, source = best[used, least_kind], used * kinds + least_kind
        if turning:
            first = int(least.argmin())
            seconds = least[first] + (0.0 if between is None else between.least[place])
            least = np.full(len(best), np.inf)
            least[0], source = seconds, np.full(len(best), source[first])
        if between is not None and between.is_mixed[place] and not turning:
            least = least + between.least[place]
        if between is None or turning or between.is_mixed[place]:
            return np.tile(least, (kinds, 1)), np.tile(source, (kinds, 1))
        if not len(between.ops[place]):
            return np.tile(least, (kinds, 1)), np.tile(source, (kinds, 1))
        total = best[None, :, :] + between.apart[place].T[:, None, :]
        chosen = total.argmin(axis=2)
        ahead = np.take_along_axis(total, chosen[:, :, None], axis=2)[:, :, 0]
        origin = used[None, :] * kinds + chosen
        for seconds in between.beside[place, : len(between.ops[place])]:  # more are of no use
            least, source = self._one_more(least, source)
            if not np.isfinite(least).any():
                break
            better = least + seconds < ahead
            ahead = np.where(better, least + seconds, ahead)
            origin = np.where(better, source, origin)
        return ahead, origin

    def _one_more(self, least: Floats, source: Whole) -> tuple[Floats, Whole]:
        """With one subgraph more in use, of whatever kind."""
        more, origin = np.full(len(least), np.inf), source.copy()
        for kind in range(self.kinds):
            room = np.flatnonzero(self.counts.room[kind])
            after = room + self.counts.step[kind]
            better = least[room] < more[after]
            more[after[better]] = least[room[better]]
            origin[after[better]] = source[room[better]]
        return more, origin

    def _runs(self, came: Whole, sources: list[Whole], used: int) -> list[Run]:
        """Back from the end, where so many are in use."""
        runs: list[Run] = []
        place, kind = self.places, self.kinds
        while place > 0:
            used, before = divmod(int(sources[place][kind, used]), self.kinds + 1)
            kind, first = before, int(came[place, used, before])
            if first < 0:
                break
            if kind < self.kinds:
                runs.append((kind, first, place - 1))
                used -= int(self.counts.step[kind])
            place = first
        return runs
