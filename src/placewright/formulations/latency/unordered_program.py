"""Where ops are, in whatever order they run: Moirai's program without what keeps things apart.

Equations 4, 5 and 7 (arXiv 2023, §III-D) without 6 and 8: ops of a device and transfers of a
channel may overlap, so a solution is no schedule. What is left are paths with their transfers, and
memory; and between a fork and a join each device has to do all its work. The optimum is a lower
bound on the latency. Its binaries are the placement alone, so it is solved where the whole program
is not, and it sees how memory and the times of unequal devices go together, which bounds of paths
and of loads by themselves do not.
"""

from __future__ import annotations

import numpy as np

from placewright.analysis.precedence import END, LARGEST_REGION, START, Region
from placewright.budget import Budget
from placewright.formulations.latency.disjunction import Interval
from placewright.formulations.latency.incumbent import Incumbent
from placewright.formulations.latency.instance import Instance
from placewright.formulations.latency.program import LatencyProgram
from placewright.formulations.latency.transport import Transport
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.solvers.mathopt import HORIZON, Term


class UnorderedProgram(LatencyProgram):
    """Variables, in scaled time: makespan, x (placement), S (starts of ops), u.

    u is kept in transport form (see `transport`). z_q is the sum of u over k' ≠ k'', and C = S +
    duration is written out, so neither is a variable.
    """

    def __init__(self, instance: Instance, limit: Budget) -> None:
        super().__init__(instance, limit)
        self.makespan = self.program.variable(float(instance.earliest_finish.max()), HORIZON)
        self.ops = [self._op_interval(op) for op in range(self.problem.op_count)]
        self.transport = Transport(
            self.program, instance, self.placement, self.ops, self._sends_one_by_one
        )
        self._constraints()
        self.program.minimise(self.makespan)

    @property
    def _sends_one_by_one(self) -> bool:
        """Whether transfers are intervals of their own."""
        return False

    def _op_interval(self, op: int) -> Interval:
        instance = self.instance
        earliest, latest = float(instance.earliest_start[op]), float(instance.latest_finish[op])
        start = self.program.variable(earliest, float(instance.latest_start[op]))
        return Interval(start, self.placement.duration(op), earliest, latest)

    # -- constraints -----------------------------------------------------------------------------

    def _constraints(self) -> None:
        self.placement.add_rows()  # 4c and 5
        self._windows()
        self.transport.add_rows()  # 4a, 4b and 7
        for region in self.instance.precedence.regions(LARGEST_REGION):
            self._loads(region, self._between(region))

    def _windows(self) -> None:
        """The makespan, and what each op's device says about what comes before and after it."""
        instance, program = self.instance, self.program
        for op, interval in enumerate(self.ops):
            devices = self.placement.of(op).items()
            rest = instance.op_time[op] + instance.tail[op]
            program.row(
                [(self.makespan, 1.0), (interval.start, -1.0)]
                + [(x, -float(rest[device])) for device, x in devices],
                lower=0.0,
            )
            program.row(
                [(interval.start, 1.0)]
                + [(x, -float(instance.head[op, device])) for device, x in devices],
                lower=0.0,
            )

    def _between(self, region: Region) -> list[Term]:
        """Time from the end of its first op to the start of its last."""
        first, last, _ = region
        ends: list[Term] = [(self.makespan if last == END else self.ops[last].start, 1.0)]
        if first != START:
            start = self.ops[first]
            ends += [(start.start, -1.0), *((x, -time) for x, time in start.duration)]
        return ends

    def _loads(self, region: Region, between: list[Term]) -> None:
        """Between a fork and a join each device has to do all its work."""
        for device in range(self.problem.device_count):
            load = self.placement.load(region[2], device)
            if len(load) > 1:
                self.program.row([*between, *((x, -time) for x, time in load)], lower=0.0)

    # -- from and to schedules -------------------------------------------------------------------

    def hint(self, start: Incumbent) -> Floats:
        values = np.zeros(self.program.variable_count)
        device, schedule = start.placement.device, start.schedule
        self.placement.fill(values, device)
        scale = self.instance.scale
        values[self.makespan] = schedule.makespan / scale
        for op, interval in enumerate(self.ops):
            values[interval.start] = schedule.op_start[op] / scale
        self.transport.hint(values, start)
        return values

    def decode(self, values: Floats) -> Placement:
        return Placement(self.placement.device_of(values))
