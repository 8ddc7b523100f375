"""Lower bounds on invocation latency."""

from __future__ import annotations

from placewright.bounds.bound import Bound
from placewright.bounds.latency import paths as latency
from placewright.problem import Problem

QUICK_WORK = 900_000  # cuts × ops, each about 2 µs
QUICK_OPS = 2_000


def lower_bound(problem: Problem) -> Bound:
    """The better of two bounds: of a path through ops, and of paths and chains through subgraphs.

    Ops on a path run one after another: on a CPU after what they read, in one subgraph one by
    one, and in another subgraph after this one has ended; so the critical path of objective
    ``latency`` holds here too. The other, `bounds.invocation.path.path_bound`, also counts what
    subgraphs read and write. It is cut short here, with one path and a second or two, and left out
    on large graphs; planners that search go on with it.
    """
    simple = latency.critical_path(problem)
    if problem.op_count > QUICK_OPS:
        return simple
    from placewright.bounds.invocation.path import path_bound

    cuts = max(1, QUICK_WORK // problem.op_count)
    return max(path_bound(problem, cuts=cuts, paths=1), simple, key=lambda bound: bound.value)
