"""Peak memory in a mixed-integer program: what is alive when something else begins to live.

A life is a tensor on its producer's device, from the start of that op to the last use there, or a
copy elsewhere, from the start of its transfer to the last use it serves. What lives on a device
only grows where a life begins, so it is enough to count there: a life l counts at the start of m
unless it ends before that (``before`` = 1) or begins no sooner and later in an order of all lives
(``after`` = 1, which needs a higher ``rank``), so that of those that begin at once the last counts
all others. A life of no length counts nowhere (``empty`` = 1), which needs a variable only where an
op or a transfer may take no time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations

from placewright.formulations.latency.placement import PlacementVariables
from placewright.formulations.latency.transport import Transfer, Transport
from placewright.graph import Floats
from placewright.problem import Problem
from placewright.solvers.mathopt import HINT_ROUNDING, HORIZON, Term


@dataclass(frozen=True, eq=False)
class Life:
    """From when to when, on whatever device: variables; `on[device]` sums to 1 where it is.

    `ends` are what it lasts until: start and duration of a use, and the 0/1 sum that says whether
    that is a use (None: always).
    """

    tensor: int
    start: int
    end: int
    on: dict[int, list[Term]]
    ends: list[tuple[int, list[Term], list[Term] | None]]
    empty: int | None
    rank: int


class PeakRows:
    """Adds the variables and rows to the program of `placement` and `transport`."""

    def __init__(self, placement: PlacementVariables, transport: Transport) -> None:
        self.placement, self.transport = placement, transport
        self.program, self.problem = placement.program, placement.problem
        self.lives = self._lives()
        for life in self.lives:
            self._last(life)
        self.before: dict[tuple[Life, Life], int] = {}
        self.after: dict[tuple[Life, Life], int] = {}
        self.counted: list[tuple[int, Life, Life | None, int]] = []  # variable, of, at, device
        for device, memory in enumerate(self.problem.device_memory.tolist()):
            if math.isfinite(memory):
                self._fit(device, memory)

    # -- lives -----------------------------------------------------------------------------------

    def _lives(self) -> list[Life]:
        sent: dict[int, list[Transfer]] = {}
        for transfer in self.transport.transfers:
            tensor = int(self.problem.edge_tensor[transfer.edges[0]])
            sent.setdefault(tensor, []).append(transfer)
        lives = []
        for tensor in range(self.problem.tensor_count):
            if self.problem.tensor_bytes[tensor] > 0:
                lives.append(self._at_home(tensor, sent.get(tensor, [])))
                lives += [self._copy(tensor, transfer) for transfer in sent.get(tensor, [])]
        return lives

    def _at_home(self, tensor: int, sent: list[Transfer]) -> Life:
        ops, problem = self.transport.ops, self.problem
        producer = int(problem.tensor_producer[tensor])
        ends: list[tuple[int, list[Term], list[Term] | None]] = [
            (ops[producer].start, ops[producer].duration, None)
        ]
        low, high = problem.consumer_offsets[tensor : tensor + 2]
        for edge in range(low, high):
            reader = ops[int(problem.consumers[edge])]
            together = None
            if not self.transport.instance.within_unit(edge):
                joint = self.transport.joint[self.transport.units(edge)]
                together = [(u, 1.0) for (a, b), u in joint.items() if a == b]
            ends.append((reader.start, reader.duration, together))
        for transfer in sent:
            used = [(u, 1.0) for u in transfer.used.values()]
            ends.append((transfer.interval.start, transfer.interval.duration, used))
        on = {d: [(x, 1.0)] for d, x in self.placement.of(producer).items()}
        return self._life(tensor, ops[producer].start, on, ends)

    def _copy(self, tensor: int, transfer: Transfer) -> Life:
        sent, ops = transfer.interval, self.transport.ops
        ends: list[tuple[int, list[Term], list[Term] | None]] = [(sent.start, sent.duration, None)]
        for edge in transfer.edges:
            reader = ops[int(self.problem.consumers[edge])]
            joint = self.transport.joint[self.transport.units(edge)]
            served = [(joint[route], 1.0) for route in transfer.used if route in joint]
            ends.append((reader.start, reader.duration, served))
        on: dict[int, list[Term]] = {}
        for (_, target), used in transfer.used.items():
            on.setdefault(target, []).append((used, 1.0))
        return self._life(tensor, sent.start, on, ends)

    def _life(
        self,
        tensor: int,
        start: int,
        on: dict[int, list[Term]],
        ends: list[tuple[int, list[Term], list[Term] | None]],
    ) -> Life:
        least = min((time for _, time in ends[0][1]), default=0.0)
        empty = self.program.binary() if least <= 0.0 else None
        end = self.program.variable(0.0, HORIZON)
        if empty is not None:
            self.program.row([(end, 1.0), (start, -1.0), (empty, HORIZON)], upper=HORIZON)
        most = self.problem.tensor_count + len(self.transport.transfers)
        return Life(tensor, start, end, on, ends, empty, self.program.variable(0.0, most))

    def _last(self, life: Life) -> None:
        """The end is no sooner than that of any use."""
        for start, duration, is_use in life.ends:
            row = [(life.end, 1.0), (start, -1.0), *((x, -time) for x, time in duration)]
            if is_use is None:
                self.program.row(row, lower=0.0)
            else:
                loose = [(u, -HORIZON * one) for u, one in is_use]
                self.program.row([*row, *loose], lower=-HORIZON)

    # -- what fits -------------------------------------------------------------------------------

    def _fit(self, device: int, memory: float) -> None:
        """Bytes as shares of the memory, where an op begins to live: see the module's docstring."""
        problem, here = self.problem, [life for life in self.lives if device in life.on]
        on = self.placement.on
        kept = [
            (each[device], float(problem.unit_memory[unit]))
            for unit, each in enumerate(on)
            if device in each
        ]
        size = {life: float(problem.tensor_bytes[life.tensor]) for life in here}
        if sum(size.values()) + sum(each for _, each in kept) <= memory:
            return
        scale = max(memory, 1.0)
        counted = {pair: self._counted(device, *pair) for pair in permutations(here, 2)}
        for life in here:
            row = [(x, each / scale) for x, each in kept]
            row += [(x, size[life] / scale * one) for x, one in self._itself(device, life)]
            row += [
                (counted[other, life], size[other] / scale) for other in here if other is not life
            ]
            self.program.row(row, upper=memory / scale)

    def _itself(self, device: int, life: Life) -> list[Term]:
        if life.empty is None:
            return life.on[device]
        counts = self.program.variable(0.0, 1.0)
        self.counted.append((counts, life, None, device))
        absent = [(x, -one) for x, one in life.on[device]]
        self.program.row([(counts, 1.0), (life.empty, 1.0), *absent], lower=0.0)
        return [(counts, 1.0)]

    def _counted(self, device: int, one: Life, at: Life) -> int:
        """1 if `one` is alive on the device when `at` begins to live there."""
        counts = self.program.variable(0.0, 1.0)
        self.counted.append((counts, one, at, device))
        self._order(one, at)
        row: list[Term] = [(counts, 1.0), (self.before[one, at], 1.0), (self.after[one, at], 1.0)]
        if at.empty is not None:
            row.append((at.empty, 1.0))
        row += [(x, -share) for x, share in one.on[device] + at.on[device]]
        self.program.row(row, lower=-1.0)
        return counts

    def _order(self, one: Life, at: Life) -> None:
        if (one, at) in self.before:
            return
        before = self.before[one, at] = self.program.binary()
        after = self.after[one, at] = self.program.binary()
        self.program.row([(one.end, 1.0), (at.start, -1.0), (before, HORIZON)], upper=HORIZON)
        self.program.row([(one.start, 1.0), (at.start, -1.0), (after, -HORIZON)], lower=-HORIZON)
        more = 1.0 + self.problem.tensor_count + len(self.transport.transfers)
        self.program.row([(one.rank, 1.0), (at.rank, -1.0), (after, -more)], lower=1.0 - more)

    # -- from schedules --------------------------------------------------------------------------

    def hint(self, values: Floats) -> None:
        """Set ends and orders as they follow from the ops and transfers that are set already."""
        for life in self.lives:
            values[life.end] = max(
                values[start] + _total(values, duration)
                for start, duration, is_use in life.ends
                if is_use is None or _total(values, is_use) > 0.5
            )
            if life.empty is not None:
                values[life.empty] = values[life.end] <= values[life.start] + HINT_ROUNDING
        for rank, life in enumerate(sorted(self.lives, key=lambda each: values[each.start])):
            values[life.rank] = rank
        for (one, at), before in self.before.items():
            values[before] = values[one.end] <= values[at.start] + HINT_ROUNDING
            values[self.after[one, at]] = values[one.rank] > values[at.rank]
        for counts, one, other, device in self.counted:
            alive, which = _total(values, one.on[device]), one
            if other is not None:
                which = other
                alive += _total(values, other.on[device]) - 1.0
                alive -= values[self.before[one, other]] + values[self.after[one, other]]
            alive -= values[which.empty] if which.empty is not None else 0.0
            values[counts] = max(alive, 0.0)


def _total(values: Floats, terms: list[Term]) -> float:
    return sum(float(values[x]) * factor for x, factor in terms)


def order_variables(problem: Problem) -> int:
    """How many yes-or-no variables the orders of lives need, at most."""
    if problem.options.memory == "resident":
        return 0
    by_tensor = problem.options.transfer_unit == "tensor"
    copies = problem.tensor_count * problem.device_count if by_tensor else problem.edge_count
    lives = problem.tensor_count + copies
    return 2 * lives * (lives - 1)
