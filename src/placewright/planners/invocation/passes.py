"""Whether the backward pass is the forward pass turned round, so that one order holds for both.

Then an accelerator's two subgraphs hold the same nodes, those of both passes wait for each other in
the same order, turned round, and the backward pass begins when the forward pass is over: the
latency is the sum of both, and blocks of subgraphs are the same in both.
"""

from __future__ import annotations

import numpy as np

from placewright.analysis.contracted import ContractedGraph
from placewright.graph import Wide
from placewright.problem import Problem


def turned_round(problem: Problem, graph: ContractedGraph) -> bool:
    """Whether it is; true without backward ops."""
    back = problem.is_backward
    if not back.any():
        return True
    both = [np.bincount(graph.op_node[back == way], minlength=graph.node_count) for way in (0, 1)]
    if not (both[0].all() and both[1].all()):
        return False
    source, target = graph.op_node[problem.edge_producer], graph.op_node[problem.consumers]
    forward = ~back[problem.edge_producer] & ~back[problem.consumers]
    backward = back[problem.edge_producer] & back[problem.consumers]
    one = _led(source[forward], target[forward], graph.node_count)
    other = _led(target[backward], source[backward], graph.node_count)
    return one == other and begins_when_forward_is_over(problem)


def _led(source: Wide, target: Wide, count: int) -> list[int]:
    """`[node]` the set, as bits, of those that lead to it; nodes are in topological order."""
    before = [0] * count
    for low, high in sorted({*zip(source.tolist(), target.tolist(), strict=True)},
                            key=lambda edge: edge[1]):  # fmt: skip
        if low != high:
            before[high] |= before[low] | 1 << low
    return before


def begins_when_forward_is_over(problem: Problem) -> bool:
    """Whether every forward op leads to every backward op."""
    forward = sum(1 << op for op in np.flatnonzero(~problem.is_backward).tolist())
    before = [0] * problem.op_count
    offsets, edges = problem.op_inputs
    for op in problem.topological_order.tolist():
        for producer in problem.edge_producer[edges[offsets[op] : offsets[op + 1]]].tolist():
            before[op] |= before[producer] | 1 << producer
    backward = np.flatnonzero(problem.is_backward).tolist()
    return all(before[op] & forward == forward for op in backward)
