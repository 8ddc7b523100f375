"""Lower bounds on invocation latency (design: objective 2)."""

from __future__ import annotations

from placewright.bounds import latency
from placewright.bounds.bound import Bound
from placewright.problem import Problem


def lower_bound(problem: Problem) -> Bound:
    """The longest path with each op on its fastest device, memory priced.

    Ops on a path run one after another here too: on a CPU after what they read, in one subgraph
    one by one, and in another subgraph after this one has ended.
    """
    return latency.critical_path(problem)
