"""A chain of ops in stretches that devices have memory for: a lower bound on latency.

Take the ops v_0, v_1, … that all others lead to or depend on. A *stretch* is a run of them, as long
as can be, on one device and with all that lies between them there too. The device has memory for
all of it. Ops that lie beside some of its ops, and are to be with one of them, run there meanwhile.
From one stretch to the next some tensor is sent, or even there and back (`steps`). So

    T  ≥  Σ over stretches of what they take on their device  +  Σ over changes of what they take,

and a shortest way along the chain is a lower bound: it changes device where it must, for no device
has memory for all. That is more than prices of memory say where devices are equal: those are
content with a mean over plans that have all on one device.

The same holds for any chain of ops each of which leads to the next; what lies beside some of its
ops is left out then. A second chain passes by ops that lie beside much of the longest path, such as
a decoder's first ones, which need nothing of the encoder, or that are to be with one of its ops. A
third passes by light ones too, such as those that work out each layer's positions.

Where devices differ prices say the rest. As in `paths`, for μ ≥ 0 per device the plan pays at most
Σ_d μ_d M_d for all that ops keep; so each stretch is charged μ_d for its bytes, other ops the least
price of a device that takes them, and Σ_d μ_d M_d is given back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placewright.analysis.comparable import cut_ops, heaviest_path, spans, with_mates
from placewright.analysis.devices import kinds
from placewright.bounds.bound import Bound
from placewright.bounds.latency.steps import Steps, steps_of
from placewright.bounds.prices import HopedFor
from placewright.budget import Budget, Progress
from placewright.graph import Flags, Floats, Whole
from placewright.problem import LONG_ROUNDING, Problem

SOURCE = "stretches of a chain of ops"
MOST_WORK = 50_000  # ops, and edges between units × kinds of devices, of some 10 µs each
MOST_WORK_ALONE = 200_000  # the same where nobody waits for it
MOST_PLACES = 600
NARROW = 0.2  # of a path, that an op lies beside; wider ones are left out of the second chain
LIGHT = 0.1  # of what ops of the path take that an op lies beside; quicker ones are left out too


def stretches(problem: Problem, most_work: int = MOST_WORK) -> Bound:
    """The bound of the module's text; 0 seconds for graphs that are too large for it."""
    unit = problem.op_unit
    apart = np.count_nonzero(unit[problem.edge_producer] != unit[problem.consumers])
    if problem.op_count + apart * len(kinds(problem)[0]) > most_work:
        return Bound(0.0, SOURCE)
    quickest = np.where(problem.unit_allowed[problem.op_unit], problem.op_time, np.inf).min(axis=1)
    longest = float(quickest.max(initial=0.0)) or 1.0
    path = heaviest_path(problem, quickest + longest * LONG_ROUNDING)
    span = spans(problem, path)
    passed = span[:, 1] - span[:, 0] > NARROW * len(path)
    passed[with_mates(problem, path, span)] = True
    nothing = np.zeros(problem.op_count, dtype=np.bool_)
    chains: list[list[int]] = []
    for left_out in (nothing, passed, passed | _light(path, span, quickest)):
        chain = cut_ops(path, span[~left_out])
        if chain not in chains:
            chains.append(chain)
    return max((_along(problem, chain) for chain in chains), key=lambda bound: bound.value)


def _light(path: list[int], span: Whole, quickest: Floats) -> Flags:
    """`[op]` whether it lies beside ops of the path that take many times as long together."""
    taken = np.cumsum(np.concatenate([[0.0], quickest[path]]))
    inside = np.clip(span[:, 0] + 1, 0, len(path)), np.clip(span[:, 1], 0, len(path))
    beside = taken[np.maximum(inside[1], inside[0])] - taken[inside[0]]
    return np.asarray(quickest < LIGHT * beside)


def _shortened(problem: Problem, chain: list[int]) -> list[int]:
    """At most `MOST_PLACES` or so of the chain: first what lies inside a run of one unit goes."""
    if len(chain) > MOST_PLACES:
        unit = problem.op_unit[chain]
        apart = np.concatenate([[True], unit[1:] != unit[:-1], [True]])
        chain = np.asarray(chain)[apart[:-1] | apart[1:]].tolist()
    return chain[:: 1 + len(chain) // MOST_PLACES]


def prove(
    problem: Problem,
    budget: Budget,
    incumbent: float = float("inf"),
    on_progress: Progress | None = None,
) -> Bound:
    """`stretches` of graphs of any size that are worth the time: a second for 20,000 ops."""
    return stretches(problem, MOST_WORK_ALONE)


def _along(problem: Problem, chain: list[int]) -> Bound:
    """The bound of a chain of ops each of which leads to the next."""
    if not chain:
        return Bound(0.0, SOURCE)
    chain = _shortened(problem, chain)
    ways = _Ways.of(problem, chain, steps_of(problem, chain))
    best, plain = ways.best_over_prices()
    return Bound(best * (1 - LONG_ROUNDING), SOURCE + " with memory" * (best > plain))


@dataclass(frozen=True, eq=False)
class _Ways:
    """Ways along the chain for any prices; bytes are in shares of the memory of each kind.

    Places between which no plan changes device are one. `taken[place, kind]` is what all up to this
    place computes there, `kept[place, kind]` its bytes, of which `own[place, kind]` are of the
    place itself and `inside[place, kind]` of what lies before it and after the one before.
    `begin[place]` is what a place takes if a stretch begins there, beside its first op. A stretch
    to this place begins at `first[place, kind]` at the earliest. `beside[op, kind]` are the bytes
    of other ops. `along[place]` are the places and times of ops that run from one to the other,
    and where the stretch is if that has both.
    """

    steps: Steps
    taken: Floats
    kept: Floats
    own: Floats
    inside: Floats
    begin: Floats
    first: Whole
    beside: Floats
    along: list[list[tuple[int, Floats]]]

    @classmethod
    def of(cls, problem: Problem, chain: list[int], steps: Steps) -> _Ways:
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
        split, away = _entered(steps, chain, opens, group)
        opened = replace(steps, whole=whole, split=split, away=away)
        taken = np.cumsum(np.where(np.isfinite(whole), whole, 0.0), axis=0)
        first = _first_places(np.isfinite(whole), kept, own)
        along = _between_places(group[steps.span[steps.along]], steps.time[steps.along], len(opens))
        return cls(opened, taken, kept, own, inside, begin, first, part[beside], along)

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
        steps, places = self.steps, len(self.kept)
        number = len(price)
        cheapest = (self.inside * price).min(axis=1)
        end = np.empty((places, number))
        source, start = np.zeros((places, number), dtype=np.int64), self.first.copy()
        begun = np.empty((places, number))  # less what the stretch would have taken before
        everywhere = np.arange(number)
        before = self.taken + self.kept * price
        extra = np.zeros((places, number))  # of a stretch from each place to this one
        for place in range(places):
            if place:
                total = end[place - 1][:, None] + steps.away[place]
                total[everywhere, everywhere] = np.minimum(
                    total.diagonal(), end[place - 1] + steps.split[place]
                )
                source[place] = total.argmin(axis=0)
                here = total[source[place], everywhere] + cheapest[place]
            else:
                here = steps.before
            begun[place] = here + self.begin[place] + self.own[place] * price - before[place]
            for low, seconds in self.along[place]:
                extra[: low + 1] += seconds
            for kind in range(number):
                low = self.first[place, kind]
                total = begun[low : place + 1, kind] + extra[low : place + 1, kind]
                start[place, kind] = low + int(total.argmin())
                end[place, kind] = total.min() + before[place, kind]
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


def _entered(steps: Steps, chain: list[int], opens: Whole, group: Whole) -> tuple[Floats, Floats]:
    """`split` and `away` of each place, with what runs along its first ops.

    Let v be the last op before the place and w its first. What begins after v, is to be with ops of
    the place, and ends before one of them, runs on the device of w after v as w does: so to the end
    of w, and of all these, it takes at least what they compute, whatever is sent meanwhile.
    """
    low, high = steps.span[steps.along].T
    place = group[low + 1]
    enters = (opens[place] == low + 1) & (group[high] == place)
    beside = np.zeros((len(opens), steps.time.shape[1]))
    time = steps.time[steps.along]
    np.add.at(beside, place[enters], np.where(np.isfinite(time), time, 0.0)[enters])
    least = steps.time[np.asarray(chain)[opens]] + beside
    split = np.where(beside > 0, np.maximum(steps.split[opens], least), steps.split[opens])
    least, beside = least[:, None, :], beside[:, None, :]
    away = np.where(beside > 0, np.maximum(steps.away[opens], least), steps.away[opens])
    return split, away


def _between_places(ends: Whole, time: Floats, places: int) -> list[list[tuple[int, Floats]]]:
    """`[place]` what runs from another place to it: ``(place, time)`` of all that together."""
    pairs, pair = np.unique(ends, axis=0, return_inverse=True)
    together = np.zeros((len(pairs), time.shape[1]))
    np.add.at(together, pair.ravel(), np.where(np.isfinite(time), time, 0.0))
    along: list[list[tuple[int, Floats]]] = [[] for _ in range(places)]
    for (low, high), seconds in zip(pairs.tolist(), together, strict=True):
        along[high].append((low, seconds))
    return along


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
