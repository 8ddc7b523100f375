"""The outline that every exact planner follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from placewright import planners
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError, OptionError, ProvedInfeasibleError
from placewright.formulations.latency.formulation import Formulation
from placewright.formulations.latency.incumbent import Incumbent, fitting, timed
from placewright.formulations.latency.instance import Instance
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, Proposal
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.problem import Problem
from placewright.solvers.mathopt import (
    SOLVERS,
    Answer,
    OutOfTimeError,
    safe_bound,
    solve_program,
)

DEFAULT_SECONDS = 600.0
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
        if solver not in SOLVERS:
            raise OptionError(
                f"planner '{self.name}': solver is '{solver}'; choose {', '.join(SOLVERS)}"
            )
        if nodes and not (nodes.isdecimal() and int(nodes) > 0):
            raise OptionError(
                f"planner '{self.name}': nodes is '{nodes}'; give a whole number above 0"
            )
        self.solver = solver
        self.nodes = int(nodes) if nodes else None
        self.start = planners.create(start) if start else None
        if isinstance(self.start, MilpPlanner):
            raise OptionError(
                f"planner '{self.name}': start is '{start}', an exact planner; name a heuristic"
            )

    @abstractmethod
    def binaries(self, problem: Problem) -> int:
        """How many yes-or-no variables the program would have, at most."""

    @abstractmethod
    def formulate(self, instance: Instance, limit: Budget) -> Formulation:
        """The program; OutOfTimeError if the limit passes first."""

    def supports(self, problem: Problem) -> str | None:
        if problem.op_count > MOST_OPS:
            return (
                f"it has {problem.op_count:,} ops, more than the {MOST_OPS:,} whose program can be "
                "solved; coarsen the graph or take a heuristic planner"
            )
        count = self.binaries(problem)
        if count <= MAX_BINARIES:
            return None
        return (
            f"its program would have {count:,} yes-or-no variables, more than the "
            f"{MAX_BINARIES:,} that are of any use; coarsen the graph or take a heuristic planner"
        )

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        limit = budget.or_at_most(DEFAULT_SECONDS)
        on_progress(f"{self.name}: a first plan", 0.0)
        first = limit.part(limit.left / 4)
        incumbent, reason = first_incumbent(problem, seed, self.start, first)
        if incumbent and incumbent.value == 0.0:  # cannot be improved, nor scaled
            return Proposal(incumbent.placement)
        if incumbent:
            _tell(problem, limit, incumbent)
        bound = 0.0
        try:
            on_progress(f"{self.name}: building the program", 0.05)
            instance = Instance(problem, incumbent, limit)
            if not instance.allowed.any(axis=1).all():
                raise reason or InfeasibleError(
                    f"planner '{self.name}': some op fits no device; give the devices more memory"
                )
            formulation = self.formulate(instance, limit)
            on_progress(f"{self.name}: {self.solver}, up to {limit.left:.0f} s more", 0.1)
            incumbent, answer = self._search(formulation, incumbent, limit, seed)
            bound = safe_bound(answer) * instance.scale
            if answer.infeasible and incumbent is None:
                raise ProvedInfeasibleError(
                    f"planner '{self.name}': no placement fits the devices' memory, as "
                    f"{self.solver} has proved; give the devices more memory"
                )
        except OutOfTimeError:
            pass
        except KeyboardInterrupt:
            if incumbent is None:
                raise
        if incumbent is None:
            raise reason or InfeasibleError(
                f"planner '{self.name}' found no plan in {limit.seconds:.0f} s; give it more time "
                "or try another planner"
            )
        source = f"{self.name} ({self.solver})"
        return Proposal(incumbent.placement, min(bound, incumbent.value), source)

    def _search(
        self, formulation: Formulation, incumbent: Incumbent | None, limit: Budget, seed: int
    ) -> tuple[Incumbent | None, Answer]:
        hint = formulation.hint(incumbent) if incumbent else None
        while True:
            answer = solve_program(
                formulation.program, self.solver, limit.left, hint, self.nodes, seed
            )
            if answer.values is None:
                return incumbent, answer
            found = formulation.decode(answer.values)
            if not formulation.placement.forbid_overfull(found.device):
                return _better(formulation.problem, incumbent, found), answer


def _tell(problem: Problem, limit: Budget, incumbent: Incumbent) -> None:
    """Of a first plan that is better than the start, before the solver, which tells nothing."""
    if limit.start is None or incumbent.value < timed(problem, limit.start).value:
        limit.listener.found(incumbent.placement)


def _better(problem: Problem, best: Incumbent | None, found: Placement) -> Incumbent | None:
    """The shortest of the best so far, the solution in its own order, and that listed anew."""
    return fitting(problem, [found, Placement(found.device)], best)
