"""What training stashes: the memory behind what forward ops make and backward ops read.

A view has no memory of its own: what keeps it keeps the tensor that it is a view of, whole and
once, however many views there are. Behind a view of a weight or of the model's own inputs there is
nothing to stash.
"""

from __future__ import annotations

import numpy as np

from placewright.graph import Flags, Floats, Graph, Wide
from placewright.problem import Problem, once_per_problem

NOTHING = -1
RECOMPUTE = "_recompute"
"""How names of ops end that run a forward op again in the backward pass."""


def recomputed_ops(problem: Problem) -> Flags:
    """`[op]` whether it runs a forward op again."""
    if not problem.is_backward.any():
        return np.zeros(problem.op_count, dtype=np.bool_)
    names, twins = problem.op_names, problem.forward_twin.tolist()
    found = [
        twin >= 0 and name == names[twin] + RECOMPUTE
        for name, twin in zip(names, twins, strict=True)
    ]
    return np.array(found) & problem.is_backward


def views(graph: Graph) -> Flags:
    """`[op]` whether it does no work: a view, or a placeholder."""
    idle: Flags = (graph.op_flops + graph.op_bytes_read + graph.op_bytes_written) == 0
    for seconds in graph.times.values():
        idle &= seconds == 0
    return idle


def memory_behind(graph: Graph | Problem, is_view: Flags) -> Wide:
    """`[tensor]` the tensor whose memory it is in, `NOTHING` for that of a weight or an input.

    An op that does no work and reads several tensors makes one of its own. One that holds a weight,
    or a copy of one, is a view of that, though a copy is sent what a step made of the weight.
    """
    behind = np.arange(len(graph.tensor_producer))
    reads = np.bincount(graph.consumers, minlength=graph.op_count)
    source = np.full(graph.op_count, NOTHING)
    source[graph.consumers] = graph.edge_tensor
    weights = graph.op_parameter_bytes if isinstance(graph, Graph) else graph.op_copied
    holds = weights > 0 if weights.size else np.zeros(graph.op_count, dtype=np.bool_)
    made: dict[int, list[int]] = {}
    looked = np.flatnonzero(is_view[graph.tensor_producer] & (reads[graph.tensor_producer] <= 1))
    for tensor in looked.tolist():
        made.setdefault(int(graph.tensor_producer[tensor]), []).append(tensor)
    if made:
        for op in graph.topological_order.tolist():
            if op in made:
                of_weight = source[op] == NOTHING or holds[op]
                behind[made[op]] = NOTHING if of_weight else behind[source[op]]
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


@once_per_problem
def held_bytes(problem: Problem) -> Floats:
    """`[op]` bytes that it keeps besides what it stashes: weights, and what training adds."""
    if problem.op_stash.size:
        stashed = problem.op_stash
    elif problem.is_backward.any() and problem.options.memory == "resident":
        stashed = stashed_bytes(problem, (problem.op_time == 0).all(axis=1))
    else:
        return problem.op_memory
    return np.maximum(problem.op_memory - stashed, 0.0)
