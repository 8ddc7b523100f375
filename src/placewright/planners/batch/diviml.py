"""The planner `diviml-milp` for a batch of inputs: exact, without contention."""

from __future__ import annotations

import math
from typing import ClassVar

from placewright.analysis.symmetry import Symmetry, check_use
from placewright.budget import Budget, Progress, Reporter
from placewright.errors import InfeasibleError, OptionError
from placewright.formulations.batch.cp_model import CP_SAT, BatchModel
from placewright.formulations.batch.diviml_program import BatchProgram
from placewright.formulations.batch.instance import (
    BatchIncumbent,
    BatchInstance,
    chunk_size,
    chunks_lose_nothing,
    timed_batches,
)
from placewright.plan import Placement
from placewright.planners.base import Proposal
from placewright.planners.batch.starts import first_plans, in_chunks
from placewright.planners.latency.exact.outline import DEFAULT_SECONDS, MAX_BINARIES
from placewright.problem import Problem
from placewright.solvers.mathopt import (
    SOLVERS,
    OutOfTimeError,
    safe_bound,
    solve_program,
)


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
        check_solver(self.name, solver)
        if nodes and not (nodes.isdecimal() and int(nodes) > 0):
            raise OptionError(
                f"planner '{self.name}': nodes is '{nodes}'; give a whole number above 0"
            )
        self.solver = solver
        self.nodes = int(nodes) if nodes else None
        self.use = check_use(self.name, symmetry)

    def supports(self, problem: Problem) -> str | None:
        refusal = refused(problem)
        if refusal:
            return refusal
        count = binaries(problem)
        if count <= MAX_BINARIES:
            return None
        return (
            f"its program would have {count:,} yes-or-no variables, more than the "
            f"{MAX_BINARIES:,} that are of any use; coarsen the graph or take a heuristic planner"
        )

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        limit = budget.or_at_most(DEFAULT_SECONDS)
        on_progress(f"{self.name}: a first plan", 0.0)
        first = first_plans(problem, seed, limit.part(limit.left / 4))
        incumbent = first[0] if first else None
        if incumbent and incumbent.placement is not budget.start:
            budget.listener.found(incumbent.placement)
        if incumbent and incumbent.value == 0.0:  # cannot be improved, nor scaled
            return Proposal(incumbent.placement)
        bound = 0.0
        try:
            on_progress(f"{self.name}: building the program", 0.05)
            instance = BatchInstance(problem, incumbent.value if incumbent else None)
            if limit.left <= 0:
                raise OutOfTimeError
            start = next((each for each in first if in_chunks(problem, each)), None)
            known = incumbent.value if incumbent else math.inf
            on_progress(f"{self.name}: {self.solver}, up to {limit.left:.0f} s more", 0.1)
            search = self._by_cp_sat if self.solver == CP_SAT else self._by_program
            found, proved, infeasible = search(instance, start, limit, seed, known)
            if chunks_lose_nothing(problem):
                bound = proved * instance.scale
            if found is not None:
                incumbent = better(problem, incumbent, found)
            elif infeasible and incumbent is None:
                raise InfeasibleError(
                    f"planner '{self.name}': no placement in chunks of {instance.chunk} inputs "
                    "fits the devices' memory and batch sizes; give the devices more of them"
                )
        except OutOfTimeError:
            pass
        except KeyboardInterrupt:
            if incumbent is None:
                raise
        if incumbent is None:
            raise InfeasibleError(
                f"planner '{self.name}' found no plan in {limit.seconds:.0f} s; give it more time "
                "or try another planner"
            )
        source = f"{self.name} ({self.solver})"
        return Proposal(incumbent.placement, min(bound, incumbent.value), source)

    def _by_program(
        self,
        instance: BatchInstance,
        start: BatchIncumbent | None,
        limit: Budget,
        seed: int,
        known: float,
    ) -> Found:
        program = BatchProgram(instance, Symmetry(instance.problem, self.use), limit)
        hint = program.hint(start) if start else None
        while True:
            answer = solve_program(program.program, self.solver, limit.left, hint, self.nodes, seed)
            if answer.values is None:
                return None, safe_bound(answer), answer.infeasible
            found = program.decode(answer.values)
            if not program.forbid_overfull(found.device):
                return found, safe_bound(answer), False

    def _by_cp_sat(
        self,
        instance: BatchInstance,
        start: BatchIncumbent | None,
        limit: Budget,
        seed: int,
        known: float,
    ) -> Found:
        """Plans of `known` seconds or more are no news."""
        model = BatchModel(instance, Symmetry(instance.problem, self.use), limit)
        if start:
            model.hint(start)
        reporter = Reporter(limit, known)

        def tell(found: Placement) -> None:
            reporter.tell(timed_batches(instance.problem, found).value, lambda: found)

        effort = self.nodes / 1000 if self.nodes else math.inf
        answer = model.solve(limit.left, seed, effort, tell)
        infeasible = answer.complete and answer.placement is None
        return answer.placement, answer.bound, infeasible


Found = tuple[Placement | None, float, bool]
"""The placement found, the bound proved in scaled time, and whether there is none to be found."""


def check_solver(planner: str, solver: str) -> None:
    if solver not in (*SOLVERS, CP_SAT):
        raise OptionError(
            f"planner '{planner}': solver is '{solver}'; choose {', '.join((*SOLVERS, CP_SAT))}"
        )


def refused(problem: Problem) -> str | None:
    """Why the programs for batches cannot take a problem, or None."""
    if problem.options.contention != "none":
        return (
            "DiviML's program knows no contention and this problem has "
            f"'{problem.options.contention}'; set contention none"
        )
    return None


def binaries(problem: Problem) -> int:
    """How many yes-or-no variables the program has, at most."""
    chunks = problem.options.batch // chunk_size(problem)
    n, d = problem.op_count, problem.device_count
    return problem.unit_count * d * (chunks + len(problem.batch_sizes)) + d * n * (n - 1) // 2


def better(problem: Problem, incumbent: BatchIncumbent | None, found: Placement) -> BatchIncumbent:
    """The shortest of the incumbent, the solution in its own order, and that listed anew."""
    candidates = [timed_batches(problem, found), timed_batches(problem, Placement(found.device))]
    if incumbent:
        candidates.append(incumbent)
    return min(candidates, key=lambda each: each.value)
