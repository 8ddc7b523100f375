"""A graph as modules in a row, each between two devices an arc; shortest paths over the arcs.

Units with ops in several modules, such as tied weights, would join all that is between them. So
there is a `Line` for every choice of their devices, and lines share the arcs of modules that have
none of their ops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from placewright.analysis.modules import Modules, split_modules
from placewright.analysis.parts import (
    Part,
    joined,
    longest_paths,
    parts_of,
    shortest_path,
    spans_of,
)
from placewright.formulations.latency.incumbent import Incumbent, timed
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.latency.modules.arc import Arc
from placewright.problem import Problem

MOST_LINES = 16
HOPE = 0.03  # of what is best between other devices, that an arc not tried yet may be shorter
SLOWNESS = 0.02  # of what its simple plan is slower, that it is less likely to be
HOPE_PER_TURN = 0.02  # that one tried once may yet get shorter; of n turns an n-th of it

Pair = tuple[int, int]
"""The devices of the cut ops that a module begins and ends with."""

Key = tuple[bytes, ...]


@dataclass(eq=False)
class Kind:
    """Modules that are the same problem: `arcs` by the devices of their ends."""

    part: Part
    arcs: dict[Pair, Arc] = field(init=False)

    def __post_init__(self) -> None:
        low = longest_paths(self.part)
        self.shape = low.shape
        self.arcs = {
            (source, target): Arc(self.part, source, target, float(low[source, target]))
            for source, target in np.argwhere(np.isfinite(low)).tolist()
        }
        for arc in self.arcs.values():
            arc.offer_simple()

    @property
    def tried(self) -> list[Arc]:
        return [arc for arc in self.arcs.values() if arc.turns and arc.plans]

    def table(self, price: Floats, hopeful: bool) -> Floats:
        """`[source, target]` seconds found, or that may yet be found; bytes cost their price."""
        table = np.full(self.shape, np.inf)
        for pair, arc in self.arcs.items():
            if arc.plans:
                table[pair] = arc.cost(arc.cheapest(price), price)
        if hopeful:
            best = min(self.tried, key=lambda arc: table[arc.source, arc.target], default=None)
            for pair, arc in self.arcs.items():
                if not arc.is_closed:
                    table[pair] = self._hoped(arc, best, table, price)
        return table

    def _hoped(self, arc: Arc, best: Arc | None, table: Floats, price: Floats) -> float:
        """What an arc may yet cost; `best` is the one that costs least of those tried.

        As much less than that as its simple plan is, and not much more where that takes longer:
        what is between the ends need not be where they are, but slow devices rarely do better.
        """
        low = arc.low + float(price.min()) * float(self.part.sub.problem.op_memory.sum())
        cost = float(table[arc.source, arc.target])
        if arc.turns:
            return max(low, cost - arc.value * HOPE_PER_TURN / arc.turns)
        if best is None or not arc.plans:
            return low
        least = (1 - HOPE) * float(table[best.source, best.target])
        ratio = arc.simple / best.simple if best.simple > 0 else 1.0
        slower = SLOWNESS * max(arc.simple - best.simple, 0.0)
        return min(cost, max(low, least * min(ratio, 1.0) + slower))


@dataclass(eq=False)
class Line:
    """The modules of a `problem` whose units each lie in one, or have but one device."""

    problem: Problem
    parts: list[Part]
    kinds: list[Kind]

    def path(self, price: Floats, hopeful: bool = False) -> Choice:
        """The shortest with `price[device]` seconds for each byte.

        Over what was found or, `hopeful`, may yet be; of infinite length if there is none.
        """
        tables = {kind: kind.table(price, hopeful) for kind in set(self.kinds)}
        arcs, length = shortest_path([tables[kind] for kind in self.kinds])
        return Choice(self, [(source, target) for _, source, target in arcs], length)

    def arcs(self, path: list[Pair]) -> list[Arc]:
        return [kind.arcs[pair] for kind, pair in zip(self.kinds, path, strict=True)]

    def joined(self, plans: list[Incumbent]) -> Placement:
        """The plans of all modules as one of the whole."""
        return joined(self.problem, self.parts, [plan.placement for plan in plans])

    def learn(self, placement: Placement) -> None:
        """Take over what a plan of the whole, with a sequence, does with each module.

        Nothing of one that has the line's pinned units elsewhere: it is one of another line.
        """
        pinned = self.problem.op_pinned
        if ((pinned >= 0) & (pinned != placement.device)).any():
            return
        for part, kind in zip(self.parts, self.kinds, strict=True):
            pair, here = part.restricted(placement)
            if pair in kind.arcs:
                kind.arcs[pair].offer(timed(part.sub.problem, here))


@dataclass(frozen=True, eq=False)
class Choice:
    """A path over the modules of a line, and its seconds with what its bytes cost."""

    line: Line
    path: list[Pair]
    length: float


def lines_of(problem: Problem) -> list[Line]:
    """One for every choice of devices of the units that lie in several modules.

    Of more than `MOST_LINES` choices there is none: modules that share such units are joined.
    """
    kinds: dict[Key, Kind] = {}
    lines = []
    for modules in _choices(problem):
        parts = parts_of(modules)
        for part in parts:
            if part.sub.key() not in kinds:
                kinds[part.sub.key()] = Kind(part)
        lines.append(Line(modules.problem, parts, [kinds[part.sub.key()] for part in parts]))
    return lines


def part_sizes(problem: Problem) -> list[int]:
    """Ops of the modules in a row."""
    return [len(part.ops) for part in parts_of(next(_choices(problem)))]


def _choices(problem: Problem) -> Iterator[Modules]:
    """The modules with the units of several of them pinned, in each way; pins move no cut op."""
    modules = split_modules(problem)
    first, last = spans_of(modules)
    devices = problem.unit_allowed.sum(axis=1)
    ties = np.flatnonzero((first < last) & (devices > 1)).tolist()
    if math.prod(devices[ties].tolist()) > MOST_LINES:
        ties = []
    for chosen in product(*(np.flatnonzero(problem.unit_allowed[unit]).tolist() for unit in ties)):
        pins = dict(zip(ties, chosen, strict=True))
        yield replace(modules, problem=problem.with_pins(pins)) if pins else modules
