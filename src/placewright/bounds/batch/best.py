"""The best bound on the time to finish a batch of inputs that takes no search."""

from __future__ import annotations

from placewright.bounds.batch.paths import mean_path
from placewright.bounds.batch.together import path_and_work
from placewright.bounds.batch.windows import windows
from placewright.bounds.batch.work import work_and_weights
from placewright.bounds.bound import Bound
from placewright.problem import LONG_ROUNDING, Problem


def lower_bound(problem: Problem) -> Bound:
    """The best of the bounds here; of those that are equal but for rounding, the simplest."""
    whole, weight = work_and_weights(problem)
    bounds = (whole, mean_path(problem), windows(problem, weight), path_and_work(problem))
    best = max(bound.value for bound in bounds)
    return next(bound for bound in bounds if bound.value >= best * (1 - LONG_ROUNDING))
