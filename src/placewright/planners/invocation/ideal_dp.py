"""Dynamic programming over ideals, for invocation latency: the best row of subgraphs, and a bound.

After Tarnawski et al. 2020, §5.1.1, who do so for the largest load. `ideal_table` says what is
filled in, and why it bounds plans whose subgraphs are not all in a row.

Accelerators of one pace are first taken for one kind, which leaves few numbers of those in use;
prices of memory tell them apart where they differ in that (`ideal_floors`). What this table says is
still to be done after an ideal leaves out, in the exact one, all that cannot lead to a better plan
than the best known.

A backward pass that is the forward pass turned round is done along with it. Any other that begins
when the forward pass is over is planned by itself: the sum of both bounds holds.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from placewright.analysis.contracted import contracted_graph
from placewright.analysis.slots import placement_of, slot_of
from placewright.analysis.subproblem import Subproblem, subproblem
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Whole
from placewright.plan import Placement
from placewright.planners.base import Proposal, whole_number
from placewright.planners.invocation.base import InvocationPlanner, nothing_fits
from placewright.planners.invocation.ideal_search import MOST_IDEALS, SOURCE, Search, refusal
from placewright.planners.invocation.passes import begins_when_forward_is_over, turned_round
from placewright.problem import ROUNDING, Problem, once_per_problem
from placewright.simulate import evaluate

MOST_OPS = 5_000


class IdealDP(InvocationPlanner):
    """The best row of subgraphs, exactly, and a bound on all plans.

    Where the bound is below the row's latency, several subgraphs may work at the same time in a
    better plan: in the one that the bound stands for, where it can be made, or one of a search.

    Options: `ideals`, how many there may be (60,000).
    """

    name: ClassVar[str] = "ideal-dp"

    def __init__(self, ideals: str | int | None = None) -> None:
        self.most = MOST_IDEALS if ideals is None else whole_number(self.name, "ideals", ideals)

    def supports(self, problem: Problem) -> str | None:
        if problem.options.subgraphs > 1:
            return "it is for one subgraph per accelerator"
        if problem.is_cpu.any():
            return "it is for clusters without CPUs"
        if problem.op_count > MOST_OPS:
            return f"it is for graphs of at most {MOST_OPS:,} ops; coarsen it"
        parts = _passes(problem)
        if parts is None:
            return "it is for graphs whose backward pass begins when their forward pass is over"
        reasons = (refusal(part.problem, self.most) for part in parts)
        return next((reason for reason in reasons if reason), None)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        if reason := self.supports(problem):
            raise InfeasibleError(f"planner '{self.name}' cannot plan this: {reason}")
        parts = _passes(problem)
        assert parts is not None
        if len(parts) == 1:
            search = Search(problem, budget, on_progress)
            with contextlib.suppress(KeyboardInterrupt):
                search.run()
            best, value, proved = search.best, search.value, search.proved
        else:
            best, value, proved = _apart(problem, parts, budget, on_progress)
        if best is None:
            raise nothing_fits(self.name)
        return Proposal(best, min(proved, value), SOURCE)


@once_per_problem
def _passes(problem: Problem) -> list[Subproblem] | None:
    """What is planned by itself: the whole, or each pass; None if they cannot be told apart."""
    every = np.arange(problem.op_count, dtype=np.int32)
    if not problem.is_backward.any() or turned_round(problem, contracted_graph(problem)):
        return [Subproblem(problem, every, np.arange(len(problem.consumers), dtype=np.int32))]
    if not begins_when_forward_is_over(problem):
        return None
    parts = [subproblem(problem, every[problem.is_backward == way]) for way in (False, True)]
    return [
        replace(part, problem=replace(part.problem, is_backward=np.zeros(len(part.ops), np.bool_)))
        for part in parts
    ]


def _apart(
    problem: Problem, parts: list[Subproblem], budget: Budget, on_progress: Progress
) -> tuple[Placement | None, float, float]:
    """The best plan, its seconds, and those proved, from a search for each pass."""
    best, proved = budget.start, 0.0
    value = math.inf if best is None else evaluate(problem, best).value
    device = np.zeros(problem.op_count, dtype=np.int64)
    complete = True
    for number, part in enumerate(parts):
        start = None if budget.start is None else part.restricted(budget.start)
        seconds = budget.left / (len(parts) - number)
        search = Search(part.problem, Budget(seconds, start), on_progress)
        with contextlib.suppress(KeyboardInterrupt):
            search.run()
        proved += search.proved
        complete &= search.best is not None
        if search.best is not None:
            device[part.ops] = search.best.device
    found = placement_of(problem, slot_of(problem, device))
    if complete and _may_be(problem, device) and (took := evaluate(problem, found).value) < value:
        best, value = found, took
    return best, value, proved


def _may_be(problem: Problem, device: Whole) -> bool:
    """Whether the passes together fit, and units are not torn apart."""
    first = np.zeros(problem.unit_count, dtype=np.int64)
    first[problem.op_unit] = device
    if (first[problem.op_unit] != device).any():
        return False
    kept = np.bincount(device, problem.op_memory, problem.device_count)
    return bool((kept <= problem.device_memory * (1 + ROUNDING)).all())
