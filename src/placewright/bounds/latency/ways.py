"""Ways along a chain of ops, from stretch to stretch, under prices of memory (see `stretches`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placewright.bounds.latency.steps import Steps
from placewright.bounds.prices import HopedFor
from placewright.graph import Flags, Floats, Whole
from placewright.kernels.latency.chain_ways import shortest_way
from placewright.problem import LONG_ROUNDING, Problem


@dataclass(frozen=True, eq=False)
class Along:
    """What runs from another place to each: places ``low`` and ``seconds[., kind]`` together.

    Of a place those from its entry of `offsets` up to the next.
    """

    offsets: Whole
    low: Whole
    seconds: Floats

    @classmethod
    def of(cls, ends: Whole, time: Floats, places: int) -> Along:
        """`ends[op]` are the two places of ops that take `time[op, kind]`."""
        pairs, pair = np.unique(ends[:, ::-1], axis=0, return_inverse=True)
        together = np.zeros((len(pairs), time.shape[1]))
        np.add.at(together, pair.ravel(), time)
        offsets = np.searchsorted(pairs[:, 0], np.arange(places + 1))
        return cls(offsets, np.ascontiguousarray(pairs[:, 1]), together)

    def to(self, place: int) -> list[tuple[int, Floats]]:
        """The places and times of what runs to this one."""
        own = slice(*self.offsets[place : place + 2])
        return list(zip(self.low[own].tolist(), self.seconds[own], strict=True))


@dataclass(frozen=True, eq=False)
class Ways:
    """Ways along the chain for any prices; bytes are in shares of the memory of each kind.

    Places between which no plan changes device are one. `taken[place, kind]` is what all up to this
    place computes there, `kept[place, kind]` its bytes, of which `own[place, kind]` are of the
    place itself and `inside[place, kind]` of what lies before it and after the one before.
    `begin[place]` is what a place takes if a stretch begins there, beside its first op. A stretch
    to this place begins at `first[place, kind]` at the earliest. `beside[op, kind]` are the bytes
    of other ops. `along` are the places and times of ops that run from one to the other, and where
    the stretch is if that has both. `units[place]` are those that its ops are of.
    """

    steps: Steps
    taken: Floats
    kept: Floats
    own: Floats
    inside: Floats
    begin: Floats
    first: Whole
    beside: Floats
    along: Along
    units: list[set[int]]

    @classmethod
    def of(cls, problem: Problem, chain: list[int], steps: Steps) -> Ways:
        limited = np.isfinite(steps.memory) & (steps.memory > 0)
        capacity = np.where(limited, steps.memory, np.inf)
        part = _with_the_chain(problem, chain)[:, None] / capacity[None, :]
        lies = steps.between >= 0
        inside = np.zeros((len(chain), len(capacity)))
        np.add.at(inside, steps.between[lies], part[lies])
        beside: Flags = ~lies
        beside[chain] = False
        changes = _can_change(steps)
        changes[0] = True
        opens = np.flatnonzero(changes)
        later = ~changes[:, None]
        begin = np.add.reduceat(np.where(later, steps.whole, 0.0), opens)
        own = np.add.reduceat(part[chain] + np.where(later, inside, 0.0), opens)
        whole, inside = begin + steps.whole[opens], inside[opens]
        kept = np.cumsum(own + inside, axis=0)
        group = np.cumsum(changes) - 1
        time = steps.time[steps.along]
        time = np.where(np.isfinite(time), time, 0.0)
        split, away = _entered(steps, time, chain, opens, group)
        opened = replace(steps, whole=whole, split=split, away=away)
        taken = np.cumsum(np.where(np.isfinite(whole), whole, 0.0), axis=0)
        first = _first_places(np.isfinite(whole), kept, own)
        along = Along.of(group[steps.span[steps.along]], time, len(opens))
        units: list[set[int]] = [set() for _ in opens]
        for unit, place in zip(problem.op_unit[chain].tolist(), group.tolist(), strict=True):
            units[place].add(unit)
        return cls(opened, taken, kept, own, inside, begin, first, part[beside], along, units)

    @property
    def room(self) -> Floats:
        """`[kind]` devices, and a little: what is full may be fuller by what sums are rounded."""
        return self.steps.count.astype(np.float64) * (1 + LONG_ROUNDING)

    def best_over_prices(self) -> tuple[float, float]:
        """Seconds: the best bound, and that without prices; by subgradient steps."""
        limited = np.isfinite(self.steps.memory)
        price = np.zeros(len(self.room))
        value, used = self._shortest(price)
        plain = value
        hoped = HopedFor()
        while np.isfinite(plain):
            price = hoped.next_prices(price, value, np.where(limited, used - self.room, 0.0))
            if hoped.given_up:
                break
            value, used = self._shortest(price)
        return max(hoped.best, plain), plain

    def _shortest(self, price: Floats) -> tuple[float, Floats]:
        """Seconds, less what the devices are paid; and the memory used, in devices of a kind.

        `price` is what all the memory of a device of a kind costs.
        """
        steps, along = self.steps, self.along
        end, source, start = shortest_way(
            self.first, steps.away, steps.split, steps.before, self.begin + self.own * price,
            self.taken + self.kept * price, (self.inside * price).min(axis=1),
            along.offsets, along.low, along.seconds,
        )  # fmt: skip
        value = end[-1] + steps.after
        kind = int(value.argmin())
        others = (self.beside * price).min(axis=1, initial=np.inf) if len(self.beside) else 0.0
        paid = float(np.sum(others)) - float((self.room * price).sum())
        return float(value[kind]) + paid, self._used(source, start, kind, price)

    def _used(self, source: Whole, start: Whole, kind: int, price: Floats) -> Floats:
        """`[kind]` the memory that the way which ends on this kind uses."""
        used = np.zeros(len(price))
        place = len(start) - 1
        while place >= 0:
            begin = int(start[place, kind])
            used[kind] += self.kept[place, kind] - self.kept[begin, kind] + self.own[begin, kind]
            if begin:
                cheap = int((self.inside[begin] * price).argmin())
                used[cheap] += self.inside[begin, cheap]
                kind = int(source[begin, kind])
            place = begin - 1
        if len(self.beside):
            cheapest = (self.beside * price).argmin(axis=1)
            used += np.bincount(
                cheapest, self.beside[np.arange(len(cheapest)), cheapest], len(used)
            )
        return used


def _entered(
    steps: Steps, time: Floats, chain: list[int], opens: Whole, group: Whole
) -> tuple[Floats, Floats]:
    """`split` and `away` of each place, with what runs along its first ops: ``time[along, kind]``.

    Let v be the last op before the place and w its first. What begins after v, is to be with ops of
    the place, and ends before one of them, runs on the device of w after v as w does: so to the end
    of w, and of all these, it takes at least what they compute, whatever is sent meanwhile.
    """
    low, high = steps.span[steps.along].T
    place = group[low + 1]
    enters = (opens[place] == low + 1) & (group[high] == place)
    beside = np.zeros((len(opens), steps.time.shape[1]))
    np.add.at(beside, place[enters], time[enters])
    least = steps.time[np.asarray(chain)[opens]] + beside
    split = np.where(beside > 0, np.maximum(steps.split[opens], least), steps.split[opens])
    least, beside = least[:, None, :], beside[:, None, :]
    away = np.where(beside > 0, np.maximum(steps.away[opens], least), steps.away[opens])
    return split, away


def _with_the_chain(problem: Problem, chain: list[int]) -> Floats:
    """`[op]` bytes, those of units on the chain all at their first op of it.

    For they are where that op is.
    """
    unit, memory = problem.op_unit, problem.op_memory.copy()
    units, first = np.unique(unit[chain], return_index=True)
    memory[np.isin(unit, units)] = 0.0
    memory[np.asarray(chain)[first]] = problem.unit_memory[units]
    return memory


def _can_change(steps: Steps) -> Flags:
    """`[place]` whether any plan changes device there, or has what lies before it elsewhere."""
    finite: Flags = np.isfinite(np.concatenate([steps.split[:, None], steps.away], axis=1))
    return np.asarray(finite.any(axis=(1, 2)))


def _first_places(possible: Flags, kept: Floats, own: Floats) -> Whole:
    """`[place, kind]` where a stretch to it that has room begins at the earliest."""
    first = np.empty(kept.shape, dtype=np.int64)
    for kind in range(kept.shape[1]):
        start = 0
        for place in range(len(kept)):
            if not possible[place, kind]:
                start = place
            while start < place and (
                kept[place, kind] - kept[start, kind] + own[start, kind] > 1 + LONG_ROUNDING
            ):
                start += 1
            first[place, kind] = start
    return first
