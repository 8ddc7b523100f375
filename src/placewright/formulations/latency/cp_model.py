"""A frame for CP-SAT: where its ops run and when, and which transfers that takes.

An op is an interval on its device, optional on each. An edge is a transport problem: y[a, d] says
that it goes from device a to d, and the rows and columns of y add up to the placements of its two
ops, so that the linear relaxation sees the price of parting them; one y serves all edges between
two units. Under contention a transfer is an optional interval on every channel of its route.

Times are whole numbers, durations rounded *down*: the starts of any schedule, rounded down, obey
every constraint (s_b ≥ s_a + p_a implies ⌊s_b⌋ ≥ ⌊s_a⌋ + ⌊p_a⌋), so a bound on the makespan holds
for the frame itself. The plan found is timed anew by the simulator.

Implied, and stated since they are hard to find: loads of devices and channels are within the
makespan, as are paths before and after an op on each of its devices; all that lies between two ops
where paths part and meet lies between them in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from placewright.analysis.precedence import END, LARGEST_REGION, START, Precedence
from placewright.budget import Budget
from placewright.formulations.fit import Chosen, overfull
from placewright.formulations.formulation import Listener
from placewright.formulations.latency.cp_frame import Frame, Owed, Parcel, transfer_times
from placewright.formulations.latency.cp_peak import PeakRows
from placewright.formulations.latency.cp_rows import OpRows
from placewright.formulations.latency.incumbent import interchangeable_devices
from placewright.graph import Floats, Ints
from placewright.problem import ROUNDING
from placewright.solvers.cp_sat import cp_solver, solve_model
from placewright.solvers.running import Answer

TICKS = 10_000_000
"""Whole numbers that the horizon is cut into."""
MOST_REGION_OPS = 3_000  # of the whole; finding regions takes the square of it in bits
SHORT_UNITS = 1.0


@dataclass(frozen=True)
class Effort:
    """How long to search, and how.

    `seconds`; `units` of CP-SAT's deterministic time, after which the answer is the same on every
    machine as long as `workers` is 1; `level` of linearisation (0 none, 2 the most). 0 workers:
    as many as there are processors. With `halving` conflicts for each step (-1: not at all), the
    span that the makespan may be in is first cut in half as often as that decides which half.
    """

    seconds: float
    units: float = math.inf
    workers: int = 1
    level: int = 1
    seed: int = 0
    halving: int = -1

    @property
    def is_short(self) -> bool:
        return self.units <= SHORT_UNITS


@dataclass(frozen=True, eq=False)
class Times:
    """A schedule of a frame, in seconds from wherever the frame's times are counted.

    `device[k]`, `start[k]`, `finish[k]` of ``ops[k]``; `begin` of what is sent within the frame:
    ``(number of the parcel, target) → (start, finish)``.
    """

    device: Ints
    start: Floats
    finish: Floats
    begin: dict[tuple[int, int], tuple[float, float]]


class Model(OpRows):
    """CP-SAT's model of a frame for makespans up to `horizon` seconds; see the module's docstring.

    >>> model = Model(whole(problem), horizon=heft.makespan)
    >>> model.solve(Effort(10.0)).lower_bound <= heft.makespan
    True
    """

    def __init__(
        self, frame: Frame, horizon: float, ticks: int = TICKS, is_linear: bool = True
    ) -> None:
        super().__init__(frame, horizon, ticks, is_linear)
        self.solver: Any = None
        if self.is_open:
            self._carry()
            self._send()
            if frame.is_whole:
                self._keep_one_of_interchangeable()
                self._regions()
                if self.problem.options.memory == "peak":
                    PeakRows(self).write()
            self.model.minimize(self._cost())

    def _cost(self) -> Any:
        """The makespan, and what bytes cost besides."""
        price, memory = self.frame.price, self.problem.unit_memory
        if price is None:
            return self.end
        paid = [
            (x, self._down(float(price[device] * memory[unit])))
            for unit, on in self.on.items()
            for device, x in on.items()
        ]
        return self.sum_of([(self.end, 1), *paid])

    # -- transfers -------------------------------------------------------------------------------

    def _carry(self) -> None:
        """Edges within the frame: transport, and the delay that it takes."""
        unit = self.problem.op_unit
        open_to: dict[tuple[int, int], Any] = {}
        for edge, delay in self.delay.items():
            pair = self.pair_of(edge)
            open_to[pair] = open_to.get(pair, True) & np.isfinite(delay)
        self.route = {
            (u, v): self._transport(u, v, flags) for (u, v), flags in open_to.items() if u != v
        }
        slowest: dict[tuple[int, int], Floats] = {}
        for edge, delay in self.delay.items():
            ends = int(self.problem.edge_producer[edge]), int(self.problem.consumers[edge])
            slowest[ends] = np.maximum(slowest.get(ends, 0.0), delay)
        for (producer, consumer), delay in slowest.items():
            start, pair = (
                self.start[self.place[consumer]],
                (int(unit[producer]), int(unit[consumer])),
            )
            if pair[0] == pair[1]:
                self._wait(start, producer, {(a, a): x for a, x in self.of(producer).items()}, None)
            else:
                self._wait(start, producer, self.route[pair], delay)

    def _wait(
        self, start: Any, producer: int, y: dict[tuple[int, int], Any], delay: Floats | None
    ) -> None:
        """`start` comes after the op's finish on a, and the delay from a to d, if y[a, d]."""
        length = self.length[self.place[producer]]
        moves = {(a, d): 0 if a == d or delay is None else self._down(delay[a, d]) for a, d in y}
        if self.is_linear:
            row = [(start, 1), *self.minus_finish(producer)]
            self.at_least(row + [(y[each], -n) for each, n in moves.items() if n], 0)
            return
        row = [(start, 1), (self.start[self.place[producer]], -1)]
        least = min((length[a] + n for (a, _), n in moves.items()), default=0)
        self.at_least(row, least)
        for (a, d), n in moves.items():
            if length[a] + n > least:
                self.at_least(row, length[a] + n, y[a, d])

    def pair_of(self, edge: int) -> tuple[int, int]:
        unit, problem = self.problem.op_unit, self.problem
        return int(unit[problem.edge_producer[edge]]), int(unit[problem.consumers[edge]])

    def _transport(self, u: int, v: int, open_to: Any) -> dict[tuple[int, int], Any]:
        """y[a, d]: unit u is on a and unit v on d."""
        model, from_, to = self.model, self.on[u], self.on[v]
        y: dict[tuple[int, int], Any] = {}
        for a, x in from_.items():
            for d, z in to.items():
                if len(from_) == 1 or len(to) == 1:
                    y[a, d] = z if len(from_) == 1 else x
                    if not open_to[a, d]:
                        model.add(y.pop((a, d)) == 0)
                elif open_to[a, d]:
                    y[a, d] = model.new_bool_var("")
        if len(from_) > 1 and len(to) > 1:
            for a, x in from_.items():
                model.add(sum(y[a, d] for d in to if (a, d) in y) == x)
            for d, z in to.items():
                model.add(sum(y[a, d] for a in from_ if (a, d) in y) == z)
        return y

    def _send(self) -> None:
        """Under contention: transfers as intervals on channels."""
        offsets, channels, names = self.problem.active_channels
        self.channel_of = {
            (a, d): channels[offsets[k] : offsets[k + 1]].tolist()
            for k, (a, d) in enumerate(np.ndindex(*(self.problem.device_count,) * 2))
        }
        self.busy: list[list[Any]] = [[] for _ in names]
        self.loads: list[list[tuple[Any, int]]] = [[] for _ in names]
        self.begin: dict[tuple[int, int], tuple[Any, dict[int, tuple[Any, int]]]] = {}
        for number, parcel in enumerate(self.frame.parcels):
            self._send_parcel(number, parcel)
        for channel, row in enumerate(self.busy):
            if len(row) < 2:
                continue
            self.model.add_no_overlap(row)
            around = self._down(self.frame.release[channel] + self.frame.channel_tail[channel])
            terms = [(self.end, 1), *((x, -n) for x, n in self.loads[channel])]
            self.at_least(terms, min(around, self.floor))

    def _send_parcel(self, number: int, parcel: Parcel) -> None:
        time = transfer_times(self.problem, parcel.tensor)
        sources = self.of(parcel.producer) if parcel.producer >= 0 else {parcel.source: None}
        found = (self._reader(parcel, edge) for edge in parcel.edges)
        readers = [each for each in found if each is not None]
        if len(readers) == 1 and not parcel.owed:
            self._send_edge(number, parcel, time, *readers[0])
            return
        targets = sorted({d for _, y in readers for _, d in y} | set(parcel.owed))
        for d in targets:
            if d in parcel.there:
                continue
            sent: dict[int, Any] = {}
            for a, x in sources.items():
                if a == d:
                    continue
                wanted = [y[a, d] for _, y in readers if (a, d) in y]
                owed = parcel.owed.get(d)
                if wanted or owed:
                    sent[a] = self._sent(a, x, wanted, owed)
            if sent:
                self._book(number, parcel, d, sent, readers, time)

    def _reader(self, parcel: Parcel, edge: int) -> tuple[int, dict[tuple[int, int], Any]] | None:
        """The op that reads the edge, and y of it; None if it is within a unit."""
        op = int(self.problem.consumers[edge])
        if parcel.producer >= 0:
            pair = self.pair_of(edge)
            return None if pair[0] == pair[1] else (op, self.route[pair])
        return op, {(parcel.source, d): x for d, x in self.of(op).items()}

    def _sent(self, a: int, x: Any, wanted: list[Any], owed: Owed | None) -> Any:
        """Whether the tensor is sent from `a` within the frame."""
        model = self.model
        if owed is None and len(wanted) == 1:
            return wanted[0]
        if owed is not None and not (owed.late is not None and owed.late_from == a):
            return x if x is not None else model.new_constant(1)
        sent = model.new_bool_var("")
        for y in wanted:
            model.add_implication(y, sent)
        if x is not None:
            model.add_implication(sent, x)
        if owed is None:  # not without a reader
            model.add_bool_or(*wanted, sent.negated())
        return sent

    def _ready(self, parcel: Parcel) -> tuple[list[tuple[Any, int]], int]:
        """Minus the time at which the tensor is there to be sent, as terms and a number."""
        if parcel.producer >= 0:
            return self.minus_finish(parcel.producer), 0
        return [], self._down(parcel.ready)

    def _begin(self, parcel: Parcel) -> Any:
        """When a transfer of the parcel begins: not before its tensor is there."""
        if parcel.producer < 0:
            return self.model.new_int_var(self._down(parcel.ready), self.limit, "")
        begin = self.model.new_int_var(0, self.limit, "")
        on = {(a, a): x for a, x in self.of(parcel.producer).items()}
        self._wait(begin, parcel.producer, on, None)
        return begin

    def _send_edge(
        self, number: int, parcel: Parcel, time: Floats, op: int, y: dict[tuple[int, int], Any]
    ) -> None:
        """To one reader: one start, wherever from and to; no conditions but y."""
        routes = {(a, d): x for (a, d), x in y.items() if a != d and d not in parcel.there}
        if not routes:
            return
        begin = self._begin(parcel)
        arrival = [(self.start[self.place[op]], 1), (begin, -1)]
        if self.is_linear and parcel.producer >= 0:
            moves = [(x, -self._down(time[a, d])) for (a, d), x in routes.items()]
            self.at_least(arrival + moves, 0)
        else:  # what is not sent is not to be waited for
            for (a, d), x in routes.items():
                self.at_least(arrival, self._down(time[a, d]), x)
        for (a, d), x in routes.items():
            length = self._down(time[a, d])
            self._occupy(a, d, begin, length, x)
            _, by_source = self.begin.setdefault((number, d), (begin, {}))
            by_source[a] = (x, length)

    def _book(
        self,
        number: int,
        parcel: Parcel,
        d: int,
        sent: dict[int, Any],
        readers: list[tuple[int, dict[tuple[int, int], Any]]],
        time: Floats,
    ) -> None:
        """The transfer to device d, and what waits for it."""
        begin = self._begin(parcel)
        lengths = {a: self._down(time[a, d]) for a in sent}
        self.begin[number, d] = begin, {a: (x, lengths[a]) for a, x in sent.items()}
        for a, x in sent.items():
            self._occupy(a, d, begin, lengths[a], x)
            for op, y in readers:
                if (a, d) in y:
                    row = [(self.start[self.place[op]], 1), (begin, -1)]
                    self.at_least(row, lengths[a], y[a, d])
            if d in parcel.owed:
                self._owe(parcel, a, x, parcel.owed[d], begin, lengths[a])

    def _owe(self, parcel: Parcel, a: int, x: Any, owed: Owed, begin: Any, length: int) -> None:
        row = [(self.end, 1), (begin, -1)]
        self.at_least(row, length + self._down(owed.tail), x)
        if owed.late is None or owed.late_from != a:
            return
        terms, ready = self._ready(parcel)
        row = [(self.end, 1), *terms]
        conditions = [x.negated()]
        if parcel.producer >= 0:
            conditions.append(self.of(parcel.producer)[a])
        self.model.add(self.sum_of(row) >= ready + self._down(owed.late)).only_enforce_if(
            *conditions
        )

    def _occupy(self, a: int, d: int, begin: Any, length: int, x: Any) -> None:
        over = self.channel_of[a, d]
        if not over:
            return
        interval = self.model.new_optional_fixed_size_interval_var(begin, length, x, "")
        release = max(self.frame.release[c] for c in over)
        tail = max(self.frame.channel_tail[c] for c in over)
        if release > 0:
            self.at_least([(begin, 1)], self._down(release), x)
        if tail > 0:
            self.at_least([(self.end, 1), (begin, -1)], length + self._down(tail), x)
        for channel in over:
            self.busy[channel].append(interval)
            self.loads[channel].append((x, length))

    # -- the whole graph alone -------------------------------------------------------------------

    def _keep_one_of_interchangeable(self) -> None:
        """Of interchangeable devices the next is used only after the one before it.

        "After" is in the order of units; `incumbent.first_incumbent` names devices so.
        """
        for group in self._interchangeable():
            for device, following in pairwise(group):
                earlier: list[Any] = []
                for unit in sorted(self.on):
                    on = self.on[unit]
                    if following in on:
                        self.model.add_bool_or(*earlier, on[following].negated())
                    if device in on:
                        earlier.append(on[device])

    def _interchangeable(self) -> list[list[int]]:
        """Groups of devices that can be swapped; their bytes cost the same."""
        groups = interchangeable_devices(self.problem)
        price = self.frame.price
        if price is None:
            return groups
        return [
            [device for device in group if price[device] == each]
            for group in groups
            for each in np.unique(price[group]).tolist()
        ]

    def _regions(self) -> None:
        """Work that must lie between two ops lies there on each device."""
        if self.problem.op_count > MOST_REGION_OPS:
            return
        for first, last, between in Precedence(self.problem).regions(LARGEST_REGION):
            for device in range(self.problem.device_count):
                row = [(self.end if last == END else self.start[self.place[last]], 1)]
                if first != START:
                    row += self.minus_finish(first)
                for op in between:
                    on = self.of(op)
                    if device in on:
                        row.append((on[device], -self.length[self.place[op]][device]))
                self.at_least(row, 0)

    # -- hints -----------------------------------------------------------------------------------

    def hint(self, device: Ints, start: Floats) -> None:
        """Begin from a schedule: `device[op]` and `start[op]` of the whole problem, in seconds."""
        if not self.is_open:
            return
        model: Any = self.model  # its `clear_hints` has no annotation
        model.clear_hints()
        for k, op in enumerate(self.frame.ops):
            self.model.add_hint(self.start[k], self._down(start[op]))
        units = self.problem.op_unit[self.frame.ops].tolist()
        present = dict(zip(units, device[self.frame.ops].tolist(), strict=True))
        for unit, here in present.items():
            if len(self.on[unit]) > 1:
                for d, x in self.on[unit].items():
                    self.model.add_hint(x, bool(here == d))

    # -- solving ---------------------------------------------------------------------------------

    def solve(self, effort: Effort, listener: Listener[Times] | None = None) -> Answer[Times]:
        """The best found by the end or `stop`, with a bound on the makespan in seconds.

        Where bytes have a price, on the makespan and what all of them cost. Infeasible: there is
        none within the horizon. A `listener` hears of both on the way. Ctrl-C as in
        `solvers.running`.
        """
        if not self.is_open:
            return Answer(None, 0.0, complete=True)
        solver = self.solver = self._solver(effort)
        limit = Budget(effort.seconds)
        found = None if listener is None else self._found(listener)
        proved = None if listener is None else self._proved(listener)
        bound = 0.0
        while limit.left > 0:
            answer = solve_model(solver, self.model, limit, self._read, found, proved)
            if not answer.infeasible:
                bound = max(bound, self._seconds(answer.bound))
            if answer.values is None or not self._forbid_overfull(answer.values):
                return replace(answer, bound=bound)
        return Answer(None, bound)

    def stop(self) -> None:
        """End a search that another thread is in."""
        if self.solver is not None:
            self.solver.stop_search()

    def _solver(self, effort: Effort) -> Any:
        solver = cp_solver(workers=effort.workers, seed=effort.seed, effort=effort.units)
        parameters = solver.parameters
        parameters.linearization_level = effort.level
        parameters.binary_search_num_conflicts = effort.halving
        if effort.is_short:  # and preparation not worth its time
            parameters.cp_model_probing_level = 0
            parameters.symmetry_level = 0
        return solver

    def _found(self, listener: Listener[Times]) -> Callable[[Times], None]:
        return lambda times: None if self._overfull(times) else listener.found(times)

    def _proved(self, listener: Listener[Times]) -> Callable[[float], None]:
        return lambda ticks: listener.proved(self._seconds(ticks))

    def _seconds(self, ticks: float) -> float:
        """A lower bound in seconds from one in ticks."""
        return ticks / self.scale * (1 - ROUNDING)

    def _read(self, solver: Any) -> Times:
        ops = self.frame.ops
        by_unit = {
            unit: next(d for d, x in on.items() if solver.boolean_value(x))
            for unit, on in self.on.items()
        }
        device = np.array([by_unit[int(self.problem.op_unit[op])] for op in ops], dtype=np.int32)
        start = np.array([solver.value(each) for each in self.start], dtype=np.float64)
        length = [self.length[k][int(d)] for k, d in enumerate(device)]
        begin = {}
        for key, (when, by_source) in self.begin.items():
            for x, duration in by_source.values():
                if solver.boolean_value(x):
                    at = solver.value(when)
                    begin[key] = at / self.scale, (at + duration) / self.scale
        return Times(device, start / self.scale, (start + length) / self.scale, begin)

    def _forbid_overfull(self, times: Times) -> bool:
        """Whether shares rounded down let too much on some device; then that is cut off."""
        overfull = self._overfull(times)
        for chosen in overfull:
            self.forbid(chosen)
        return bool(overfull)

    def forbid(self, chosen: Chosen) -> None:
        """Not all of these together."""
        self.model.add_bool_or(*(self.on[unit][device].negated() for unit, device in chosen))

    def _overfull(self, times: Times) -> list[Chosen]:
        """Of each device with more than it holds, the units there."""
        units, first = np.unique(self.problem.op_unit[self.frame.ops], return_index=True)
        memory = self.problem.unit_memory
        return overfull(units, times.device[first], memory, self.frame.capacity)
