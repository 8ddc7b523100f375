"""The outline of every exact planner: build, hint, solve, decode, forbid, and keep the best."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

from placewright.bounds.bound import Bound
from placewright.budget import Budget
from placewright.errors import InfeasibleError, OptionError
from placewright.formulations.fit import Chosen, overfull
from placewright.formulations.formulation import Formulation, Timed
from placewright.graph import Ints
from placewright.plan import OPTIMAL_GAP, Placement, gap_of
from placewright.planners.base import Proposal
from placewright.problem import Problem
from placewright.solvers.bound_callback import BoundReporter
from placewright.solvers.mathopt import OutOfTimeError
from placewright.solvers.running import Answer

DEFAULT_SECONDS = 600.0


Plan = TypeVar("Plan", bound=Timed)
Solution = TypeVar("Solution")


class ExactRun(Generic[Plan]):
    """The best plan so far and what is proved, while formulations of a problem are solved.

    `judge` evaluates a placement: it gives the better of that and the best so far, which is None
    where neither can be used. When time is up, or after Ctrl-C, the best so far is kept, with what
    is proved by then. The budget's listener hears of both on the way, if the solver tells.

    With `goes_on`, where a formulation's optimum cannot be used, that placement is forbidden and
    the formulation solved again; what it proves counts no more then.
    """

    def __init__(
        self,
        problem: Problem,
        limit: Budget,
        source: str,
        judge: Callable[[Placement, Plan | None], Plan | None],
        best: Plan | None = None,
        *,
        goes_on: bool = False,
    ) -> None:
        self.problem, self.limit, self.source, self.judge = problem, limit, source, judge
        self.best, self.goes_on = best, goes_on
        self.narrowed = False  # whether placements were forbidden that may be of use
        self.start: Plan | None = None  # to begin from, if not the best
        self.bound = Bound(0.0, "")
        self.infeasible = self.interrupted = False
        self.untimed = False  # whether a solver was done, and its best does not fit
        self.reporter = BoundReporter(limit, source, self.value)

    @property
    def value(self) -> float:
        return math.inf if self.best is None else self.best.value

    def run(self, build: Callable[[], Formulation[Plan, Solution]]) -> bool:
        """Build a formulation and solve it; whether nothing better is left within its horizon."""
        complete = False
        try:
            complete = self._solve(build())
        except OutOfTimeError:
            pass
        except KeyboardInterrupt:
            self.interrupted = True
            if self.best is None:
                raise
        return complete

    def _solve(self, formulation: Formulation[Plan, Solution]) -> bool:
        start = self.best if self.start is None else self.start
        if start is not None:
            formulation.hint(start)
        listener = _Listener(self, formulation)
        try:
            while True:
                answer = formulation.solve(self.limit, listener)
                if answer.values is None:
                    self.infeasible = answer.infeasible and not (self.best or self.narrowed)
                    self._conclude(answer.bound)
                    return answer.complete or self.narrowed
                found = formulation.decode(answer.values)
                useless = crowded(self.problem, found) or self._take(found, answer)
                if not useless:
                    return answer.complete or self.narrowed
                for chosen in useless:
                    formulation.forbid(chosen)
        except KeyboardInterrupt:
            # Only then: which of the solutions on the way are seen is chance.
            self.best = listener.best
            raise

    def _take(self, found: Placement, answer: Answer[Solution]) -> list[Chosen]:
        """Keep the best; what to forbid if that is an optimum of no use and others are left."""
        self.best = self.judge(found, self.best)
        self.untimed = answer.complete and self.best is None
        self._conclude(answer.bound)
        is_proved = self.best is not None and gap_of(self.value, self.bound.value) <= OPTIMAL_GAP
        if not (answer.complete and self.goes_on) or is_proved:
            return []
        if self.judge(found, None) is not None:
            return []
        self.narrowed = True
        return [placed_units(self.problem, found)]

    def _conclude(self, bound: float) -> None:
        """Proved by the formulation, if that still has all placements."""
        if not self.narrowed:
            self.prove(bound)

    def prove(self, bound: float, source: str = "") -> None:
        """Seconds that no plan can beat, by the formulation or another `source`.

        Infinite: none beats the best.
        """
        bound = min(bound, self.value)
        if math.isfinite(bound) and (bound > self.bound.value or not (source or self.bound.source)):
            self.bound = Bound(bound, source or self.source)

    def tell(self, best: Plan) -> None:
        """The budget's listener, of a better plan."""
        self.reporter.tell(best.value, lambda: best.placement)

    def tell_bound(self, bound: float) -> None:
        self.reporter.prove(bound)

    def proposal(self, planner: str, reason: InfeasibleError | None = None) -> Proposal:
        """The best plan; InfeasibleError, with a `reason` known before, if there is none."""
        if self.best is None and self.untimed:
            raise InfeasibleError(
                f"planner '{planner}' found no plan: what its program has for the best does not "
                "fit when it is timed, for a solver rounds; give the devices a little more memory "
                "or try another planner"
            )
        if self.best is None:
            raise reason or InfeasibleError(
                f"planner '{planner}' found no plan in {self.limit.seconds:.0f} s; give it more "
                "time or try another planner"
            )
        bound = min(self.bound.value, self.best.value)
        return Proposal(self.best.placement, bound, self.bound.source)


class _Listener(Generic[Plan, Solution]):
    """Passes on to the budget's listener what is better than all before."""

    def __init__(self, run: ExactRun[Plan], formulation: Formulation[Plan, Solution]) -> None:
        self.run, self.formulation, self.best = run, formulation, run.best

    def found(self, solution: Solution) -> None:
        placement = self.formulation.decode(solution)
        if crowded(self.run.problem, placement):
            return
        self.best = self.run.judge(placement, self.best)
        if self.best is not None:
            self.run.tell(self.best)

    def proved(self, lower_bound: float) -> None:
        if self.run.narrowed:
            return
        self.run.prove(lower_bound)
        value = math.inf if self.best is None else self.best.value
        self.run.tell_bound(min(lower_bound, value))


def placed_units(problem: Problem, placement: Placement) -> Chosen:
    """Every unit with its device, or devices."""
    units, devices = _by_op_and_input(problem, placement)
    return sorted(set(zip(units.tolist(), devices.tolist(), strict=True)))


def crowded(problem: Problem, placement: Placement) -> list[Chosen]:
    """Of each device on which units keep more than there is room for, those units."""
    units, devices = _by_op_and_input(problem, placement)
    return overfull(units, devices, problem.unit_memory, problem.device_memory)


def _by_op_and_input(problem: Problem, placement: Placement) -> tuple[Ints, Ints]:
    """The unit and the device of each op, or of each op and input."""
    device = placement.device.reshape(problem.op_count, -1)
    return np.repeat(problem.op_unit, device.shape[1]), device.ravel()


def too_many(count: int, most: int, advice: str, what: str = "program") -> str | None:
    """Why a problem with so many yes-or-no variables is refused, or None."""
    if count <= most:
        return None
    return (
        f"its {what} would have {count:,} yes-or-no variables, more than the {most:,} "
        f"that are of any use; {advice}"
    )


def solver_option(planner: str, solver: str, solvers: tuple[str, ...]) -> str:
    """A planner's option `solver`; OptionError if it is none of those."""
    if solver not in solvers:
        raise OptionError(f"planner '{planner}': solver is '{solver}'; choose {', '.join(solvers)}")
    return solver
