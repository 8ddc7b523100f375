"""What a step of micro-batches does once: the optimizer's steps, the exchange of copied weights.

A pipeline that works in steps (option `micro_batches`) adds up gradients over the micro-batches of
one. So the optimizer's ops, and what copies of a weight send each other, count once per step. They
are spread evenly over the M micro-batches of a pipeline: each takes the share 1/M of their seconds
and bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placewright.graph import Flags, Graph
from placewright.problem import Problem


def once_per_step(problem: Problem, graph: Graph) -> Problem:
    """`problem`, made of `graph` or of it with copies, with what a step does once spread evenly."""
    count = problem.options.pipeline_micro_batches
    if count is None or not graph.is_training:
        return problem
    time, size = problem.op_time.copy(), problem.tensor_bytes.copy()
    time[_optimizer_ops(graph)] /= count
    if problem.tensor_count > graph.tensor_count:
        size[_exchanged(problem, graph)] /= count
    return replace(problem, op_time=time, tensor_bytes=size)


def _optimizer_ops(graph: Graph) -> Flags:
    """`[op]` whether it is a step of the optimizer (`importers.zoo.backward`)."""
    steps = np.array(graph.op_types) == graph.attributes.get("optimizer")
    flags: Flags = steps & graph.is_backward
    return flags


def _exchanged(problem: Problem, graph: Graph) -> Flags:
    """`[tensor]` whether it is a weight for copies, or the gradient of a copy for its holder."""
    found = np.arange(problem.tensor_count) >= graph.tensor_count
    group = graph.copy_colocation.tolist()
    backward = graph.is_backward.tolist()
    sent = {
        (group[reader], group[each.producer]): each.bytes
        for each in graph.copy_tensors
        for reader in each.consumers
    }
    for tensor in range(graph.tensor_count):
        producer = int(graph.tensor_producer[tensor])
        start, end = graph.consumer_offsets[tensor : tensor + 2]
        readers = graph.consumers[start:end].tolist()
        found[tensor] = backward[producer] and any(
            sent.get((group[producer], group[reader])) == graph.tensor_bytes[tensor]
            for reader in readers
            if backward[reader]
        )
    return found
