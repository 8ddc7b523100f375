"""Devices for all ops, in whatever order they run: a lower bound on latency by a program.

`formulations.latency.unordered_program` says where every op is, such that memory suffices and no
path, with its transfers, is longer than the makespan; it leaves out that ops and transfers wait
for each other. Where a network is narrow, most of what full and unequal devices cost is in that:
the bound is often the optimum. `chain_program` does the same for one chain of places, for larger
graphs.
"""

from __future__ import annotations

from placewright.bounds.bound import Bound, nowhere
from placewright.budget import Budget, Progress
from placewright.formulations.latency.incumbent import longest, timed
from placewright.formulations.latency.instance import Instance
from placewright.formulations.latency.unordered_program import UnorderedProgram
from placewright.problem import LONG_ROUNDING, Problem
from placewright.solvers.mathopt import OutOfTimeError, safe_bound, solve_program

SOURCE = "devices for all ops, in any order"
NOTHING = Bound(0.0, SOURCE)
SOLVER = "scip"
MOST_FLOWS = 3_000  # edges · pairs of devices; beyond, little is proved in time


def prove(
    problem: Problem,
    budget: Budget,
    incumbent: float = float("inf"),
    on_progress: Progress | None = None,
) -> Bound:
    """The bound of the module's text, within the budget; 0 seconds where it is of no use.

    That is, where every device could hold all of it, so that paths alone say as much, and of
    programs that are too large. `incumbent` is the makespan of a plan known, the budget's `start`
    that plan, which leaves out devices that no shorter one uses.
    """
    none = nowhere(problem)
    if none is not None:
        return none
    is_large = problem.edge_count * problem.device_count**2 > MOST_FLOWS
    if is_large or not problem.may_overflow:
        return NOTHING
    start = None if budget.start is None else timed(problem, budget.start)
    most = longest(problem) if start is None else start.value
    if most == 0.0:  # cannot be improved, nor scaled
        return NOTHING
    try:
        instance = Instance(problem, start, budget)
        if not instance.allowed.any(axis=1).all():
            return NOTHING
        program = UnorderedProgram(instance, budget)
    except OutOfTimeError:
        return NOTHING
    hint = None if start is None else program.hint(start)
    answer = solve_program(program.program, SOLVER, budget.left, hint)
    value = most if answer.infeasible else min(safe_bound(answer) * program.scale, most)
    return Bound(min(value, incumbent) * (1 - LONG_ROUNDING), SOURCE)
