"""The arrays of a problem as one tuple that compiled code takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.graph import Floats, Ints, Wide
from placewright.kernels.compiled import inlined
from placewright.problem import Problem, once_per_problem

NOT_SENT = -1.0
"""The time of a transfer that does not take place."""


class Arrays(NamedTuple):
    """See `Problem` for the meaning; CSR pairs are `…_offsets` with what they index."""

    op_time: Floats
    tensor_bytes: Floats
    consumer_offsets: Wide
    consumers: Ints
    edge_tensor: Ints
    edge_producer: Ints
    edge_ends: (
        Ints  # [edge, :] producer, consumer, shared tensor or -1: side by side, for the cache
    )
    edge_bytes: Floats
    input_offsets: Wide
    inputs: Ints
    output_offsets: Wide
    outputs: Ints
    link_latency: Floats
    link_seconds_per_byte: Floats
    channel_offsets: Wide
    channels: Ints
    channel_count: int
    by_tensor: bool
    op_memory: Floats
    device_memory: Floats | None  # None where memory is no matter (see `arrays_with_memory`)


@once_per_problem
def arrays_of(problem: Problem) -> Arrays:
    """The problem's arrays, with the channels of its contention option."""
    input_offsets, inputs = problem.op_inputs
    output_offsets, outputs = problem.op_outputs
    channel_offsets, channels, channel_names = problem.active_channels
    return Arrays(
        problem.op_time,
        problem.tensor_bytes,
        problem.consumer_offsets,
        problem.consumers,
        problem.edge_tensor,
        problem.edge_producer,
        np.stack([problem.edge_producer, problem.consumers, _shared_tensor(problem)], axis=1),
        problem.tensor_bytes[problem.edge_tensor],
        input_offsets,
        inputs,
        output_offsets,
        outputs,
        problem.link_latency,
        problem.link_seconds_per_byte,
        channel_offsets,
        channels,
        len(channel_names),
        problem.options.transfer_unit == "tensor",
        problem.op_memory,
        None,
    )


def arrays_with_memory(problem: Problem) -> Arrays:
    """The same; under memory option ``peak`` with the devices' memory.

    For kernels that then wait for memory (`within_memory.if_memory_counts`). The others are
    compiled once, for arrays without it.
    """
    arrays = arrays_of(problem)
    if problem.options.memory == "resident":
        return arrays
    return arrays._replace(device_memory=problem.device_memory)


def _shared_tensor(problem: Problem) -> Ints:
    """`[edge]` its tensor where one transfer can serve several edges, else -1."""
    readers = np.diff(problem.consumer_offsets)[problem.edge_tensor]
    by_tensor = problem.options.transfer_unit == "tensor"
    return np.where(by_tensor & (readers > 1), problem.edge_tensor, -1).astype(np.int32)


@inlined
def transfer_time(p, tensor, source, target):
    """Seconds to move `tensor` from `source` to another device `target`."""
    return (
        p.link_latency[source, target]
        + p.tensor_bytes[tensor] * p.link_seconds_per_byte[source, target]
    )
