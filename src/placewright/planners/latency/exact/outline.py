"""What the planners of mixed-integer programs for one input share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from placewright import planners
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError, OptionError, ProvedInfeasibleError
from placewright.formulations.formulation import MathOpt, Programmed
from placewright.formulations.latency.incumbent import Incumbent, fitting, timed
from placewright.formulations.latency.instance import Instance
from placewright.formulations.latency.program import LatencyProgram
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, Proposal, count_option
from placewright.planners.exact import (
    DEFAULT_SECONDS,
    ExactRun,
    solver_option,
    too_many,
)
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.problem import Problem
from placewright.solvers.mathopt import SOLVERS

MAX_BINARIES = 500_000  # of more, HiGHS soon takes over ten gigabytes
MOST_OPS = 20_000  # counting binaries takes the square of it in bits


class MilpPlanner(LatencyPlanner, ABC):
    """Build the program, start it from an incumbent, return the best plan and what is proved.

    Options: `solver` (highs, scip, gurobi); `nodes`, a limit on branch-and-bound nodes, which
    unlike a time limit gives the same plan on every machine; `start`, a planner whose plan to
    start from if it beats HEFT's and the simple rules', given a quarter of the time. The time
    limit is the budget's, and `DEFAULT_SECONDS` if that has none. When time is up, or after
    Ctrl-C, the best plan so far is returned, with what is proved by then. The budget's listener
    hears of the first plan alone: of MathOpt's solvers HiGHS has no callbacks.
    """

    name: ClassVar[str]
    counts_peak: ClassVar[bool] = True

    def __init__(self, solver: str = "highs", nodes: str = "", start: str = "") -> None:
        self.solver = solver_option(self.name, solver, SOLVERS)
        self.nodes = count_option(self.name, "nodes", nodes)
        self.start = planners.create(start) if start else None
        if isinstance(self.start, MilpPlanner):
            raise OptionError(
                f"planner '{self.name}': start is '{start}', an exact planner; name a heuristic"
            )

    @abstractmethod
    def binaries(self, problem: Problem) -> int:
        """How many yes-or-no variables the program would have, at most."""

    @abstractmethod
    def formulate(self, instance: Instance, limit: Budget) -> LatencyProgram:
        """The program; OutOfTimeError if the limit passes first."""

    def supports(self, problem: Problem) -> str | None:
        if problem.op_count > MOST_OPS:
            return (
                f"it has {problem.op_count:,} ops, more than the {MOST_OPS:,} whose program can be "
                "solved; coarsen the graph or take a heuristic planner"
            )
        advice = "coarsen the graph or take a heuristic planner"
        return too_many(self.binaries(problem), MAX_BINARIES, advice)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        limit = budget.or_at_most(DEFAULT_SECONDS)
        on_progress(f"{self.name}: a first plan", 0.0)
        first = limit.part(limit.left / 4)
        incumbent, reason = first_incumbent(problem, seed, self.start, first)
        if incumbent and incumbent.value == 0.0:  # cannot be improved, nor scaled
            return Proposal(incumbent.placement)
        if incumbent:
            _tell(problem, limit, incumbent)

        def build() -> Programmed[Incumbent]:
            on_progress(f"{self.name}: building the program", 0.05)
            instance = Instance(problem, incumbent, limit)
            if not instance.allowed.any(axis=1).all():
                raise reason or fits_nowhere(self.name)
            program = self.formulate(instance, limit)
            on_progress(f"{self.name}: {self.solver}, up to {limit.left:.0f} s more", 0.1)
            return Programmed(program, MathOpt(self.solver, self.nodes, seed))

        run = exact_run(problem, limit, f"{self.name} ({self.solver})", incumbent)
        run.run(build)
        if run.infeasible:
            raise proved_infeasible(self.name, self.solver)
        return run.proposal(self.name, reason)


def exact_run(
    problem: Problem, limit: Budget, source: str, best: Incumbent | None
) -> ExactRun[Incumbent]:
    """It keeps the shortest of the best, a solution in its own order, and that listed anew.

    Under memory option ``peak`` a solution may not fit when it is timed: a solver rounds, and what
    begins at one instant may be timed in another order.
    """

    def judge(found: Placement, best: Incumbent | None) -> Incumbent | None:
        return fitting(problem, [found, Placement(found.device)], best)

    return ExactRun(problem, limit, source, judge, best, goes_on=True)


def fits_nowhere(planner: str) -> InfeasibleError:
    return InfeasibleError(
        f"planner '{planner}': some op fits no device; give the devices more memory"
    )


def proved_infeasible(planner: str, solver: str) -> ProvedInfeasibleError:
    return ProvedInfeasibleError(
        f"planner '{planner}': no placement fits the devices' memory, as {solver} has proved; "
        "give the devices more memory"
    )


def _tell(problem: Problem, limit: Budget, incumbent: Incumbent) -> None:
    """Of a first plan that is better than the start, before the solver, which tells nothing."""
    if limit.start is None or incumbent.value < timed(problem, limit.start).value:
        limit.listener.found(incumbent.placement)
