"""Dynamic program over a chain of modules: arcs between devices of cut ops (DiviML, §IV-B1).

Time is cut at every cut op: all earlier ops and transfers are done when it ends, no later one has
begun. So a schedule is a path over (boundary, device of its cut op), and the shortest path over
the parts' least durations is the optimum, memory aside (parts share it).

Units with ops in several modules, such as tied weights, would join all that is between them.
`chains_of` makes a chain for every choice of their devices instead; chains share the arcs of parts
that have none of their ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Generic, Protocol, TypeVar

import numpy as np

from placewright.analysis.modules import Modules, split_modules
from placewright.analysis.parts import Part, parts_of, spans_of
from placewright.formulations.latency.incumbent import Incumbent, timed
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.problem import ROUNDING, Problem

MOST_CHAINS = 16

Pair = tuple[int, int]
"""The devices of the cut ops that a part begins and ends with; 0 for none."""


class Arcs(Protocol):
    """A part, and what is known of it for each pair of devices of its ends.

    No plan takes less than `low[source, target]` seconds, `inf` where there is none.
    """

    part: Part
    low: Floats

    def offer(self, pair: Pair, found: Incumbent) -> object:
        """Take over a plan of the part, if it is of use."""


A = TypeVar("A", bound=Arcs)


@dataclass(frozen=True, eq=False)
class Path(Generic[A]):
    """An arc for each part of a chain, and what they take together; infinite if there is none."""

    chain: Chain[A]
    arcs: list[tuple[A, Pair]]
    length: float


@dataclass(frozen=True, eq=False)
class Chain(Generic[A]):
    """The parts of a problem in a row, and the arcs of each; equal parts have the same."""

    problem: Problem
    parts: list[Part]
    arcs: list[A]

    def shortest(self, table: Callable[[A], Floats]) -> Path[A]:
        """The shortest path by the seconds ``table(arcs)[source, target]``."""
        total = np.zeros(self.arcs[0].low.shape[0])
        choices = []
        for each in self._tables(table):
            lengths = total[:, None] + each
            choices.append(lengths.argmin(axis=0))
            total = lengths.min(axis=0)
        target = int(total.argmin())
        length = float(total[target])
        found = []
        for arcs, choice in zip(self.arcs[::-1], choices[::-1], strict=True):
            source = int(choice[target])
            found.append((arcs, (source, target)))
            target = source
        return Path(self, found[::-1], length)

    def distances(self, table: Callable[[A], Floats]) -> tuple[list[Floats], list[Floats]]:
        """From the start to each device before each part, and from after it to the end."""
        tables = self._tables(table)
        before = [np.zeros(tables[0].shape[0])]
        for each in tables[:-1]:
            before.append((before[-1][:, None] + each).min(axis=0))
        after = [np.zeros(tables[-1].shape[1])]
        for each in tables[:0:-1]:
            after.append((each + after[-1][None, :]).min(axis=1))
        return before, after[::-1]

    def _tables(self, table: Callable[[A], Floats]) -> list[Floats]:
        of = {arcs: table(arcs) for arcs in dict.fromkeys(self.arcs)}
        return [of[arcs] for arcs in self.arcs]

    def lower_bound(self) -> float:
        """Seconds that no plan of the whole is shorter than, less rounding; 0 if there is none."""
        length = self.shortest(lambda arcs: arcs.low).length
        return length * (1 - ROUNDING * len(self.parts)) if math.isfinite(length) else 0.0

    def learn(self, placement: Placement) -> None:
        """Take over what a plan of the whole, with a sequence, does with each part.

        Nothing of one that has the problem's pinned units elsewhere: it is one of another chain.
        """
        pinned = self.problem.op_pinned
        if ((pinned >= 0) & (pinned != placement.device)).any():
            return
        for part, arcs in zip(self.parts, self.arcs, strict=True):
            pair, here = part.restricted(placement)
            if math.isfinite(arcs.low[pair]):
                arcs.offer(pair, timed(part.sub.problem, here))

    def joined(self, plans: Sequence[Placement]) -> Placement:
        """The plans of all parts one after another, with their sequences, as one of the whole."""
        device = np.full(self.problem.op_count, -1)
        items = []
        for part, plan in zip(self.parts, plans, strict=True):
            device[part.sub.ops] = plan.device
            items.append(part.sub.items(plan, skipped=1 if part.before >= 0 else 0))
        return Placement(device, np.concatenate(items))


def chain_of(
    modules: Modules,
    arcs_of: Callable[[Part], A],
    known: dict[tuple[object, ...], A] | None = None,
) -> Chain[A]:
    """The chain of modules of one channel; `known` arcs by `Part.key` are used, and added to."""
    known = {} if known is None else known
    parts = parts_of(modules)
    arcs = []
    for part in parts:
        key = part.key()
        if key not in known:
            known[key] = arcs_of(part)
        arcs.append(known[key])
    return Chain(modules.problem, parts, arcs)


def chains_of(problem: Problem, arcs_of: Callable[[Part], A]) -> list[Chain[A]]:
    """One for every choice of devices of the units that lie in several modules.

    Of more than `MOST_CHAINS` choices there is none: modules that share such units are joined.
    """
    known: dict[tuple[object, ...], A] = {}
    return [chain_of(modules, arcs_of, known) for modules in _choices(problem)]


def part_sizes(problem: Problem) -> list[int]:
    """Ops of the parts in a row."""
    return [len(part.ops) for part in parts_of(next(_choices(problem)))]


def _choices(problem: Problem) -> Iterator[Modules]:
    """The modules with the units of several of them pinned, in each way; pins move no cut op."""
    modules = split_modules(problem)
    first, last = spans_of(modules)
    devices = problem.unit_allowed.sum(axis=1)
    ties = np.flatnonzero((first < last) & (devices > 1)).tolist()
    if math.prod(devices[ties].tolist()) > MOST_CHAINS:
        ties = []
    for chosen in product(*(np.flatnonzero(problem.unit_allowed[unit]).tolist() for unit in ties)):
        pins = dict(zip(ties, chosen, strict=True))
        yield replace(modules, problem=problem.with_pins(pins)) if pins else modules
