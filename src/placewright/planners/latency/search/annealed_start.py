"""A first plan to search from: by region moves, then annealed with its order."""

from __future__ import annotations

from placewright.budget import Budget, Progress
from placewright.plan import Placement
from placewright.planners.latency.search.refining import refined
from placewright.planners.latency.search.region_moves import by_region_moves
from placewright.problem import Problem

SHARE = 0.35
"""Of the time that there is."""
PER_OP = 1000
"""Evaluations for each op at most: small graphs gain more from what comes after it."""


def annealed_start(
    problem: Problem, budget: Budget, evaluations: float, seed: int, on_progress: Progress
) -> tuple[Placement, bool]:
    """The plan after so many evaluations or the budget's time; whether Ctrl-C came.

    InfeasibleError if there is no simple plan to start from.
    """
    half = budget.part(budget.left / 2)
    first, interrupted = by_region_moves(problem, half, seed, on_progress)
    if interrupted:
        return first, True
    return refined(problem, first, budget, evaluations, seed, on_progress)
