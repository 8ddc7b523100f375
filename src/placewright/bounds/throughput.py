"""Lower bounds on the time per sample of a pipeline (design: objective 3)."""

from __future__ import annotations

from placewright.bounds import latency
from placewright.bounds.bound import Bound
from placewright.problem import Problem


def lower_bound(problem: Problem) -> Bound:
    """All work, shared out over the devices in the best proportion, memory priced.

    Under every option a device's load is at least its computing, and the time per sample at
    least the largest load, forward and backward together: `latency.work` bounds that. Replicas
    share an op's time among devices that are equally fast, so for weights λ the op still adds
    at least min_d λ_d t[o, d]. Each replica keeps the op's memory, which only adds to the price.
    """
    return latency.work(problem)
