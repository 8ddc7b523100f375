"""Moving weights for a better latency: a search that weighs seconds against bytes moved.

What `replan` walks through. A state is a device per unit; its price is ``latency + weight ·
bytes moved``, moved being the units that are not where they were. A step takes a set of units
(one unit, a module, a stretch of the topological order, the end of a stage) to one device.
Every state looked at is offered to an archive that keeps those no other beats in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placewright.analysis.orders import cpd_topo
from placewright.budget import Budget
from placewright.graph import Flags, Floats, Ints, Wide, lent
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.timing import time_sequence
from placewright.plan import Placement
from placewright.problem import LONG_ROUNDING, Problem, once_per_problem
from placewright.simulate.latency import schedule_placement
from placewright.whatif.trade import Archive

CALL = 4_000  # items of a sequence that take as long as calling the kernel does
DEEPEST = 16  # parts of a module's path


class Judge:
    """Latency and bytes moved of a device per unit, within memory, and what that work costs.

    `home[unit]` is where a unit was, -1 if that device is gone: it is moved wherever it goes.
    """

    def __init__(
        self,
        problem: Problem,
        home: Ints,
        capacity: Floats,
        budget: Budget,
        most_work: float,
        archive: Archive[State] | None = None,
    ) -> None:
        self.problem = problem
        self.home = home
        self.capacity = capacity
        self.memory = problem.unit_memory
        self.allowed: Flags = np.isfinite(problem.unit_time)
        self.budget = budget
        self.work_left = most_work
        self.archive: Archive[State] = Archive() if archive is None else archive
        self._arrays = arrays_of(problem)
        n, edges = problem.op_count, problem.edge_count
        self._cost = n + edges + CALL
        self._scratch = (
            np.empty(n), np.empty(n), np.empty(edges), np.empty(problem.device_count),
            np.empty(self._arrays.channel_count), np.empty(0), np.empty(0),
        )  # fmt: skip

    def spent(self) -> bool:
        return self.work_left <= 0 or self.budget.left <= 0

    def moved(self, unit_device: Ints) -> float:
        return float(self.memory[unit_device != self.home].sum())

    def fits(self, unit_device: Ints) -> bool:
        used = np.bincount(unit_device, self.memory, self.problem.device_count)
        rows = np.arange(len(unit_device))
        return bool((used <= self.capacity).all() and self.allowed[rows, unit_device].all())

    def state(self, unit_device: Ints, other: Ints | None = None) -> State:
        """The state, timed in the better of its own order and the one given."""
        placed = schedule_placement(self.problem, unit_device[self.problem.op_unit])
        assert placed.sequence is not None
        self.work_left -= 8 * self._cost
        sequence, value = placed.sequence, self.value(unit_device, placed.sequence)
        if other is not None and (kept := self.value(unit_device, other)) < value:
            sequence, value = other, kept
        found = State(unit_device.copy(), sequence, value, self.moved(unit_device))
        self.archive.offer(found)
        return found

    def value(self, unit_device: Ints, sequence: Ints) -> float:
        """Seconds, the items taken in this order."""
        self.work_left -= self._cost
        device = unit_device[self.problem.op_unit]
        return float(time_sequence(self._arrays, device, lent(sequence), *self._scratch))


@dataclass(frozen=True, eq=False)
class State:
    """A device per unit, an order of ops and edges, and what the two come to."""

    unit_device: Ints
    sequence: Ints
    value: float
    moved: float

    def placement(self, problem: Problem) -> Placement:
        return Placement(self.unit_device[problem.op_unit], self.sequence)


# -- descent ---------------------------------------------------------------------------------


def descend(
    judge: Judge,
    start: State,
    weight: float,
    sets: Sequence[Wide],
    free: Flags,
    limit: float = float("inf"),
    targets: Sequence[Ints] = (),
) -> State:
    """Steps that lower ``latency + weight · bytes`` until none does or the work is spent.

    Only units that are `free[unit]` move, and no more than `limit` bytes in all. A step takes one
    of the `sets`, the end of a stretch, or what one of the `targets` has elsewhere, to a device.
    """
    state = start
    improved = True
    while improved and not judge.spent():
        improved = False
        for units, device in _steps(judge, state.unit_device, sets, free, targets):
            if judge.spent():
                break
            taken = _taken(judge, state, units, device, weight, limit)
            if taken is not None:
                state, improved = taken, True
    return state


def _taken(
    judge: Judge, state: State, units: Wide, device: Ints | int, weight: float, limit: float
) -> State | None:
    """The state after a step, if it may be and is better."""
    candidate = state.unit_device.copy()
    candidate[units] = device
    if (candidate == state.unit_device).all():
        return None
    moved = judge.moved(candidate)
    if moved > limit or not judge.fits(candidate):
        return None
    value = judge.value(candidate, state.sequence)
    price = state.value + weight * state.moved
    if value + weight * moved >= price * (1 - LONG_ROUNDING):
        if value < state.value or moved < state.moved:
            judge.archive.offer(State(candidate, state.sequence, value, moved))
        return None
    return judge.state(candidate, state.sequence)


def _steps(
    judge: Judge,
    unit_device: Ints,
    sets: Sequence[Wide],
    free: Flags,
    targets: Sequence[Ints],
) -> Iterator[tuple[Wide, Ints | int]]:
    """Steps from large to small, seen from `unit_device`, the state at the start of a round."""
    for target in targets:
        for units in differences(unit_device, target):
            units = units[free[units]]
            yield units, target[units]
    order = unit_order(judge.problem)
    yield from ends(unit_device, order[free[order]])
    for units in sets:
        units = units[free[units]]
        if not len(units):
            continue
        for device in range(judge.problem.device_count):
            yield units, device
        for target in targets:
            yield units, target[units]


def differences(unit_device: Ints, target: Ints) -> Iterator[Wide]:
    """All units that are elsewhere in `target`, then those from one device to another."""
    elsewhere = np.flatnonzero(unit_device != target)
    yield elsewhere
    pairs = sorted({(int(unit_device[u]), int(target[u])) for u in elsewhere})
    for a, b in pairs:
        yield elsewhere[(unit_device[elsewhere] == a) & (target[elsewhere] == b)]


def ends(unit_device: Ints, order: Wide) -> Iterator[tuple[Wide, int]]:
    """The last or first 1, 2, 4, … units of a stretch on one device to that of its neighbour."""
    device = unit_device[order]
    borders = [0, *(np.flatnonzero(device[1:] != device[:-1]) + 1).tolist(), len(order)]
    for k in range(1, len(borders) - 1):
        at = borders[k]
        before, after = int(device[at - 1]), int(device[at])
        for length in doubling(at - borders[k - 1]):
            yield order[at - length : at], after
        for length in doubling(borders[k + 1] - at):
            yield order[at : at + length], before


def doubling(most: int) -> Iterator[int]:
    """1, 2, 4, …, and `most` itself."""
    length = 1
    while length < most:
        yield length
        length *= 2
    yield most


# -- sets of units ---------------------------------------------------------------------------


@once_per_problem
def unit_order(problem: Problem) -> Wide:
    """Units by the place of their first op in a depth-first topological order."""
    units, first = np.unique(problem.op_unit[cpd_topo(problem)], return_index=True)
    return units[np.argsort(first)].astype(np.int64)


def unit_sets(problem: Problem) -> list[Wide]:
    """What goes together: modules with all below them, stretches of 2ᵏ units, single units.

    Large ones first, each once.
    """
    sets = [*_modules(problem), *_stretches(unit_order(problem))]
    distinct = {each.tobytes(): each for each in map(np.sort, sets)}
    return sorted(distinct.values(), key=len, reverse=True)


def _modules(problem: Problem) -> Iterator[Wide]:
    """Units of each module path and of its parents (``a.b.c``: ``a``, ``a.b``, ``a.b.c``)."""
    members: dict[str, set[int]] = {}
    for op, module in enumerate(problem.op_modules):
        parts = module.split(".")[:DEEPEST] if module else []
        for depth in range(1, len(parts) + 1):
            members.setdefault(".".join(parts[:depth]), set()).add(int(problem.op_unit[op]))
    for units in members.values():
        yield np.array(sorted(units), dtype=np.int64)


def _stretches(order: Wide) -> Iterator[Wide]:
    length = 1
    while length <= len(order):
        for first in range(0, len(order), length):
            yield order[first : first + length]
        length *= 2
