"""Timing a sequence of ops and transfers: the evaluation that search calls."""

from __future__ import annotations

import numpy as np

from placewright.kernels.common.arrays import NOT_SENT
from placewright.kernels.compiled import kernel


@kernel
def time_sequence(
    p,
    device,
    sequence,
    op_ready,
    op_finish,
    edge_finish,
    device_free,
    channel_free,
    op_start,
    edge_start,
):
    """Time every item of `sequence` as early as possible; return the makespan.

    Items are taken in order: op i as ``i``, edge e as ``-1 - e``. An op starts when its device
    is free and its inputs are there; a transfer when its tensor is ready and its channels are
    free. The sequence must be topological: producer, then edge, then consumer.

    The caller lends the arrays: op_ready[op], op_finish[op], edge_finish[edge],
    device_free[device], channel_free[channel]. With op_start[op] and edge_start[edge] of full
    length the schedule is recorded too; with empty ones only the makespan counts, and nothing
    is written there. Recorded, edges whose ends share a device and, where a tensor is sent once
    per device, edges served by an earlier transfer have no transfer of their own: `edge_start`
    is ``NOT_SENT``; `edge_finish` is when the tensor got there, or ``NOT_SENT`` on one device.
    """
    record = len(op_start) > 0
    device_free[:] = 0.0
    channel_free[:] = 0.0
    op_ready[:] = 0.0
    if p.by_tensor or record:
        edge_finish[:] = NOT_SENT
    if record:
        edge_start[:] = NOT_SENT
    device_count = len(device_free)
    makespan = 0.0
    for item in sequence:
        if item >= 0:
            d = device[item]
            start = max(device_free[d], op_ready[item])
            finish = start + p.op_time[item, d]
            op_finish[item] = finish
            device_free[d] = finish
            makespan = max(makespan, finish)
            if record:
                op_start[item] = start
            continue
        edge = -1 - item
        producer, consumer = p.edge_ends[edge, 0], p.edge_ends[edge, 1]
        shared = p.edge_ends[edge, 2]  # its tensor if that may serve other edges too, else -1
        source, target = device[producer], device[consumer]
        start = op_finish[producer]
        if source == target:
            op_ready[consumer] = max(op_ready[consumer], start)
            continue
        if shared >= 0 and edge_finish[edge] != NOT_SENT:
            continue
        pair = source * device_count + target
        first, last = p.channel_offsets[pair], p.channel_offsets[pair + 1]
        for k in range(first, last):
            start = max(start, channel_free[p.channels[k]])
        finish = start + (
            p.link_latency[source, target]
            + p.edge_bytes[edge] * p.link_seconds_per_byte[source, target]
        )
        for k in range(first, last):
            channel_free[p.channels[k]] = finish
        if record:
            edge_start[edge] = start
            edge_finish[edge] = finish
        if shared >= 0:
            for other in range(p.consumer_offsets[shared], p.consumer_offsets[shared + 1]):
                reader = p.consumers[other]
                if device[reader] == target:
                    edge_finish[other] = finish
                    op_ready[reader] = max(op_ready[reader], finish)
        else:
            op_ready[consumer] = max(op_ready[consumer], finish)
    return makespan


@kernel(allocates=True)
def repeat_timing(p, device, sequence, repeats):
    """Evaluate the same sequence `repeats` times, as a search would; for benchmarks."""
    n, edges = p.op_time.shape[0], len(p.consumers)
    op_ready, op_finish, edge_finish = np.empty(n), np.empty(n), np.empty(edges)
    device_free, channel_free = np.empty(p.op_time.shape[1]), np.empty(p.channel_count)
    nothing = np.empty(0)
    total = 0.0
    for _ in range(repeats):
        total += time_sequence(
            p, device, sequence, op_ready, op_finish, edge_finish,
            device_free, channel_free, nothing, nothing,
        )  # fmt: skip
    return total / repeats
