"""Dynamic programming over ideals, for invocation latency: the best row of subgraphs, and a bound.

After Tarnawski et al. 2020, §5.1.1, who do so for the largest load. `ideals.table` says what is
filled in, and why it bounds plans whose subgraphs are not all in a row.

Accelerators of one pace are first taken for one kind, which leaves few numbers of those in use;
prices of memory tell them apart where they differ in that (`ideals.floors`). What this table says
is still to be done after an ideal leaves out, in the exact one, all that cannot lead to a better
plan than the best known.

A backward pass that is the forward pass turned round is done along with it, any other by itself
(`ideals.passes`): the sum of both bounds holds.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from placewright.analysis.slots import placement_of, slot_of
from placewright.analysis.subproblem import Subproblem
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Wide
from placewright.kernels.invocation.timing import latency
from placewright.planners.base import Proposal, whole_number
from placewright.planners.invocation.base import InvocationPlanner, nothing_fits
from placewright.planners.invocation.ideals.passes import completed, parts_of, whole_parts_of
from placewright.planners.invocation.ideals.search import (
    MOST_IDEALS,
    SOURCE,
    Search,
    may_be,
    ranks,
    refusal,
)
from placewright.problem import Problem
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
        if problem.is_cpu.all():
            return "it is for accelerators, and there are CPUs alone; take annealing"
        if problem.op_count > MOST_OPS:
            return f"it is for graphs of at most {MOST_OPS:,} ops; coarsen it"
        reasons = (refusal(part.problem, self.most) for part in parts_of(problem))
        return next((reason for reason in reasons if reason), None)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        if reason := self.supports(problem):
            raise InfeasibleError(f"planner '{self.name}' cannot plan this: {reason}")
        run = _Run(problem, budget, on_progress)
        run.plan(parts_of(problem))
        if run.best is None and not run.interrupted:  # perhaps what was left out has no room
            whole = whole_parts_of(problem)
            if not any(refusal(part.problem, self.most) for part in whole):
                run.plan(whole)
        if run.best is None:
            raise nothing_fits(self.name)
        return Proposal(run.best, min(run.proved, run.value), SOURCE)


class _Run:
    """The best plan of the whole so far, `value` seconds, and what is proved."""

    def __init__(self, problem: Problem, budget: Budget, on_progress: Progress) -> None:
        self.problem, self.budget, self.on_progress = problem, budget, on_progress
        self.best = budget.start
        self.value = math.inf if self.best is None else evaluate(problem, self.best).value
        self.proved = 0.0
        self.interrupted = False

    def plan(self, parts: list[Subproblem]) -> None:
        """Each part by itself, and then the others with them."""
        problem = self.problem
        device = np.full(problem.op_count, -1, dtype=np.int64)
        rank = np.zeros((2, problem.device_count), dtype=np.int64)
        searches = [self._search(part, len(parts) - each) for each, part in enumerate(parts)]
        self.proved = max(self.proved, sum(search.proved for search in searches))
        for part, search in zip(parts, searches, strict=True):
            if search.best is None:
                return
            device[part.ops] = search.best.device
            passes = problem.is_backward[part.ops].astype(np.int64)
            rank[passes] = ranks(part.problem, search.best.device)
        slots = _whole(problem, device, rank)
        took = math.inf if slots is None else latency(problem, slots)
        if slots is not None and took < self.value:
            self.best, self.value = placement_of(problem, slots), took

    def _search(self, part: Subproblem, share: int) -> Search:
        """In one of so many shares of the time; who listens hears of it where it is the whole."""
        own = self.budget.part(self.budget.left / share)
        if part.problem is not self.problem:
            start = None if self.budget.start is None else part.restricted(self.budget.start)
            own = Budget(own.seconds, start)
        search = Search(part.problem, own, self.on_progress)
        try:
            if not self.interrupted:
                search.run()
        except KeyboardInterrupt:
            self.interrupted = True
        return search


def _whole(problem: Problem, device: Wide, rank: Wide) -> Wide | None:
    """`[op]` the slots of the plan of all parts, if what they keep fits."""
    if (found := completed(problem, device, rank)) is None:
        return None
    unit_device = np.zeros(problem.unit_count, dtype=np.int64)
    unit_device[problem.op_unit] = found
    if (unit_device[problem.op_unit] != found).any():
        return None
    return slot_of(problem, found) if may_be(problem, found) else None
