"""Lower bounds: what no plan can beat, per objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placewright.bounds.bound import Bound, nowhere

if TYPE_CHECKING:
    from placewright.problem import Problem

__all__ = ["Bound", "lower_bound"]


def lower_bound(problem: Problem) -> Bound:
    """The best bound that takes no search, for the problem's own objective and options.

    Infinite where an op can be on no device. That of another problem without any plan is finite.
    """
    if none := nowhere(problem):
        return none
    objective = problem.options.objective
    if objective == "latency":
        from placewright.bounds.latency import paths as latency

        return latency.lower_bound(problem)
    if objective == "throughput":
        from placewright.bounds import throughput

        return throughput.lower_bound(problem)
    if objective == "invocation-latency":
        from placewright.bounds.invocation import best as invocation

        return invocation.lower_bound(problem)
    from placewright.bounds import batch

    return batch.lower_bound(problem)
