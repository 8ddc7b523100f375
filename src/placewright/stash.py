"""What training stashes: the memory behind what forward ops make and backward ops read.

A view has no memory of its own: what keeps it keeps the tensor that it is a view of, whole and
once, however many views there are. Behind a view of a weight or of the model's own inputs there is
nothing to stash.
"""

from __future__ import annotations

import numpy as np

from placewright.graph import Flags, Floats, Graph, Wide
from placewright.problem import Problem

NOTHING = -1


def views(graph: Graph) -> Flags:
    """`[op]` whether it does no work: a view, or a placeholder."""
    idle: Flags = (graph.op_flops + graph.op_bytes_read + graph.op_bytes_written) == 0
    for seconds in graph.times.values():
        idle &= seconds == 0
    return idle


def memory_behind(graph: Graph | Problem, is_view: Flags) -> Wide:
    """`[tensor]` the tensor whose memory it is in, `NOTHING` for that of a weight or an input.

    An op that does no work and reads several tensors makes one of its own.
    """
    behind = np.arange(len(graph.tensor_producer))
    reads = np.bincount(graph.consumers, minlength=graph.op_count)
    source = np.full(graph.op_count, NOTHING)
    source[graph.consumers] = graph.edge_tensor
    made: dict[int, list[int]] = {}
    looked = np.flatnonzero(is_view[graph.tensor_producer] & (reads[graph.tensor_producer] <= 1))
    for tensor in looked.tolist():
        made.setdefault(int(graph.tensor_producer[tensor]), []).append(tensor)
    if made:
        for op in graph.topological_order.tolist():
            if op in made:
                behind[made[op]] = NOTHING if source[op] == NOTHING else behind[source[op]]
    return behind


def stashed_tensors(graph: Graph | Problem, is_view: Flags) -> Wide:
    """The tensors that hold what forward ops make and backward ops read."""
    forward = ~graph.is_backward[graph.tensor_producer]
    read = np.unique(graph.edge_tensor[graph.is_backward[graph.consumers]])
    behind = np.unique(memory_behind(graph, is_view)[read[forward[read]]])
    found: Wide = behind[behind != NOTHING].astype(np.int64)
    return found


def stashed_bytes(graph: Graph | Problem, is_view: Flags) -> Floats:
    """`[op]` bytes of what it makes forward and a backward op reads, for one input."""
    kept = stashed_tensors(graph, is_view)
    made, size = graph.tensor_producer[kept], graph.tensor_bytes[kept]
    return np.bincount(made, size, graph.op_count).astype(np.float64)
