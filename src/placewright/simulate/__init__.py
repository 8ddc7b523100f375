"""What a placement comes to: one evaluator per objective, none of which decides a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placewright.outcome import Outcome
    from placewright.plan import Placement
    from placewright.problem import Problem


def evaluate(problem: Problem, placement: Placement) -> Outcome:
    """The outcome of a placement under the problem's objective (see `outcome`)."""
    objective = problem.options.objective
    if objective == "latency":
        from placewright.simulate.latency import time_placement

        return time_placement(problem, placement)
    if objective == "throughput":
        from placewright.simulate.throughput import loads

        return loads(problem, placement)
    if objective == "invocation-latency":
        from placewright.simulate.invocation import invoke

        return invoke(problem, placement)
    from placewright.simulate.batch import run_batches

    return run_batches(problem, placement)
