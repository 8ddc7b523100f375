"""The best bound on the latency of a single run that takes no search."""

from __future__ import annotations

from placewright.bounds.bound import Bound, nowhere
from placewright.bounds.latency import paths
from placewright.bounds.latency.stretches import stretches
from placewright.problem import Problem


def lower_bound(problem: Problem) -> Bound:
    """The best of critical path, work over speeds and, but on large graphs, `stretches`."""
    if none := nowhere(problem):
        return none
    return max(paths.lower_bound(problem), stretches(problem), key=lambda bound: bound.value)
