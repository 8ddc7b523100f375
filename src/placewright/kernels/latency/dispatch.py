"""List scheduling forwards in time, devices given: nothing waits that could run.

Whenever a device is free, it begins the op of least rank among those that can start on it;
whenever the channels of a transfer are free, the one of least rank among those ready is sent.
Unlike inserting ops one by one into gaps this keeps slow devices fed where many equal branches,
such as heads of attention, wait for the same ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Wide
from placewright.kernels.common.arrays import Arrays
from placewright.kernels.compiled import inner, kernel

NONE = -1


class Floor(NamedTuple):
    """Arrays that `dispatch` borrows. Lists are linked, the least rank first."""

    missing: Wide  # [op] inputs that are not there
    first_ready: Wide  # [device] the first op that could start on it
    last_ready: Wide  # [device] and the last
    next_ready: Wide  # [op]
    next_waiting: Wide  # [edge] of those whose transfer waits
    edge_rank: Wide  # [edge] of its transfer
    running: Wide  # [device] the op under way
    until: Floats  # [device] when it ends
    flying: Wide  # [k] the k-th edge whose transfer is under way
    landing: Floats  # [k] when that ends
    busy: Flags  # [channel]
    carrier: Wide  # [device] the edge that brings a tensor there


def floor_of(p: Arrays) -> Floor:
    n, devices = p.op_time.shape
    edges = len(p.consumers)
    return Floor(
        missing=np.empty(n, dtype=np.int64),
        first_ready=np.empty(devices, dtype=np.int64),
        last_ready=np.empty(devices, dtype=np.int64),
        next_ready=np.empty(n, dtype=np.int64),
        next_waiting=np.empty(edges, dtype=np.int64),
        edge_rank=np.empty(edges, dtype=np.int64),
        running=np.empty(devices, dtype=np.int64),
        until=np.empty(devices),
        flying=np.empty(edges, dtype=np.int64),
        landing=np.empty(edges),
        busy=np.empty(p.channel_count, dtype=np.bool_),
        carrier=np.empty(devices, dtype=np.int64),
    )


@kernel
def dispatch(p, device, rank, f, sequence):
    """The makespan of ops with ``rank[op]``, a permutation, the least of which goes first.

    A transfer has the rank of the first op that waits for it. `sequence` gets all ops (i) and
    edges (-1 - e) in the order in which they begin.
    """
    for op in range(len(device)):
        f.missing[op] = p.input_offsets[op + 1] - p.input_offsets[op]
    f.first_ready[:] = NONE
    f.running[:] = NONE
    f.busy[:] = False
    for op in range(len(device)):
        if f.missing[op] == 0:
            _make_ready(f, device, rank, op)
    now = 0.0
    flights, first_waiting, done = 0, NONE, 0
    while True:
        done = _begin_ops(p, device, now, f, sequence, done)
        first_waiting, flights, done = _send(
            p, device, now, f, first_waiting, flights, sequence, done
        )
        event = np.inf
        for d in range(len(f.running)):
            if f.running[d] != NONE:
                event = min(event, f.until[d])
        for k in range(flights):
            event = min(event, f.landing[k])
        if event == np.inf:
            return now
        now = event
        for d in range(len(f.running)):
            if f.running[d] != NONE and f.until[d] <= now:
                op = f.running[d]
                f.running[d] = NONE
                first_waiting, done = _hand_on(
                    p, device, rank, f, op, first_waiting, sequence, done
                )
        flights = _land(p, device, rank, now, f, flights)


@inner
def _make_ready(f, device, rank, op):
    d = device[op]
    before, after = NONE, f.first_ready[d]
    if after != NONE and rank[f.last_ready[d]] < rank[op]:
        before, after = f.last_ready[d], NONE
    while after != NONE and rank[after] < rank[op]:
        before, after = after, f.next_ready[after]
    f.next_ready[op] = after
    if after == NONE:
        f.last_ready[d] = op
    if before == NONE:
        f.first_ready[d] = op
    else:
        f.next_ready[before] = op


@inner
def _begin_ops(p, device, now, f, sequence, done):
    for d in range(len(f.running)):
        op = f.first_ready[d]
        if f.running[d] == NONE and op != NONE:
            f.first_ready[d] = f.next_ready[op]
            f.running[d] = op
            f.until[d] = now + p.op_time[op, d]
            sequence[done] = op
            done += 1
    return done


@inner
def _hand_on(p, device, rank, f, op, first_waiting, sequence, done):
    """What `op` made is there at once on its own device, and waits to be sent to others."""
    d = device[op]
    for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
        tensor = p.outputs[k]
        first, last = p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]
        for edge in range(first, last):
            f.carrier[device[p.consumers[edge]]] = NONE
        for edge in range(first, last):
            reader = p.consumers[edge]
            target = device[reader]
            if target == d:
                sequence[done] = -1 - edge
                done += 1
                _arrive(f, device, rank, reader)
            elif not p.by_tensor or f.carrier[target] == NONE:
                f.carrier[target] = edge
                f.edge_rank[edge] = rank[reader]
            else:
                carrier = f.carrier[target]
                f.edge_rank[carrier] = min(f.edge_rank[carrier], rank[reader])
        for edge in range(first, last):
            target = device[p.consumers[edge]]
            if target != d and (not p.by_tensor or f.carrier[target] == edge):
                first_waiting = _enqueue(f, edge, first_waiting)
    return first_waiting, done


@inner
def _arrive(f, device, rank, op):
    f.missing[op] -= 1
    if f.missing[op] == 0:
        _make_ready(f, device, rank, op)


@inner
def _enqueue(f, edge, first_waiting):
    """The first edge of the list, with `edge` in it behind those of the same rank."""
    before, after = NONE, first_waiting
    while after != NONE and f.edge_rank[after] <= f.edge_rank[edge]:
        before, after = after, f.next_waiting[after]
    f.next_waiting[edge] = after
    if before == NONE:
        return edge
    f.next_waiting[before] = edge
    return first_waiting


@inner
def _send(p, device, now, f, first_waiting, flights, sequence, done):
    """Begin the transfers whose channels are free."""
    before, edge = NONE, first_waiting
    while edge != NONE:
        after = f.next_waiting[edge]
        source, target = device[p.edge_ends[edge, 0]], device[p.edge_ends[edge, 1]]
        pair = source * len(f.running) + target
        first, last = p.channel_offsets[pair], p.channel_offsets[pair + 1]
        free = True
        for k in range(first, last):
            free = free and not f.busy[p.channels[k]]
        if not free:
            before = edge
        else:
            for k in range(first, last):
                f.busy[p.channels[k]] = True
            f.flying[flights] = edge
            f.landing[flights] = now + (
                p.link_latency[source, target]
                + p.edge_bytes[edge] * p.link_seconds_per_byte[source, target]
            )
            flights += 1
            done = _emit(p, device, edge, sequence, done)
            if before == NONE:
                first_waiting = after
            else:
                f.next_waiting[before] = after
        edge = after
    return first_waiting, flights, done


@inner
def _emit(p, device, edge, sequence, done):
    """All edges that the transfer serves, itself first."""
    sequence[done] = -1 - edge
    done += 1
    if p.by_tensor:
        tensor, target = p.edge_tensor[edge], device[p.consumers[edge]]
        for other in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
            if other != edge and device[p.consumers[other]] == target:
                sequence[done] = -1 - other
                done += 1
    return done


@inner
def _land(p, device, rank, now, f, flights):
    """End the transfers that are there; how many still fly."""
    k = 0
    while k < flights:
        if f.landing[k] > now:
            k += 1
            continue
        edge = f.flying[k]
        flights -= 1
        f.flying[k], f.landing[k] = f.flying[flights], f.landing[flights]
        source, target = device[p.edge_ends[edge, 0]], device[p.edge_ends[edge, 1]]
        pair = source * len(f.running) + target
        for c in range(p.channel_offsets[pair], p.channel_offsets[pair + 1]):
            f.busy[p.channels[c]] = False
        if not p.by_tensor:
            _arrive(f, device, rank, p.consumers[edge])
            continue
        tensor = p.edge_tensor[edge]
        for other in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
            reader = p.consumers[other]
            if device[reader] == target:
                _arrive(f, device, rank, reader)
    return flights
