"""Devices for the places of a chain of ops, as a mixed-integer program: a lower bound on latency.

`stretches` pays for memory by prices, which are content with a part of a block on each device. Here
each place of its chain (see `ways`) is on one device, and what the places of a device keep is no
more than it has:

    T  ≥  Σ_p (what p takes where it is)  +  Σ_p (what it takes to come from place p − 1 to p),

the same terms as there, so the least of the right side is a bound. A place that follows on the
same device takes its time there, or less if what lies between the two is elsewhere. Places of one
unit are on one device. Ops that lie beside the chain take memory wherever it is left.

Transitions are a flow, ``y[p, d, e]`` of z[p − 1, d] and z[p, e], which makes the relaxation of the
program as tight as the shortest way along the chain is where memory is no matter.
"""

from __future__ import annotations

import numpy as np

from placewright.analysis.devices import kinds
from placewright.bounds.bound import Bound
from placewright.bounds.latency.ways import Ways
from placewright.budget import Budget
from placewright.graph import Floats
from placewright.problem import LONG_ROUNDING, Problem
from placewright.solvers.mathopt import (
    HORIZON,
    OutOfTimeError,
    Program,
    Term,
    safe_bound,
    solve_program,
)

SOURCE = "devices for the places of a chain of ops"
SOLVER = "scip"
MOST_FLOWS = 20_000  # places · pairs of devices
MOST_SECONDS, SHARE = 20.0, 0.8  # of the time that is left


def devices_along(problem: Problem, ways: Ways, budget: Budget, incumbent: float) -> Bound:
    """The bound of the module's text; 0 seconds where it would not be more than `stretches`.

    That is, where no device is too small for all, or for programs that are too large.
    """
    devices, places = problem.device_count, len(ways.kept)
    if not problem.may_overflow or not np.isfinite(incumbent) or places * devices**2 > MOST_FLOWS:
        return Bound(0.0, SOURCE)
    seconds = min(MOST_SECONDS, SHARE * budget.left)
    try:
        program = _Writer(problem, ways, incumbent / HORIZON, Budget(seconds)).program
    except OutOfTimeError:
        return Bound(0.0, SOURCE)
    answer = solve_program(program, SOLVER, seconds)
    value = min(safe_bound(answer) * incumbent / HORIZON, incumbent)
    return Bound(value * (1 - LONG_ROUNDING), SOURCE)


class _Writer:
    """Writes the program; times are in shares of the horizon, bytes in those of each device."""

    def __init__(self, problem: Problem, ways: Ways, scale: float, limit: Budget) -> None:
        self.problem, self.ways, self.scale = problem, ways, scale
        self.kind = kinds(problem)[1]
        self.program = Program(limit)
        self.everywhere = range(problem.device_count)
        self.cost: list[Term] = []
        self.at = [[self.program.binary() for _ in self.everywhere] for _ in ways.kept]
        for row in self.at:
            self.program.row([(each, 1.0) for each in row], 1.0, 1.0)
        self._ends()
        for place in range(1, len(self.at)):
            self._step(place)
        self._units()
        self._memory()
        makespan = self.program.variable(0.0, 2.0 * HORIZON)
        self.program.row([(makespan, 1.0), *((each, -cost) for each, cost in self.cost)], lower=0.0)
        self.program.minimise(makespan)

    def _charge(self, variable: int, seconds: float) -> None:
        """What a variable costs; infinite seconds rule it out."""
        if np.isfinite(seconds):
            self.cost.append((variable, float(seconds) / self.scale))
        else:
            self.program.row([(variable, 1.0)], 0.0, 0.0)

    def _ends(self) -> None:
        steps = self.ways.steps
        for first, last, kind in zip(self.at[0], self.at[-1], self.kind.tolist(), strict=True):
            self._charge(first, steps.before[kind] + self.ways.begin[0, kind])
            self._charge(last, steps.after[kind])

    def _step(self, place: int) -> None:
        """The flow from the place before, and what each way of it takes."""
        following, moving = self._seconds(place)
        flow = [[self.program.variable(0.0, 1.0) for _ in self.everywhere] for _ in self.everywhere]
        for one in self.everywhere:
            out = [(each, 1.0) for each in flow[one]]
            self.program.row([*out, (self.at[place - 1][one], -1.0)], 0.0, 0.0)
            into = [(flow[other][one], 1.0) for other in self.everywhere]
            self.program.row([*into, (self.at[place][one], -1.0)], 0.0, 0.0)
            for other in self.everywhere:
                source, target = self.kind[one], self.kind[other]
                seconds = following[target] if one == other else moving[source, target]
                self._charge(flow[one][other], seconds)

    def _seconds(self, place: int) -> tuple[Floats, Floats]:
        """What a place takes on the device of the one before, and on another: kind by kind."""
        ways, steps = self.ways, self.ways.steps
        begin = ways.begin[place]
        whole = steps.whole[place].copy()
        for low, seconds in ways.along.to(place):
            if low >= place - 1:
                whole += seconds
        return np.minimum(whole, steps.split[place] + begin), steps.away[place] + begin

    def _units(self) -> None:
        """Places that have ops of one unit are on one device."""
        last: dict[int, int] = {}
        for place, units in enumerate(self.ways.units):
            for unit in units:
                if unit in last:
                    for one, two in zip(self.at[last[unit]], self.at[place], strict=True):
                        self.program.row([(one, 1.0), (two, -1.0)], 0.0, 0.0)
                last[unit] = place

    def _memory(self) -> None:
        """What places keep is in the devices' memory, and what others keep is beside it."""
        memory = self.problem.device_memory
        limited = np.isfinite(memory) & (memory > 0)
        room: list[Term] = []
        for device in np.flatnonzero(limited).tolist():
            kind = self.kind[device]
            kept = [
                (row[device], float(own))
                for row, own in zip(self.at, self.ways.own[:, kind], strict=True)
            ]
            others = self.program.variable(0.0, 1.0)
            room.append((others, float(memory[device])))
            self.program.row([*kept, (others, 1.0)], upper=1.0 + LONG_ROUNDING)
        if limited.all():
            bytes_of = self.ways.own[:, self.kind[0]].sum() * memory[0]
            beside = max(float(self.problem.unit_memory.sum() - bytes_of), 0.0)
            largest = float(memory.max())
            terms = [(each, coefficient / largest) for each, coefficient in room]
            self.program.row(terms, lower=beside * (1 - LONG_ROUNDING) / largest)
