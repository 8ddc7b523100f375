"""Module bound for a batch of inputs (DiviML, §IV-B2, last paragraph).

Let OPT(S, n) be the least time in which n inputs pass through the ops S, where a batch may hold
fewer inputs than its size and lasts as long as the size does (`of_some_inputs`). For n = L and all
ops that is no more than the least time T of the problem.

*Some inputs, some ops.* Take any plan, any n of its inputs, and for each of these a set of ops that
all hold S. Leave out all other inputs, the batches that are empty then, and all ops but S. What is
left is a plan for S and n inputs: batches are no larger, start and end when they did, and wait for
no more; devices keep no more.

*Two parts.* Let M be the modules before a boundary, and R the ops behind it that come after every
sink of M (an op that no other of M reads; behind a cut op R is all). An input is through M when
its last op of M ends, which is a sink; its ops of R start after that. For 1 ≤ b ≤ n let τ be when
the b-th of the n inputs is through. By τ b inputs have passed through M, so τ ≥ OPT(M, b). Before τ
at most b − 1 are through, so R is entered after τ by n − b + 1, and

    OPT(M ∪ R, n)  ≥  OPT(M, b)  +  OPT(R, n − b + 1).

This is DiviML's statement with three changes. Their b is a batch size of every device; any b will
do. Their batches are as in the problem; what is left of a batch need not be one of its sizes, hence
batches that are not full. And their dep(I_t') belongs to one input t' of the boundary, whichever is
least; in a batch every input may have another one, hence the ops that come after all of them.

*The recursion.* With R_t the ops behind boundary t that come after all sinks before it (R_0 = all)
and G(S, n) any lower bound of OPT(S, n),

    F(s, n) = max( G(R_s, n),  max over t > s of G(R_s before t, b) + F(t, n − b + 1) ),

for b = 1 and b = n; F(0, L) bounds T. R_t is good enough for the part R_s before t: of ops that
come after all sinks before s, a sink among those before t is a sink of all before t, since what
reads it comes after the same sinks. Parts of one module are solved as well, for one input: there
all batches last as long as the quickest, a problem of latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from placewright.analysis.modules import Modules
from placewright.analysis.precedence import Precedence
from placewright.analysis.subproblem import subproblem
from placewright.analysis.symmetry import Symmetry
from placewright.bounds.batch import lower_bound
from placewright.bounds.bound import Bound
from placewright.budget import Budget
from placewright.formulations.batch.cp_model import BatchModel
from placewright.formulations.batch.instance import BatchInstance
from placewright.graph import Flags
from placewright.planners.batch.starts import first_plans
from placewright.problem import Problem

MOST_MODULES = 40
"""Neighbouring modules are one piece beyond this: there are as many parts as pairs of them."""

Solve = Callable[[Problem], float]
"""A lower bound of a problem's value, better than the quick one."""


def module_bound(
    modules: Modules, solve: Solve | None = None, limit: Budget | None = None
) -> Bound:
    """F(0, L) of the module's text; `solve` bounds single modules for one input.

    Parts that are reached when the limit has passed, or would pass, count for nothing.
    """
    recursion = _Recursion(modules, solve, limit or Budget())
    return Bound(recursion.bound(0, modules.problem.options.batch), "modules of a batch")


def of_some_inputs(problem: Problem, inputs: int) -> Problem:
    """The problem for fewer inputs, whose batches need not be full.

    A batch of n inputs lasts as long as the quickest of the sizes from n on.
    """
    sizes = np.arange(1, inputs + 1, dtype=np.int32)
    time = np.full((*problem.batch_time.shape[:2], inputs), np.inf)
    for size in sizes.tolist():
        enough = problem.batch_sizes >= size
        if enough.any():
            time[:, :, size - 1] = problem.batch_time[:, :, enough].min(axis=2)
    return replace(
        problem,
        options=replace(problem.options, batch=inputs),
        batch_sizes=sizes,
        batch_time=time,
    )


def by_cp_sat(limit: Budget, seconds: float) -> Solve:
    """Solve with CP-SAT, for at most `seconds` each and no longer than the limit."""

    def solve(problem: Problem) -> float:
        plans = first_plans(problem, 0, Budget(limit.left))
        if not plans or plans[0].value == 0.0 or limit.left <= 0:
            return 0.0
        start = plans[0]
        instance = BatchInstance(problem, start.value)
        model = BatchModel(instance, Symmetry(problem, "none"))
        model.hint(start)
        answer = model.solve(min(seconds, limit.left), 0)
        return max(0.0, min(answer.bound * instance.scale, start.value))

    return solve


class _Recursion:
    def __init__(self, modules: Modules, solve: Solve | None, limit: Budget) -> None:
        self.problem = modules.problem
        self.limit = limit
        self.solve = solve
        pieces = min(modules.count, MOST_MODULES)
        piece = np.arange(modules.count) * pieces // modules.count
        self.home = piece[modules.op_module]
        self.count = pieces
        self.precedence = Precedence(self.problem)
        self.behind = [self._behind(boundary) for boundary in range(pieces)]
        self.known: dict[tuple[int, int], float] = {}
        self.largest = 1, 0.0  # ops × inputs of a part that was bounded, and the seconds it took

    def _behind(self, boundary: int) -> Flags:
        """R: the ops behind the boundary that come after all sinks before it, as flags."""
        before = self.home < boundary
        found = ~before
        if not boundary:
            return found
        precedence = self.precedence
        for op in np.flatnonzero(before).tolist():
            if self.limit.left <= 0:
                return np.zeros(len(found), dtype=np.bool_)
            if not any(before[reader] for reader in precedence.followers[op]):
                after = np.zeros(len(found), dtype=np.bool_)
                after[precedence.members(precedence.after[op])] = True
                found &= after
        return found

    def bound(self, boundary: int, inputs: int) -> float:
        """F."""
        key = boundary, inputs
        if key not in self.known:
            best = 0.0
            for end in range(boundary + 1, self.count):
                for through in {1, inputs}:
                    rest = self.bound(end, inputs - through + 1)
                    best = max(best, self._part(boundary, end, through) + rest)
            # The largest last: what smaller ones take says whether there is time for it.
            self.known[key] = max(best, self._part(boundary, self.count, inputs))
        return self.known[key]

    def _part(self, boundary: int, end: int, inputs: int) -> float:
        """G of the ops of R behind the boundary and before the end."""
        ops = np.flatnonzero(self.behind[boundary] & (self.home < end)).astype(np.int32)
        left, work = self.limit.left, len(ops) * inputs
        largest, seconds = self.largest
        if not work or left <= seconds * max(1.0, work / largest):
            return 0.0
        part = of_some_inputs(subproblem(self.problem, ops).problem, inputs)
        if not math.isfinite(found := lower_bound(part).value):
            return 0.0
        if largest <= work and left < math.inf:
            self.largest = work, left - self.limit.left
        if self.solve and inputs == 1 and end == boundary + 1:
            found = max(found, self.solve(part))
        return found
