"""The best row of stages, by dynamic programming over what is done and which devices are used.

``best[used, class][j]``: the least value of the pieces 0 … j in stages on `used` devices (so many
of each class), the last of them on the class. All rows within memory are looked at, so the least
value is a lower bound where the costs are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placewright.analysis.devices import Classes
from placewright.errors import OptionError, ProvedInfeasibleError
from placewright.exporters.pieces import Pieces
from placewright.exporters.row_costs import RowCosts
from placewright.exporters.sharing import NO_RETURN
from placewright.graph import Floats, Ints
from placewright.problem import ROUNDING
from placewright.units import format_bytes

MOST_WORK = 2e9  # states × classes × pieces²: about half a minute
Stage = tuple[int, int, int]
"""Class, first and last piece."""


@dataclass(frozen=True)
class Row:
    """Stages in the order of the data; `returns`: the last is on the device of the first."""

    value: float
    stages: tuple[Stage, ...]
    returns: bool = False


def devices_of(classes: Classes, row: Row) -> Ints:
    """`[piece]` its device: of each class the next that is not used yet."""
    left = [list(members) for members in classes[1]]
    device = np.zeros(row.stages[-1][2] + 1, dtype=np.int32)
    for number, (one, begin, end) in enumerate(row.stages):
        back = row.returns and number == len(row.stages) - 1
        here = device[0] if back else left[one].pop(0)
        device[begin : end + 1] = here
    return device


@dataclass(frozen=True, eq=False)
class Waiting:
    """What a CPU keeps for an accelerator that computes it (`offloading`), both by class.

    The accelerator keeps `reserve` bytes free: for the KV cache of what waits, and for the
    ``largest[first, last]`` weights that come at a time.
    """

    cpu: int
    helper: int
    reserve: float
    largest: Floats


def best_row(pieces: Pieces, costs: RowCosts, waiting: Waiting | None = None) -> Row:
    """The row of least value; ProvedInfeasibleError where none fits the devices' memory."""
    search = _Search(pieces, costs, waiting)
    starts: list[int | None] = [None]
    if pieces.returns != NO_RETURN:
        starts = list(range(len(costs.classes[1])))
    rows = [row for start in starts if (row := search.best(start)) is not None]
    if not rows:
        raise _no_room(pieces, costs)
    return min(rows, key=lambda row: row.value)


def _no_room(pieces: Pieces, costs: RowCosts) -> ProvedInfeasibleError:
    memory = pieces.problem.device_memory
    able = np.isfinite(pieces.problem.op_time).any(axis=0)
    most = pieces.most_stages
    at_most = f", in {most} stages at most" if most < able.sum() else ""
    return ProvedInfeasibleError(
        "no row of whole pieces fits: the model keeps "
        f"{format_bytes(float(costs.memory[0, -1]))} in {pieces.count} pieces, the largest "
        f"{format_bytes(float(costs.memory.diagonal().max()))}; the devices that may be used have "
        f"{', '.join(format_bytes(float(each)) for each in memory[able])}{at_most}"
    )


class _Search:
    """The tables of the dynamic programme, for rows that return to their first device or not."""

    def __init__(self, pieces: Pieces, costs: RowCosts, waiting: Waiting | None) -> None:
        problem = pieces.problem
        self.costs, self.pieces, self.waiting = costs, pieces, waiting
        self.room = [
            float(problem.device_memory[members[0]]) * (1 + ROUNDING)
            for members in costs.classes[1]
        ]
        if waiting is not None:
            self.room[waiting.helper] -= waiting.reserve
        self.stages = self._stages()
        self.available = tuple(len(members) for members in costs.classes[1])
        self.is_rate = problem.options.objective == "throughput"
        states = math.prod(count + 1 for count in self.available)
        if states * len(self.room) ** 2 * pieces.count**2 > MOST_WORK:
            raise OptionError(
                f"{len(problem.device_names)} devices of {len(self.room)} kinds are too many for "
                "an exact row of stages; name fewer devices in the cluster"
            )

    def best(self, start: int | None) -> Row | None:
        """The best row, or the best that starts and ends on a device of class `start`."""
        tail = self.pieces.returns if start is not None else NO_RETURN
        end = tail if tail != NO_RETURN else self.pieces.count
        tables: dict[tuple[int, ...], dict[int, Floats]] = {}
        came: dict[tuple[tuple[int, ...], int], list[tuple[int, int]]] = {}
        for one in range(len(self.room)) if start is None else [start]:
            used = self._unused(one)
            tables[used] = {one: self._first_stages(one, tail, end)}
            came[used, one] = [(NO_RETURN, NO_RETURN)] * end
        for used in self._counts():
            if sum(used) == self.pieces.most_stages:
                break
            for last, before in tables.get(used, {}).items():
                for one in range(len(self.room)):
                    if used[one] < self.available[one]:
                        self._extend(tables, came, used, last, one, before)
        return self._least(tables, came, start, tail, end)

    def _unused(self, one: int) -> tuple[int, ...]:
        return tuple(int(each == one) for each in range(len(self.room)))

    def _counts(self) -> Iterator[tuple[int, ...]]:
        """How many of each class, fewer in all first."""
        every = np.ndindex(*(count + 1 for count in self.available))
        return iter(sorted(every, key=lambda used: (sum(used), used)))

    def _stages(self) -> Floats:
        """`[class, i, j]` seconds of a stage, `inf` where it is not within memory."""
        costs, waiting = self.costs, self.waiting
        fits = costs.memory <= np.array(self.room)[:, None, None]
        if waiting is not None:
            fits[waiting.cpu] &= costs.cache + waiting.largest <= waiting.reserve
        upper = np.triu(np.ones(costs.memory.shape, dtype=np.bool_))
        return np.where(upper & fits, costs.seconds, np.inf)

    def _first_stages(self, one: int, tail: int, end: int) -> Floats:
        """`[j]` of a first stage 0 … j, with the pieces that return to it."""
        costs, waiting = self.costs, self.waiting
        found: Floats = self.stages[one, 0, :end].copy()
        if tail == NO_RETURN:
            return found
        found += costs.seconds[one, tail, -1]
        found[: self.pieces.held] = np.inf
        found[costs.memory[0, :end] + costs.memory[tail, -1] > self.room[one]] = np.inf
        if waiting is not None and one == waiting.cpu:
            needed = costs.cache[0, :end] + costs.cache[tail, -1]
            needed += np.maximum(waiting.largest[0, :end], waiting.largest[tail, -1])
            found[needed > waiting.reserve] = np.inf
        return found

    def _extend(
        self,
        tables: dict[tuple[int, ...], dict[int, Floats]],
        came: dict[tuple[tuple[int, ...], int], list[tuple[int, int]]],
        used: tuple[int, ...],
        last: int,
        one: int,
        before: Floats,
    ) -> None:
        """Rows that end on class `last`, by one more stage on class `one`."""
        costs, end = self.costs, len(before)
        stage = self.stages[one, 1:end, 1:end]
        if self.is_rate:
            total = np.maximum(before[:-1, None], stage)
        else:
            arrived = before[:-1] + costs.handover[last, one, : end - 1]
            total = np.maximum(arrived[:, None] + stage, costs.work[one, 1:end, 1:end])
        if not total.size:
            return
        cut = total.argmin(axis=0)
        value = np.concatenate([[np.inf], total[cut, np.arange(end - 1)]])
        reached = tuple(count + (each == one) for each, count in enumerate(used))
        table = tables.setdefault(reached, {})
        known = table.setdefault(one, np.full(end, np.inf))
        origin = came.setdefault((reached, one), [(NO_RETURN, NO_RETURN)] * end)
        for j in np.flatnonzero(value < known).tolist():
            known[j] = value[j]
            origin[j] = (int(cut[j - 1]), last)

    def _least(
        self,
        tables: dict[tuple[int, ...], dict[int, Floats]],
        came: dict[tuple[tuple[int, ...], int], list[tuple[int, int]]],
        start: int | None,
        tail: int,
        end: int,
    ) -> Row | None:
        found: tuple[float, tuple[int, ...], int] | None = None
        for used, table in tables.items():
            if not self._may_end(used):
                continue
            for last, values in table.items():
                value = float(values[end - 1])
                if start is not None and sum(used) > 1:
                    value += float(self.costs.handover[last, start, end - 1])
                if math.isfinite(value) and (found is None or value < found[0]):
                    found = (value, used, last)
        if found is None:
            return None
        value, used, last = found
        stages = self._traced(came, used, last, end)
        if tail != NO_RETURN:
            stages.append((stages[0][0], tail, self.pieces.count - 1))
        return Row(value, tuple(stages), tail != NO_RETURN)

    def _may_end(self, used: tuple[int, ...]) -> bool:
        """Not with a CPU that keeps weights for an accelerator that has none itself."""
        waiting = self.waiting
        return waiting is None or not used[waiting.cpu] or bool(used[waiting.helper])

    def _traced(
        self,
        came: dict[tuple[tuple[int, ...], int], list[tuple[int, int]]],
        used: tuple[int, ...],
        last: int,
        end: int,
    ) -> list[Stage]:
        stages: list[Stage] = []
        j, one = end - 1, last
        while True:
            cut, before = came[used, one][j]
            stages.append((one, cut + 1, j))
            if cut == NO_RETURN:
                return stages[::-1]
            used = tuple(count - (each == one) for each, count in enumerate(used))
            j, one = cut, before
