"""The integer program solved: the best split that it finds, or any split at all."""

from __future__ import annotations

import math

import numpy as np

from placewright.budget import Budget
from placewright.errors import InfeasibleError
from placewright.formulations.invocation.program import InvocationProgram, binaries, value_of
from placewright.plan import Placement
from placewright.problem import Problem
from placewright.solvers.mathopt import (
    RELATIVE_GAP,
    Answer,
    OutOfTimeError,
    safe_bound,
    solve_program,
)

ANY_GAP = 1e9  # relative: the first plan ends the search
ANY_SECONDS = 10.0
ANY_BINARIES = 5_000


def best_split(
    problem: Problem,
    best: Placement | None,
    least: float,
    limit: Budget,
    solver: str = "highs",
    nodes: int | None = None,
    seed: int = 0,
    gap: float = RELATIVE_GAP,
) -> tuple[Placement | None, Answer, float]:
    """The best placement, the solver's last answer, and what it has proved, in seconds.

    `best` is a placement known, or None; `least` seconds are a lower bound.
    """
    ranked = False
    horizon = value_of(problem, best) if best else _enough(problem)
    horizon *= 1 + 1e-6  # what the solver's tolerances could cut off
    formulation = InvocationProgram(problem, horizon, least, limit, ranked=ranked)
    while True:
        hint = formulation.hint(best) if best and not ranked else None
        answer = solve_program(formulation.program, solver, limit.left, hint, nodes, seed, gap)
        proved = safe_bound(answer) * formulation.scale
        if answer.values is None:
            return best, answer, proved
        found = formulation.decode(answer.values)
        if units := _overfull(problem, found):
            formulation.forbid(*units)
            continue
        value = value_of(problem, found)
        if math.isinf(value) and not ranked:
            ranked = True
            formulation = InvocationProgram(problem, horizon, least, limit, ranked=True)
            continue
        if best is None or value < value_of(problem, best):
            best = found if math.isfinite(value) else best
        return best, answer, proved


def any_split(problem: Problem, planner: str, budget: Budget) -> Placement | None:
    """A placement that can run; None if that would take long, InfeasibleError if there is none."""
    if binaries(problem) > ANY_BINARIES:
        return None
    limit = budget.part(ANY_SECONDS)
    try:
        found, answer, _ = best_split(problem, None, 0.0, limit, gap=ANY_GAP)
    except OutOfTimeError:
        return None
    if found is None and answer.infeasible:
        raise proved_infeasible(planner)
    return found


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


def _overfull(problem: Problem, placement: Placement) -> tuple[int, list[int]] | None:
    """A device that the solver's tolerance let overflow, and the units on it."""
    used = np.bincount(placement.device, problem.op_memory, problem.device_count)
    over = np.flatnonzero(used > problem.device_memory * (1 + 1e-12))
    if not len(over):
        return None
    device = int(over[0])
    units = np.unique(problem.op_unit[placement.device == device])
    return device, [int(unit) for unit in units if problem.unit_memory[unit] > 0]
