"""The planner `diviml-milp` for a batch of inputs: exact, under contention too with CP-SAT."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from placewright.analysis.symmetry import Symmetry, check_use
from placewright.bounds.bound import Bound
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.formulations.batch.cp_model import CP_SAT, BatchModel
from placewright.formulations.batch.diviml_program import BatchProgram
from placewright.formulations.batch.instance import (
    BatchIncumbent,
    BatchInstance,
    chunk_size,
    chunks_lose_nothing,
    timed_batches,
)
from placewright.formulations.fit import Chosen
from placewright.formulations.formulation import Formulation, Listener, MathOpt, Programmed
from placewright.plan import Placement
from placewright.planners.base import Proposal, count_option
from placewright.planners.batch.starts import first_plans, in_chunks
from placewright.planners.exact import (
    DEFAULT_SECONDS,
    ExactRun,
    solver_option,
    too_many,
)
from placewright.planners.latency.exact.outline import MAX_BINARIES
from placewright.problem import Problem
from placewright.solvers.mathopt import SOLVERS
from placewright.solvers.running import Answer


class BatchMilp:
    """DiviML's program (§IV-A) for any sets of batch sizes, from the best simple plan on.

    Options: `solver` (highs, scip, gurobi, or cp-sat with `batch_cp` in place of the program);
    `nodes`, a limit on branch-and-bound nodes (cp-sat: on thousandths of its deterministic
    seconds), which unlike a time limit gives the same plan on every machine; `symmetry` (none,
    batch, task or time; §VI), the use by which equal devices and hosts are ordered. The time limit
    is the budget's, and `DEFAULT_SECONDS` if that has none. When time is up, or after Ctrl-C, the
    best plan so far is returned, with what is proved by then. The budget's listener hears of the
    first plan and, on the way, of those of cp-sat alone: HiGHS has no callbacks.

    Inputs are placed in chunks (see `batch_instance`). Where that may lose the optimum, nothing
    is claimed to be proved.
    """

    name: ClassVar[str] = "diviml-milp"
    objective: ClassVar[str] = "batch-throughput"

    def __init__(self, solver: str = "highs", nodes: str = "", symmetry: str = "none") -> None:
        self.solver = solver_option(self.name, solver, (*SOLVERS, CP_SAT))
        self.nodes = count_option(self.name, "nodes", nodes)
        self.use = check_use(self.name, symmetry)

    def supports(self, problem: Problem) -> str | None:
        advice = "coarsen the graph or take a heuristic planner"
        fault = None if self.solver == CP_SAT else refused(problem)
        return fault or too_many(binaries(problem), MAX_BINARIES, advice)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        limit = budget.or_at_most(DEFAULT_SECONDS)
        on_progress(f"{self.name}: a first plan", 0.0)
        first = first_plans(problem, seed, limit.part(limit.left / 4))
        incumbent = first[0] if first else None
        if incumbent and incumbent.placement is not budget.start:
            budget.listener.found(incumbent.placement)
        if incumbent and incumbent.value == 0.0:  # cannot be improved, nor scaled
            return Proposal(incumbent.placement)

        def build() -> Formulation[BatchIncumbent, Any]:
            on_progress(f"{self.name}: building the program", 0.05)
            instance = BatchInstance(problem, incumbent.value if incumbent else None)
            symmetry = Symmetry(problem, self.use)
            on_progress(f"{self.name}: {self.solver}, up to {limit.left:.0f} s more", 0.1)
            if self.solver == CP_SAT:
                effort = self.nodes / 1000 if self.nodes else math.inf
                return Constrained(BatchModel(instance, symmetry, limit), effort, seed)
            how = MathOpt(self.solver, self.nodes, seed)
            return Programmed(BatchProgram(instance, symmetry, limit), how)

        source = f"{self.name} ({self.solver})"
        run = ExactRun(problem, limit, source, partial(better, problem), incumbent)
        run.start = next((each for each in first if in_chunks(problem, each)), None)
        run.run(build)
        if run.infeasible:
            raise InfeasibleError(
                f"planner '{self.name}': no placement in chunks of {chunk_size(problem)} inputs "
                "fits the devices' memory and batch sizes; give the devices more of them"
            )
        if not chunks_lose_nothing(problem):
            run.bound = Bound(0.0, source)
        return run.proposal(self.name)


class Constrained:
    """CP-SAT's model as a formulation, with so much of its deterministic time."""

    def __init__(self, model: BatchModel, effort: float, seed: int) -> None:
        self.model, self.effort, self.seed = model, effort, seed

    def hint(self, start: BatchIncumbent) -> None:
        self.model.hint(start)

    def solve(self, limit: Budget, listener: Listener[Placement]) -> Answer[Placement]:
        answer = self.model.solve(limit.left, self.seed, self.effort, listener.found)
        return replace(answer, bound=answer.bound * self.model.instance.scale)

    def decode(self, solution: Placement) -> Placement:
        return solution

    def forbid(self, chosen: Chosen) -> None:
        self.model.forbid(chosen)


def refused(problem: Problem) -> str | None:
    """Why the programs for batches cannot take a problem, or None."""
    if problem.options.contention != "none":
        return (
            "DiviML's program knows no contention and this problem has "
            f"'{problem.options.contention}'; set contention none, or take diviml-milp with "
            "solver=cp-sat"
        )
    return None


def binaries(problem: Problem) -> int:
    """How many yes-or-no variables the program has, at most."""
    chunks = problem.options.batch // chunk_size(problem)
    n, d = problem.op_count, problem.device_count
    return problem.unit_count * d * (chunks + len(problem.batch_sizes)) + d * n * (n - 1) // 2


def better(
    problem: Problem, found: Placement, incumbent: BatchIncumbent | None = None
) -> BatchIncumbent:
    """The shortest of the incumbent, the solution in its own order, and that listed anew."""
    candidates = [timed_batches(problem, found), timed_batches(problem, Placement(found.device))]
    if incumbent:
        candidates.append(incumbent)
    return min(candidates, key=lambda each: each.value)
