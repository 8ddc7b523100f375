"""The integer program solved: the best split that it finds, or any split at all."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from placewright.budget import Budget
from placewright.errors import InfeasibleError
from placewright.formulations.formulation import MathOpt, Programmed, Valued
from placewright.formulations.invocation.program import InvocationProgram, binaries, value_of
from placewright.plan import Placement
from placewright.planners.exact import ExactRun
from placewright.problem import Problem
from placewright.solvers.mathopt import BOUND_TOLERANCE

ANY_GAP = 1e9  # relative: the first plan ends the search
ANY_SECONDS = 10.0
ANY_BINARIES = 5_000


class SplitRun(ExactRun[Valued]):
    """The best split so far; `is_stuck` if subgraphs of the last one wait for each other."""

    def __init__(self, problem: Problem, limit: Budget, source: str, best: Placement | None):
        known = Valued(best, value_of(problem, best)) if best else None
        super().__init__(problem, limit, source, self._better, known)
        self.is_stuck = False

    def _better(self, found: Placement, best: Valued | None) -> Valued | None:
        value = value_of(self.problem, found)
        self.is_stuck = math.isinf(value)
        return Valued(found, value) if value < (math.inf if best is None else best.value) else best

    def search(self, least: float, how: MathOpt) -> None:
        """Solve the program, with ranks where it needs them; `least` seconds are a lower bound."""
        horizon = self.value if self.best else _enough(self.problem)
        horizon *= 1 + BOUND_TOLERANCE  # what the solver's tolerances could cut off

        def build(ranked: bool) -> Programmed[Valued]:
            program = InvocationProgram(self.problem, horizon, least, self.limit, ranked=ranked)
            return Programmed(program, how)

        for ranked in (False, True):
            self.run(partial(build, ranked))
            if not self.is_stuck or self.interrupted:
                return


def any_split(problem: Problem, planner: str, budget: Budget) -> Placement | None:
    """A placement that can run; None if that would take long, InfeasibleError if there is none."""
    if binaries(problem) > ANY_BINARIES:
        return None
    run = SplitRun(problem, budget.part(ANY_SECONDS), planner, None)
    run.search(0.0, MathOpt("highs", gap=ANY_GAP))
    if run.infeasible:
        raise proved_infeasible(planner)
    return run.best.placement if run.best else None


def proved_infeasible(planner: str) -> InfeasibleError:
    return InfeasibleError(
        f"planner '{planner}': no split into so many contiguous subgraphs fits the devices' memory "
        "and pins, as is proved; give the devices more memory, pin fewer ops or allow more "
        "subgraphs"
    )


def _enough(problem: Problem) -> float:
    """Seconds that any plan ends within: every op at its slowest, every transfer by every slot."""
    slowest = np.where(np.isfinite(problem.op_time), problem.op_time, 0.0).max(axis=1).sum()
    invocations = 2 * problem.options.subgraphs
    transfers = problem.host_latency.sum() * problem.tensor_count + float(
        problem.host_seconds_per_byte.sum() * problem.tensor_bytes.sum()
    )
    return max(float(slowest) + invocations * float(transfers), 1e-12)
