"""Edges that pass by an op with which every other op is comparable, and a problem without them.

In a training graph the last op of each forward module leads to all that comes later, but what the
module keeps for its gradients passes by it: so the op is no cut op, and the graph no chain of
modules (`analysis.modules`), though it would be one without those tensors.
"""

from __future__ import annotations

import numpy as np

from placewright.analysis.subproblem import Subproblem, subproblem
from placewright.graph import Flags
from placewright.problem import Problem, once_per_problem


def comparable_with_all(problem: Problem) -> Flags:
    """`[op]` whether every other op leads to it or depends on it. O(V + E).

    Take any topological order. The op at position i is one if every op before it has a consumer no
    later than i, and every op after it an input no earlier: from an op before i go to its first
    consumer, again and again; positions grow, and none goes beyond i, so this ends there. Likewise
    backwards from any op after i. Conversely a path from an op before i to i begins with an edge
    to a position no later than i.

    >>> comparable_with_all(problem)          # a → b → c → d, and a → d
    array([ True,  True,  True,  True])
    """
    count = problem.op_count
    position = problem.topological_rank
    start, end = position[problem.edge_producer], position[problem.consumers]
    first, last = np.full(count, count), np.full(count, -1)
    np.minimum.at(first, start, end)
    np.maximum.at(last, end, start)
    at = np.arange(count)
    # Of an op's own position neither says anything: what it reads is before it, its readers after.
    reached = np.concatenate([[-1], np.maximum.accumulate(first)[:-1]]) <= at
    read = np.concatenate([np.minimum.accumulate(last[::-1])[::-1][1:], [count]]) >= at
    found: Flags = (reached & read)[position]
    return found


def passing_edges(problem: Problem) -> Flags:
    """`[edge]` whether an op comparable with all others lies between its producer and consumer."""
    position = problem.topological_rank
    passed = np.cumsum(comparable_with_all(problem)[problem.topological_order])
    before_consumer = passed[position[problem.consumers] - 1]
    found: Flags = before_consumer > passed[position[problem.edge_producer]]
    return found


@once_per_problem
def without_passing(problem: Problem) -> Subproblem:
    """The same ops with the other edges only. No plan of the whole is shorter than its best.

    Ops comparable with all others stay so: the first consumer of an op passes by none of them,
    for some consumer leads there, and that is no later; nor does the last input. So what passed by
    an op has a path through it still. A schedule of the whole, less the transfers for nobody that
    is left, is one of these: what an op reads arrives as before. Memory stays as it is, but for
    tensors that nobody reads any more, which take none.
    """
    everything = np.arange(problem.op_count, dtype=np.int32)
    return subproblem(problem, everything, ~passing_edges(problem))
