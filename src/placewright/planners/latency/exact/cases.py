"""A small problem solved exactly, in turns.

A problem is solved in *turns* of CP-SAT's own, repeatable time: the first are short, which is
enough for most modules, and later ones, with other settings, take ever longer. Who asks says how
many turns a problem may have, and above what value its plans are of no interest.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from placewright.analysis.subproblem import Subproblem
from placewright.bounds.latency.paths import lower_bound
from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError
from placewright.formulations.latency.cp_frame import whole
from placewright.formulations.latency.cp_model import Effort, Model, Times
from placewright.formulations.latency.incumbent import Incumbent, longest, timed
from placewright.plan import Placement
from placewright.planners.latency.exact.cp_sat import placement_of
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.problem import LONG_ROUNDING, Problem
from placewright.solvers.mathopt import OutOfTimeError
from placewright.solvers.running import Answer as Solution

PROVED = 1e-5
"""Relative difference of value and bound at which a module needs no more time."""


@dataclass(frozen=True)
class Turn:
    """A try at a problem: CP-SAT's level of linearisation, the form of its rows, its own time.

    About five seconds of a slow processor are a unit.
    """

    level: int
    is_linear: bool
    units: float


# Without a linear relaxation CP-SAT is by far the fastest where it ends at all; with one it proves
# more where it does not. Where it is slow another search often is not: hence short tries first.
TURNS = (
    Turn(0, False, 0.08),
    Turn(1, True, 0.2),
    Turn(0, False, 1.0),
    Turn(1, True, 2.0),
    Turn(0, True, 5.0),
    Turn(2, True, 10.0),
)
BOUND_TURN = 1
"""The first turn that says much of a problem it does not solve."""

QUICK_TURNS = 2
LATER_UNITS = 20.0
SECONDS_PER_UNIT = 5.0  # of the solvers that count no time of their own


def turn_of(number: int) -> Turn:
    """Without end: the last two kinds in turn, for twice the time each."""
    if number < len(TURNS):
        return TURNS[number]
    pair, kind = divmod(number - len(TURNS), 2)
    return replace(TURNS[len(TURNS) - 2 + kind], units=LATER_UNITS * 2.0**pair)


@dataclass(frozen=True)
class Method:
    """How a small problem is solved.

    `solver`; `seconds` and `nodes`, limits for one problem over all its turns (of CP-SAT a node is
    a thousandth of its own time); `seed`.
    """

    solver: str = "cp-sat"
    nodes: int | None = None
    seed: int = 0
    seconds: float = math.inf

    @property
    def may_price(self) -> bool:
        """Whether problems may be solved at prices of memory: by CP-SAT, for some time each."""
        return self.solver == "cp-sat" and self.nodes is None


@dataclass(frozen=True, eq=False)
class Answer:
    """What is known of a problem: the best placement with its sequence, or None; a bound.

    `value` of the placement, else infinite; `complete` if it is the optimum but for rounding;
    `turns` that are over without an end of the search, the `seconds` and `units` they took.
    """

    placement: Placement | None
    value: float
    lower_bound: float
    complete: bool = False
    turns: int = 0
    seconds: float = 0.0
    units: float = 0.0

    @property
    def is_proved(self) -> bool:
        return self.complete or self.value - self.lower_bound <= PROVED * self.value

    def is_done(self, cutoff: float) -> bool:
        """Whether it is proved, or that nothing is below the cutoff."""
        return self.is_proved or self.lower_bound >= cutoff

    def is_exhausted(self, method: Method) -> bool:
        """Whether it has had all that the method allows."""
        units = math.inf if method.nodes is None else method.nodes / 1000
        return self.seconds >= method.seconds or self.units >= units


NOTHING = Answer(None, math.inf, 0.0)


@dataclass(frozen=True, eq=False)
class Job:
    """A problem to be solved: plans of `cutoff` seconds or more are of no interest.

    None takes less than `low`, as is known from elsewhere. It has turns up to number `until`
    (None: until it is done), of them those from `first` on.
    """

    sub: Subproblem
    cutoff: float = math.inf
    until: int | None = None
    first: int = 0
    low: float = 0.0


# -- one problem -----------------------------------------------------------------------------------


class Case:
    """A job and what is known of its problem; `stop` from another thread ends its search."""

    def __init__(self, job: Job, method: Method, known: Answer) -> None:
        self.job, self.problem = job, job.sub.problem
        self.method, self.known = method, known
        self.model: Model | None = None
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True
        if self.model is not None:
            self.model.stop()

    def solve(self, limit: Budget) -> Answer:
        """What is known after the job's turns, or when time is up.

        Without a placement where none was found; the bound is never above the optimum.
        """
        job = self.job
        if self.known is NOTHING:
            self._begin(limit)
        if job.low > self.known.lower_bound:
            self.known = replace(self.known, lower_bound=min(job.low, self.known.value))
        if self.known.turns < job.first:
            self.known = replace(self.known, turns=job.first)
        while not (
            self.stopped
            or limit.left <= 0
            or self.known.is_done(job.cutoff)
            or self.known.is_exhausted(self.method)
            or (job.until is not None and self.known.turns >= job.until)
        ):
            self._turn(limit)
        return self.known

    def _begin(self, limit: Budget) -> None:
        """What simple rules find and a simple argument says."""
        bound = lower_bound(self.problem).value
        if not math.isfinite(bound):
            self.known = Answer(None, math.inf, math.inf)
            return
        # Not the limit itself: its start, if it has one, is a plan of the whole.
        best, _ = first_incumbent(self.problem, self.method.seed, None, Budget(limit.left))
        self.known = Answer(None, math.inf, bound)
        if best is not None:
            self._found(best)

    def _turn(self, limit: Budget) -> None:
        started = time.monotonic()
        known = self.known
        if self.method.solver == "cp-sat":
            units = self._by_constraints(limit)
        else:
            units = self._by_program(limit)
        self.known = replace(
            self.known,
            turns=known.turns if self.known.is_done(self.job.cutoff) else known.turns + 1,
            seconds=known.seconds + time.monotonic() - started,
            units=known.units + units,
        )

    def _by_constraints(self, limit: Budget) -> float:
        """CP-SAT's own time that it took."""
        known, turn = self.known, turn_of(self.known.turns)
        units = turn.units
        if self.method.nodes is not None:
            units = min(units, self.method.nodes / 1000 - known.units)
        # A little above the cutoff, so that rounding excludes nothing.
        most = min(self.job.cutoff, longest(self.problem)) * (1 + LONG_ROUNDING)
        horizon = min(most, known.value)
        frame = replace(whole(self.problem), floor=known.lower_bound)
        model = self.model = Model(frame, horizon, is_linear=turn.is_linear)
        if known.placement is not None:
            schedule = timed(self.problem, known.placement).schedule
            model.hint(known.placement.device, schedule.op_start)
        effort = Effort(
            min(limit.left, self.method.seconds), units, level=turn.level,
            seed=self.method.seed + known.turns,
        )  # fmt: skip
        solution = Solution(None, 0.0, complete=False) if self.stopped else model.solve(effort)
        self._learn(model, solution, horizon)
        return units

    def _learn(self, model: Model, solution: Solution[Times], horizon: float) -> None:
        bound = solution.bound
        if solution.values is not None:
            placement = placement_of(model.frame, solution.values)
            self._found(shortest(self.problem, None, placement))
        elif solution.infeasible:  # nothing is below the horizon
            bound = horizon
        bound = min(max(bound, self.known.lower_bound), self.known.value)
        complete = solution.complete and solution.values is not None
        self.known = replace(self.known, lower_bound=bound, complete=complete)

    def _found(self, found: Incumbent) -> None:
        if found.value < self.known.value and not overfull(self.problem, found.placement):
            bound = min(self.known.lower_bound, found.value)
            self.known = replace(
                self.known, placement=found.placement, value=found.value, lower_bound=bound
            )

    def _by_program(self, limit: Budget) -> float:
        from placewright.planners.latency.exact.diviml import DivimlMilp
        from placewright.planners.latency.exact.moirai import MoiraiMilp

        # DiviML's program where it holds, it is the smaller one; else Moirai's.
        planner = DivimlMilp if self.problem.options.contention == "none" else MoiraiMilp
        units = turn_of(self.known.turns).units
        seconds = min(limit.left, self.method.seconds)
        if self.method.nodes is not None:
            units = math.inf
        seconds = min(seconds, units * SECONDS_PER_UNIT)
        exact = planner(solver=self.method.solver, nodes=str(self.method.nodes or ""))
        try:
            proposal = exact.plan(self.problem, Budget(seconds), self.method.seed, no_progress)
        except (InfeasibleError, OutOfTimeError):
            return units
        self._found(timed(self.problem, proposal.placement))
        bound = min(max(proposal.lower_bound, self.known.lower_bound), self.known.value)
        self.known = replace(self.known, lower_bound=bound)
        return units


def shortest(problem: Problem, incumbent: Incumbent | None, found: Placement) -> Incumbent:
    """The shortest of the incumbent, a placement in its own order, and that listed anew."""
    candidates = [timed(problem, found), timed(problem, Placement(found.device))]
    return min([incumbent, *candidates] if incumbent else candidates, key=lambda each: each.value)


def overfull(problem: Problem, placement: Placement) -> bool:
    """Whether some device has too much."""
    used = np.bincount(placement.device, problem.op_memory, problem.device_count)
    return bool((used > problem.device_memory * (1 + LONG_ROUNDING)).any())


# -- many ------------------------------------------------------------------------------------------


def later(one: int | None, two: int | None) -> int | None:
    return None if one is None or two is None else max(one, two)
