"""Lower bounds on the time to finish a batch of inputs (design: objective 4)."""

from __future__ import annotations

from dataclasses import replace

from placewright.bounds import latency
from placewright.bounds.bound import Bound
from placewright.problem import Problem


def lower_bound(problem: Problem) -> Bound:
    """The longest path that one input takes, each op in the quickest batch of its device.

    The batch of an op that holds the input must end before the next op's batch that holds it.
    """
    quickest = problem.batch_time.min(axis=2)
    return latency.critical_path(replace(problem, op_time=quickest))
