"""Timing a batch of inputs anew after a change: from the first place of the order that may differ,
no further than differences reach.

What is known of the schedule that was kept makes a change cheap to judge:

- snapshots of what devices and channels are busy until, from which timing can begin;
- where such a state is met again and nothing that differs is read any more, the rest is as it was;
- `tails`: a batch behind all changes that starts so late that its tail passes the limit ends the
  matter, and so does a device or channel that is free so late.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placewright.graph import Floats, Ints, Wide
from placewright.kernels.batch.arrays import batches_of
from placewright.kernels.batch.tails import find_tails
from placewright.kernels.batch.transfers import send
from placewright.kernels.common.arrays import transfer_time
from placewright.kernels.common.rows import copy_into, equal_rows, largest_of
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.problem import Problem

MOST_SNAPSHOT_NUMBERS = 1 << 20
FEWEST_BETWEEN_SNAPSHOTS = 4  # places of the order: a snapshot costs about as much as an op
ROUNDING = 1e-11  # of seconds added up in another order


class Scratch(NamedTuple):
    """A schedule that was kept, and what timing another notes down.

    Each op has two rows, and each snapshot: ``kept_row[op]`` is the one of what was kept, and
    the last evaluation wrote the other. A snapshot is what it was before the op at every
    `stride`-th place of the order.
    """

    stride: int
    kept_row: Ints  # [op] 0 or 1
    kept_snapshot: Ints
    kept_value: Floats  # [0] seconds
    stopped: Wide  # [0] the place from which on the last evaluation found all as it was
    finish: Floats  # [row, op, chunk] when the batch ends that the chunk is in
    arrival: Floats  # [row, edge, chunk] when the tensor is there; nothing where none contends
    free_then: Floats  # [row, snapshot, device]
    channel_then: Floats  # [row, snapshot, channel]
    work_then: Floats  # [row, snapshot, device] seconds that it computes from there on
    tail: Floats  # [op, chunk] seconds from the start of its batch to the end of everything
    device_after: Floats  # [snapshot, device] seconds from the start of its next batch to the end
    channel_after: Floats  # [snapshot, channel] the same of its next transfer
    # What the evaluation under way has of each device: when it is free, the seconds it has yet
    # to compute, when its next batch may start and then when that ends, and its chunks.
    device_free: Floats
    work: Floats
    ready: Floats
    count: Any  # tuples have a method of this name
    devices: Ints  # those of the op at hand
    a_chunk: Ints  # on each of these
    channel_free: Floats
    moved: Ints  # [source · devices + target] chunks of the tensor at hand
    there: Floats  # [source · devices + target] when it is there
    pairs: Wide  # those it moves between
    seen: Wide  # [target] the last chunk that was counted, by its number of all (`number[0]`)
    number: Wide


def scratch_of(problem: Problem, channel_count: int) -> Scratch:
    n, d = problem.op_count, problem.device_count
    b = batches_of(problem)
    chunks = b.time.shape[2] - 1
    edges = len(problem.consumers) if b.together else 0
    stride = max(FEWEST_BETWEEN_SNAPSHOTS, 1 + n * (d + channel_count) // MOST_SNAPSHOT_NUMBERS)
    snapshots = (n + stride - 1) // stride
    return Scratch(
        stride,
        kept_row=np.zeros(n, dtype=np.int32),
        kept_snapshot=np.zeros(snapshots, dtype=np.int32),
        kept_value=np.zeros(1),
        stopped=np.zeros(1, dtype=np.int64),
        finish=np.empty((2, n, chunks)),
        arrival=np.empty((2, edges, chunks)),
        free_then=np.zeros((2, snapshots, d)),
        channel_then=np.zeros((2, snapshots, channel_count)),
        work_then=np.zeros((2, snapshots, d)),
        tail=np.zeros((n, chunks)),
        device_after=np.zeros((snapshots + 1, d)),
        channel_after=np.zeros((snapshots + 1, channel_count)),
        device_free=np.empty(d),
        work=np.empty(d),
        ready=np.empty(d),
        count=np.zeros(d, dtype=np.int32),
        devices=np.empty(min(chunks, d), dtype=np.int32),
        a_chunk=np.empty(min(chunks, d), dtype=np.int32),
        channel_free=np.zeros(channel_count),
        moved=np.zeros(d * d, dtype=np.int32),
        there=np.empty(d * d),
        pairs=np.empty(d * d, dtype=np.int64),
        seen=np.zeros(d, dtype=np.int64),
        number=np.zeros(1, dtype=np.int64),
    )


@kernel
def settle(p, b, rows, order, rank, s):
    """Seconds until the last batch ends, for ``rows[unit, chunk]`` devices; keeps all of it.

    Every batch and transfer comes as early as possible in this sequence: for each op of `order`,
    a topological one, its batches, by device, and then the transfers of its tensors, by source
    and target (with transfer unit ``edge`` by consumer first). ``rank[op]`` is its place in it.
    """
    work, count = s.work_then[s.kept_snapshot[0], 0], s.count
    work[:] = 0.0
    for op in order:
        row = rows[b.op_unit[op]]
        for d in row:
            count[d] += 1
        for d in row:
            if count[d] > 0:
                work[d] += b.time[op, b.kind[d], count[d]]
                count[d] = 0
    end = len(order) - 1
    s.ready[:] = 0.0  # that no device computes more than `work`: read before it is written
    value = retime(p, b, rows, order, rank, np.int64(0), np.int64(end), np.inf, s.ready, s)
    commit(order, np.int64(0), s.ready, value, s)
    find_tails(p, b, rows, order, rank, np.int64(0), np.int64(end), s)
    return value


@kernel
def retime(p, b, rows, order, rank, first, last, limit, more, s):
    """Seconds until the last batch ends after a change to what was kept, or inf if after `limit`.

    Places before `first` are as they were; `last` is the last whose op is another or is split in
    another way. Device d computes ``more[d]`` seconds more than before. Afterwards `commit` the
    change, and then `find_tails`, or put `rows` and `order` back.
    """
    # Arrays stand in names of their own: reading a tuple's field in a loop takes longer than the
    # rest of it, and so does handing tuples on to another kernel.
    op_unit, producers, time, kind = b.op_unit, b.producer, b.time, b.kind
    together, input_offsets, inputs = b.together, p.input_offsets, p.inputs
    output_offsets, outputs, edge_tensor = p.output_offsets, p.outputs, p.edge_tensor
    consumer_offsets, consumers, tail = p.consumer_offsets, p.consumers, s.tail
    kept_row, finish, arrival = s.kept_row, s.finish, s.arrival
    links = p.link_latency, p.link_seconds_per_byte, p.channel_offsets, p.channels
    moving = s.channel_free, s.moved, s.there, s.pairs, s.seen, s.number
    by_tensor, tensor_bytes = p.by_tensor, p.tensor_bytes
    device_free, work, ready, count, devices = s.device_free, s.work, s.ready, s.count, s.devices
    chunks, stride, a_chunk = rows.shape[1], s.stride, s.a_chunk
    begin = first // stride * stride
    late = limit + ROUNDING * abs(limit)
    _begin_at(b, begin // stride, more, s)
    for d in range(len(work)):
        if device_free[d] + work[d] > late:
            return np.inf
    reach, looked_ahead = last, False
    for place in range(begin, len(order)):
        if place % stride == 0:
            if place > last:
                if place > reach and _is_as_kept(b, place // stride, s):
                    s.stopped[0] = place
                    return s.kept_value[0]
                if not looked_ahead and _is_late(place // stride, late, s):
                    return np.inf
                looked_ahead = True
            _take_snapshot(b, place // stride, s)
        op = order[place]
        unit, row = op_unit[op], 1 - kept_row[op]
        used = 0
        for c in range(chunks):
            d = rows[unit, c]
            if count[d] == 0:
                devices[used] = d
                a_chunk[used] = c
                ready[d] = device_free[d]
                used += 1
            count[d] += 1
        for k in range(input_offsets[op], input_offsets[op + 1]):
            producer = producers[k]
            side = kept_row[producer]
            if rank[producer] >= begin:
                side = 1 - side
            if together:
                for c in range(chunks):
                    d = rows[unit, c]
                    ready[d] = max(ready[d], arrival[side, inputs[k], c])
            else:
                tensor, made = edge_tensor[inputs[k]], op_unit[producer]
                for c in range(chunks):
                    source, d = rows[made, c], rows[unit, c]
                    there = finish[side, producer, c] + transfer_time(p, tensor, source, d)
                    ready[d] = max(ready[d], there)
        is_late = False
        for i in range(used):
            d = devices[i]
            seconds = time[op, kind[d], count[d]]
            count[d] = 0
            work[d] -= seconds
            if place > last:
                is_late |= ready[d] + tail[op, a_chunk[i]] > late
            ready[d] += seconds
            device_free[d] = ready[d]
            is_late |= ready[d] + work[d] > late
        if is_late:
            return np.inf
        differs = not together and place <= last  # or it may come from elsewhere
        for c in range(chunks):
            there = ready[rows[unit, c]]
            differs |= there != finish[1 - row, op, c]
            finish[row, op, c] = there
        for k in range(output_offsets[op], output_offsets[op + 1]):
            tensor, moves = outputs[k], False
            first_edge, last_edge = consumer_offsets[tensor], consumer_offsets[tensor + 1]
            if together:
                for edge in range(first_edge, last_edge):
                    reader = op_unit[consumers[edge]]
                    for c in range(chunks):
                        arrival[row, edge, c] = finish[row, op, c]
                        moves |= rows[unit, c] != rows[reader, c]
            if moves:
                step = last_edge - first_edge if by_tensor else 1
                for edge in range(first_edge, last_edge, step):
                    send(
                        links, tensor_bytes[tensor], b.chunk, rows, unit, op_unit, consumers,
                        edge, edge + step, ready, moving, arrival[row],
                    )  # fmt: skip
            for edge in range(first_edge, last_edge):
                other = differs
                if together:
                    for c in range(chunks):
                        other |= arrival[row, edge, c] != arrival[1 - row, edge, c]
                if other:
                    reach = max(reach, rank[consumers[edge]])
    s.stopped[0] = len(order)
    return largest_of(device_free)


@inlined
def _begin_at(b, number, more, s):
    """Go on from a snapshot of what was kept."""
    row = s.kept_snapshot[number]
    copy_into(s.device_free, s.free_then[row, number])
    if b.together:
        copy_into(s.channel_free, s.channel_then[row, number])
    for d in range(len(more)):
        s.work[d] = s.work_then[row, number, d] + more[d]


@inlined
def _take_snapshot(b, number, s):
    row = 1 - s.kept_snapshot[number]
    copy_into(s.free_then[row, number], s.device_free)
    copy_into(s.work_then[row, number], s.work)
    if b.together:
        copy_into(s.channel_then[row, number], s.channel_free)


@inner
def _is_as_kept(b, number, s):
    """Whether devices and channels are free when they were in what was kept."""
    row = s.kept_snapshot[number]
    same = equal_rows(s.device_free, s.free_then[row, number])
    return same and (not b.together or equal_rows(s.channel_free, s.channel_then[row, number]))


@inner
def _is_late(number, late, s):
    """Whether some device or channel is free too late for what it has yet to do."""
    found = False
    for d in range(len(s.device_free)):
        found |= s.device_free[d] + s.device_after[number, d] > late
    for k in range(len(s.channel_free)):
        found |= s.channel_free[k] + s.channel_after[number, k] > late
    return found


@kernel
def commit(order, first, more, value, s):
    """Keep what the last evaluation found, begun for place `first`; `more` as it was given."""
    snapshot = first // s.stride
    end = s.stopped[0]
    for number in range(snapshot):
        for d in range(len(more)):
            s.work_then[s.kept_snapshot[number], number, d] += more[d]
    for place in range(snapshot * s.stride, end):
        s.kept_row[order[place]] = 1 - s.kept_row[order[place]]
    for number in range(snapshot, (end + s.stride - 1) // s.stride):
        s.kept_snapshot[number] = 1 - s.kept_snapshot[number]
    s.kept_value[0] = value
