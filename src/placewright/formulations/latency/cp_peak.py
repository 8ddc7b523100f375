"""Peak memory in the model of a whole graph: what is alive on a device, as a cumulative constraint.

A tensor is an optional interval on its producer's device, from the start of that op to the last
use there, transfers away included; a copy is one from the start of its transfer to the last use it
serves. At any time the intervals on a device and what its ops keep fit its memory.

Rounding times down keeps every schedule: two lives that share no instant share none afterwards,
for the rounded end of the one is no later than the rounded start of the other. Bytes are rounded
down too, where they are not whole multiples of a unit, and the capacity is not rounded up by more
than a float's error: so what is proved without an exact fit is proved with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.graph import Floats
from placewright.problem import ROUNDING

if TYPE_CHECKING:
    from placewright.formulations.latency.cp_frame import Parcel
    from placewright.formulations.latency.cp_model import Model

UNITS = 10_000_000
"""Whole numbers that a device's memory is cut into, at most; times ticks they fit 64 bits."""
MOST_PAIRS = 20_000
"""Of lives that may meet on a device, for rows about each of them."""


@dataclass(frozen=True, eq=False)
class Life:
    """When, as variables, and the literal that says that it is there."""

    start: Any
    end: Any
    is_there: Any
    size: float


class PeakRows:
    """Writes the rows into a `Model` whose ops and transfers are there."""

    def __init__(self, model: Model) -> None:
        self.model, self.problem = model, model.problem
        self.alive: dict[int, list[Life]] = {}
        self.end = [self._time() for _ in range(self.problem.tensor_count)]
        self.literals: dict[tuple[int, int, int], Any] = {}  # see `_no_later`

    def write(self) -> None:
        for tensor in range(self.problem.tensor_count):
            self._at_home(tensor)
        for (number, d), (begin, by_source) in self.model.begin.items():
            self._copy(self.model.frame.parcels[number], d, begin, by_source)
        few = sum(len(alive) ** 2 for alive in self.alive.values()) <= MOST_PAIRS
        for device, alive in self.alive.items():
            if math.isfinite(self.problem.device_memory[device]):
                self._fit(device, alive, few)

    def _time(self) -> Any:
        return self.model.model.new_int_var(0, self.model.limit, "")

    # -- lives -----------------------------------------------------------------------------------

    def _at_home(self, tensor: int) -> None:
        model, problem, end = self.model, self.problem, self.end[tensor]
        producer = int(problem.tensor_producer[tensor])
        self._until(end, producer)
        low, high = problem.consumer_offsets[tensor : tensor + 2]
        for edge in range(low, high):
            reader, pair = int(problem.consumers[edge]), model.pair_of(edge)
            if pair[0] == pair[1]:
                self._until(end, reader)
                continue
            for (a, d), y in model.route[pair].items():
                if a == d:
                    self._until(end, reader, y)
        start = model.start[model.place[producer]]
        for device, x in model.of(producer).items():
            self._live(device, Life(start, end, x, float(problem.tensor_bytes[tensor])))

    def _copy(
        self, parcel: Parcel, d: int, begin: Any, by_source: dict[int, tuple[Any, int]]
    ) -> None:
        """One that is sent to d; being sent is a use at home."""
        model, end = self.model, self._time()
        is_sent = model.model.new_bool_var("")
        for a, (x, length) in by_source.items():
            model.model.add_implication(x, is_sent)
            for last in (end, self.end[parcel.tensor]):
                model.at_least([(last, 1), (begin, -1)], length, x)
            for edge in parcel.edges:
                pair = model.pair_of(edge)
                y = None if pair[0] == pair[1] else model.route[pair].get((a, d))
                if y is not None:
                    self._until(end, int(self.problem.consumers[edge]), y)
        self._live(d, Life(begin, end, is_sent, float(self.problem.tensor_bytes[parcel.tensor])))

    def _until(self, end: Any, op: int, condition: Any = None) -> None:
        """`end` is no sooner than the finish of the op."""
        self.model.at_least([(end, 1), *self.model.minus_finish(op)], 0, condition)

    def _live(self, device: int, life: Life) -> None:
        if life.size > 0:
            self.alive.setdefault(device, []).append(life)

    # -- capacity --------------------------------------------------------------------------------

    def _fit(self, device: int, alive: list[Life], few: bool) -> None:
        problem, model = self.problem, self.model.model
        capacity = float(problem.device_memory[device]) * (1 + ROUNDING)
        kept = [
            (each[device], float(problem.unit_memory[unit]))
            for unit, each in self.model.on.items()
            if device in each and problem.unit_memory[unit] > 0
        ]
        sizes = np.array([*(life.size for life in alive), *(size for _, size in kept)])
        if sizes.sum() <= capacity:
            return
        unit = _unit(sizes, capacity)
        most = int(capacity / unit)
        left: Any = most
        if kept:
            left = model.new_int_var(0, most, "")  # a sum is no capacity for CP-SAT
            used = [(x, _units(size, unit, most)) for x, size in kept]
            model.add(left + self.model.sum_of(used) == most)
        intervals = [
            model.new_optional_interval_var(life.start, self._time(), life.end, life.is_there, "")
            for life in alive
        ]
        demands = [_units(life.size, unit, most) for life in alive]
        model.add_cumulative(intervals, demands, left)
        if few:
            self._count_at_starts(alive, demands, left)

    def _count_at_starts(self, alive: list[Life], demands: list[int], left: Any) -> None:
        """The same by pairs: what is alive when a life begins fits. Proofs need no instants then.

        A life counts at the start of another unless it ends before that or begins after it; of
        those that begin at once each counts the ones before it in the list. One of no length counts
        for nothing.
        """
        model = self.model.model
        for place, (at, demand) in enumerate(zip(alive, demands, strict=True)):
            is_empty = self._no_later(at.end, at.start)
            counts = model.new_bool_var("")
            model.add_bool_or(counts, is_empty, at.is_there.negated())
            row = [(counts, demand)]
            for k, (life, other) in enumerate(zip(alive, demands, strict=True)):
                if life is at:
                    continue
                is_after = self._no_later(at.start, life.start, 0 if k > place else 1)
                counts = model.new_bool_var("")
                row.append((counts, other))
                model.add_bool_or(
                    counts,
                    self._no_later(life.end, at.start),
                    is_after,
                    is_empty,
                    life.is_there.negated(),
                    at.is_there.negated(),
                )
            model.add(self.model.sum_of(row) <= left)

    def _no_later(self, one: Any, two: Any, least: int = 0) -> Any:
        """A literal that implies two - one ≥ least."""
        key = one.index, two.index, least
        if key not in self.literals:
            self.literals[key] = literal = self.model.model.new_bool_var("")
            self.model.at_least([(two, 1), (one, -1)], least, literal)
        return self.literals[key]


def _unit(sizes: Floats, capacity: float) -> float:
    """Bytes: one that all `sizes` are whole multiples of, if it is not too small, else a fraction.

    >>> _unit(np.array([4.0, 6.0]), 20.0)
    2.0
    """
    if (sizes == np.floor(sizes)).all() and sizes.max() < 2**53:
        common = float(math.gcd(*(int(size) for size in sizes)))
        if capacity / common <= UNITS:
            return common
    return capacity / UNITS if capacity > 0 else float(sizes[sizes > 0].min())


def _units(size: float, unit: float, most: int) -> int:
    """Whole units of a size, rounded down; of what is larger than `most` one more than that."""
    return int(min(size / unit, most + 1.0))
