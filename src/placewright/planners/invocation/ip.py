"""The paper's integer program as a planner: exact, any time."""

from __future__ import annotations

import math
from typing import ClassVar

from placewright.bounds.bound import Bound
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.formulations.formulation import MathOpt
from placewright.formulations.invocation.program import binaries, value_of
from placewright.plan import Placement
from placewright.planners.base import Proposal
from placewright.planners.exact import DEFAULT_SECONDS, solver_option, too_many
from placewright.planners.invocation.base import InvocationPlanner
from placewright.planners.invocation.exact import SplitRun, proved_infeasible
from placewright.planners.invocation.search import (
    MOST_CUTS,
    PROVED,
    Annealing,
    count_option,
    searched_bound,
)
from placewright.problem import Problem
from placewright.solvers.mathopt import SOLVERS

MAX_BINARIES = 200_000
SHARE_OF_START = 0.25


class InvocationIp(InvocationPlanner):
    """Tarnawski et al. 2020, Fig. 3, and Fig. 4 where accelerators have several subgraphs.

    The search starts from the budget's start or else a plan of `annealing`, which a quarter of the
    time goes to, and knows its latency and the bound of `bounds.invocation.path`: where the two
    meet there is nothing to solve. When time is up, or after Ctrl-C, the best plan so far is
    returned, with what is proved by then. The budget's listener hears nothing of the solver's.

    Options: `solver` (highs, scip, gurobi); `nodes`: limit on branch-and-bound nodes, which a
    run repeats exactly; `start`: evaluations of annealing, or ``none`` to start from nothing
    known (the paper's own setting); `cuts` of the bound (5,000; 0 for no bound beside a start
    that is given, as where somebody else searches it).
    """

    name: ClassVar[str] = "invocation-ip"

    def __init__(
        self,
        solver: str = "highs",
        nodes: str | int = "",
        start: str | int = "",
        cuts: str | int = MOST_CUTS,
    ) -> None:
        self.solver = solver_option(self.name, solver, SOLVERS)
        self.nodes = count_option(self.name, "nodes", nodes) if nodes else None
        self.cold = start == "none"
        wanted = None if self.cold or not start else count_option(self.name, "start", start)
        self.start = Annealing(iterations=wanted)
        self.cuts = count_option(self.name, "cuts", cuts, least=0)

    def supports(self, problem: Problem) -> str | None:
        advice = "coarsen the graph or take planner 'annealing'"
        return too_many(binaries(problem), MAX_BINARIES, advice)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        limit = budget.or_at_most(DEFAULT_SECONDS)
        best, bound, reason = self._start(problem, limit, budget, seed, on_progress)
        run = SplitRun(problem, limit, f"{self.name} ({self.solver})", best)
        run.bound = bound
        if best is None or not (bound.value >= run.value * (1 - PROVED) or run.value == 0.0):
            on_progress(f"{self.name}: {self.solver}, up to {limit.left:.0f} s more", 0.3)
            run.search(bound.value, MathOpt(self.solver, self.nodes, seed))
        if run.infeasible:
            raise proved_infeasible(self.name)
        return run.proposal(self.name, reason)

    def _start(
        self, problem: Problem, limit: Budget, budget: Budget, seed: int, on_progress: Progress
    ) -> tuple[Placement | None, Bound, InfeasibleError | None]:
        """A plan and a bound to start from, or why there is no plan yet."""
        timed = math.isfinite(budget.seconds)
        share = budget.part(SHARE_OF_START * limit.left if timed else math.inf)
        if budget.start is not None and math.isfinite(value := value_of(problem, budget.start)):
            return budget.start, self._bound(problem, limit, value), None
        if self.cold:
            return None, self._bound(problem, share), None
        try:
            found = self.start.plan(problem, share, seed, on_progress)
        except InfeasibleError as error:
            return None, self._bound(problem, share), error
        bound = Bound(found.lower_bound, found.bound_source)
        if math.isinf(value_of(problem, found.placement)):
            return None, bound, None
        return found.placement, bound, None

    def _bound(self, problem: Problem, budget: Budget, value: float = math.inf) -> Bound:
        return searched_bound(problem, budget, value, self.cuts) if self.cuts else Bound(0.0, "")
