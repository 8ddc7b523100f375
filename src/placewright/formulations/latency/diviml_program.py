"""DiviML's mixed-integer program (§IV-A, equations 1–7) for the latency of one input."""

from __future__ import annotations

import numpy as np

from placewright.analysis.precedence import END, LARGEST_REGION, START
from placewright.budget import Budget
from placewright.formulations.latency.disjunction import Interval
from placewright.formulations.latency.incumbent import Incumbent
from placewright.formulations.latency.instance import Instance
from placewright.formulations.latency.peak import PeakRows
from placewright.formulations.latency.program import LatencyProgram
from placewright.formulations.latency.sequence import sequence_by_time
from placewright.formulations.latency.transport import Transport
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.solvers.mathopt import HORIZON, Term


class DivimlProgram(LatencyProgram):
    """Variables, in scaled time: C, x[op, device], s[op, device], and d, the order of two ops.

    With one input each batch holds one, so b_iu1 = x_iu1 (equation 5) and equation 4 is
    equation 1: `_used` and `_duration` are where batches of more inputs would come in. The
    paper's M is the least constant that the windows of two ops need. Ops on a path need no
    order (the paper's own remark, by the transitive closure).
    """

    def __init__(self, instance: Instance, limit: Budget) -> None:
        super().__init__(instance, limit)
        self._variables()
        self.placement.add_rows()  # 1 (and 4), 6
        self._latency()  # 2
        self._dependencies()  # 3
        self._no_overlap()  # 7
        self._implied()
        self._peak()
        self.program.minimise(self.latency)

    # -- variables -------------------------------------------------------------------------------

    def _variables(self) -> None:
        instance, program = self.instance, self.program
        self.latency = program.variable(float(instance.earliest_finish.max()), HORIZON)
        self.start = [self._starts(op) for op in range(self.problem.op_count)]
        self.before = {pair: program.binary() for pair in instance.rival_pairs}

    def _starts(self, op: int) -> dict[int, int]:
        """Device → the start there; under ``peak`` the same wherever it is, so that lives have it.

        A start on a device where the op is not may be taken to be the op's own start.
        """
        window = float(self.instance.earliest_start[op]), float(self.instance.latest_start[op])
        devices = list(self.placement.of(op))
        if self.problem.options.memory == "peak":
            return dict.fromkeys(devices, self.program.variable(*window))
        return {device: self.program.variable(*window) for device in devices}

    def _used(self, op: int, device: int) -> list[Term]:
        """1 if a batch of the op runs on the device: Σ_l b_iul."""
        return [(self.placement.of(op)[device], 1.0)]

    def _duration(self, op: int, device: int) -> list[Term]:
        """Σ_l b_iul t_iul."""
        return [(self.placement.of(op)[device], float(self.instance.op_time[op, device]))]

    # -- constraints -----------------------------------------------------------------------------

    def _latency(self) -> None:
        for op, starts in enumerate(self.start):
            for device, start in starts.items():
                row = [(self.latency, 1.0), (start, -1.0), *_minus(self._duration(op, device))]
                self.program.row(row, lower=0.0)

    def _implied(self) -> None:
        """Not in the paper: what every schedule obeys and the relaxation does not see."""
        instance = self.instance
        for op, starts in enumerate(self.start):
            on = self.placement.of(op).items()
            head = [(x, -float(instance.head[op, d])) for d, x in on]
            rest = instance.op_time[op] + instance.tail[op]
            after = [(x, -float(rest[d])) for d, x in on]
            for start in starts.values():
                self.program.row([(start, 1.0), *head], lower=0.0)
                self.program.row([(self.latency, 1.0), (start, -1.0), *after], lower=0.0)
        for first, last, between in instance.precedence.regions(LARGEST_REGION):
            for device in range(self.problem.device_count):
                ends = [(self.latency if last == END else self._start(last, device), 1.0)]
                if first != START:
                    ends.append((self._start(first, device), -1.0))
                    ends += _minus(self.placement.duration(first))
                load = self.placement.load(between, device)
                self.program.row([*ends, *_minus(load)], lower=0.0)

    def _start(self, op: int, device: int) -> int:
        starts = self.start[op]
        return starts.get(device, next(iter(starts.values())))

    def _dependencies(self) -> None:
        for edge in range(self.problem.edge_count):
            producer = int(self.problem.edge_producer[edge])
            consumer = int(self.problem.consumers[edge])
            time = self.instance.route_time(edge)
            for u, finish in self.start[producer].items():
                for v, start in self.start[consumer].items():
                    # Within a unit u ≠ v never happens, and no transfer with it.
                    move = float(time[u, v]) if np.isfinite(time[u, v]) else 0.0
                    both = self._used(producer, u) + self._used(consumer, v)
                    row = [(start, 1.0), (finish, -1.0), *_minus(self._duration(producer, u))]
                    row += [(x, -move * share) for x, share in both]
                    self.program.row(row, lower=-move)

    def _no_overlap(self) -> None:
        for (one, two), order in self.before.items():
            for device in self.start[one]:
                if device in self.start[two]:
                    self._apart(one, two, device, (order, 1.0))
                    self._apart(two, one, device, (order, -1.0))

    def _apart(self, one: int, two: int, device: int, order: Term) -> None:
        """s_one + duration ≤ s_two if both are on the device and the order says one before two.

        `order` is the variable with 1 if its value 1 says so, -1 if its value 0 does.
        """
        instance = self.instance
        loose = float(instance.latest_finish[one] - instance.earliest_start[two])
        if loose <= 0:
            return
        variable, sign = order
        switches = 2 + (1 if sign > 0 else 0)  # loose · (2 − x − x) + loose · (1 − d) or · d
        row = [(self.start[two][device], 1.0), (self.start[one][device], -1.0)]
        row += _minus(self._duration(one, device))
        row += [(x, -loose * n) for x, n in self._used(one, device) + self._used(two, device)]
        self.program.row([*row, (variable, -loose * sign)], lower=-loose * switches)

    def _peak(self) -> None:
        """Not in the paper: transfers as intervals, and what is alive, where the peak counts."""
        self.transport: Transport | None = None
        if self.problem.options.memory == "resident":
            return
        instance = self.instance
        ops = [
            Interval(
                self._start(op, -1),
                self.placement.duration(op),
                float(instance.earliest_start[op]),
                float(instance.latest_finish[op]),
            )
            for op in range(self.problem.op_count)
        ]
        self.transport = Transport(self.program, instance, self.placement, ops, are_sent=True)
        self.transport.add_rows()
        self.peak = PeakRows(self.placement, self.transport)

    # -- from and to schedules -------------------------------------------------------------------

    def hint(self, start: Incumbent) -> Floats:
        values = np.zeros(self.program.variable_count)
        scale, schedule = self.scale, start.schedule
        self.placement.fill(values, start.placement.device)
        values[self.latency] = schedule.makespan / scale
        for op, starts in enumerate(self.start):
            for variable in starts.values():
                values[variable] = schedule.op_start[op] / scale
        middle = schedule.op_start + schedule.op_finish
        for (one, two), order in self.before.items():
            values[order] = middle[one] <= middle[two]
        if self.transport:
            self.transport.hint(values, start)
            self.peak.hint(values)
        return values

    def decode(self, values: Floats) -> Placement:
        device = self.placement.device_of(values)
        if self.transport:
            return Placement(device, self.transport.sequence(values, device))
        start = np.array([values[each[int(device[op])]] for op, each in enumerate(self.start)])
        time = self.instance.op_time[np.arange(self.problem.op_count), device]
        finish = (start + time)[self.problem.edge_producer]
        return Placement(device, sequence_by_time(self.problem, start + time / 2, finish))


def _minus(terms: list[Term]) -> list[Term]:
    return [(variable, -coefficient) for variable, coefficient in terms]
