"""The best bound on the latency of a single run that takes no search."""

from __future__ import annotations

from placewright.bounds.bound import Bound, nowhere
from placewright.bounds.latency import paths
from placewright.bounds.latency.stretches import stretches
from placewright.problem import LONG_ROUNDING, Problem


def lower_bound(problem: Problem) -> Bound:
    """The best of critical path, work over speeds and, but on large graphs, `stretches`.

    Of those that are equal but for rounding the simplest.
    """
    if none := nowhere(problem):
        return none
    simple, longer = paths.lower_bound(problem), stretches(problem)
    return longer if longer.value > simple.value * (1 + LONG_ROUNDING) else simple
