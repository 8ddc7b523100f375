"""Batches of inputs (DiviML §IV-A): the arrays that compiled code takes, and the evaluation.

Inputs come in chunks of g, the greatest common divisor of their number and of all batch sizes:
sums of batch sizes are multiples of it, so inputs of one chunk need never part. What is decided
is a row per unit: the device of each chunk.
"""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.common.arrays import transfer_time
from placewright.kernels.common.rows import copy_into, largest_of
from placewright.kernels.compiled import inlined, kernel
from placewright.problem import Problem, once_per_problem

MOST_SNAPSHOT_NUMBERS = 1 << 20
FEWEST_BETWEEN_SNAPSHOTS = 4  # places of the order: a snapshot costs about as much as an op
ROUNDING = 1e-11  # of seconds added up in another order


class Batches(NamedTuple):
    """What `Arrays` does not say of a problem of batches. A count is a number of chunks.

    Devices that take the same batches of every op in the same times are of one kind.
    """

    chunk: int  # inputs in a chunk
    kind: Ints  # [device]
    time: Floats  # [op, kind, count] seconds; 0 for none, inf where it takes no such batch
    allowed: Flags  # [unit, kind, count] whether the kind takes that of every op of the unit
    unit_time: Floats  # [unit, kind, count] seconds of all its ops
    op_unit: Ints
    unit_memory: Floats
    together: bool  # tensors of a batch follow one another, rather than go all at once
    producer: Ints  # [input edge, as in Arrays.inputs] the op that it comes from


class Scratch(NamedTuple):
    """What evaluations of `finish_time` note down: the last one, and the one it may go on from.

    Each op has two rows, and each snapshot: ``kept_row[op]`` is the one of what was kept
    (`keep_from`), and the last evaluation wrote the other. A snapshot is what it was before the op
    at every `stride`-th place of the order.
    """

    stride: int
    kept_row: Ints  # [op] 0 or 1
    kept_snapshot: Ints
    finish: Floats  # [row, op, chunk] when the batch ends that the chunk is in
    arrival: Floats  # [row, edge, chunk] when the tensor is there; nothing where none contends
    free_then: Floats  # [row, snapshot, device]
    channel_then: Floats  # [row, snapshot, channel]
    busy_then: Floats  # [row, snapshot, device]
    total: Floats  # [device] seconds that it computes, of what was kept
    # What the evaluation under way has of each device: when it is free, the seconds it has
    # computed, when its next batch may start and then when that ends, and its chunks.
    device_free: Floats
    busy: Floats
    ready: Floats
    count: Any  # tuples have a method of this name
    devices: Ints  # those of the op at hand
    channel_free: Floats
    moved: Ints  # [source · devices + target] chunks of the tensor at hand
    there: Floats  # [source · devices + target] when it is there
    pairs: Wide  # those it moves between
    seen: Wide  # [target] the last chunk that was counted, by its number of all (`number[0]`)
    number: Wide


@once_per_problem
def batches_of(problem: Problem) -> Batches:
    """The arrays of a problem with objective ``batch-throughput``."""
    chunk = gcd(problem.options.batch, *problem.batch_sizes.tolist())
    first, kind = _kinds(problem)
    time = _count_times(problem, chunk, first)
    unit_time = np.zeros((problem.unit_count, *time.shape[1:]))
    np.add.at(unit_time, problem.op_unit, time)
    allowed = np.isfinite(unit_time) & problem.unit_allowed[:, first, None]
    allowed[:, :, 0] = True
    return Batches(
        chunk,
        kind,
        time,
        allowed,
        unit_time,
        problem.op_unit,
        problem.unit_memory,
        problem.options.contention != "none",
        problem.edge_producer[problem.op_inputs[1]],
    )


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
        finish=np.empty((2, n, chunks)),
        arrival=np.empty((2, edges, chunks)),
        free_then=np.empty((2, snapshots, d)),
        channel_then=np.empty((2, snapshots, channel_count)),
        busy_then=np.empty((2, snapshots, d)),
        total=np.zeros(d),
        device_free=np.empty(d),
        busy=np.empty(d),
        ready=np.empty(d),
        count=np.zeros(d, dtype=np.int32),
        devices=np.empty(min(chunks, d), dtype=np.int32),
        channel_free=np.empty(channel_count),
        moved=np.zeros(d * d, dtype=np.int32),
        there=np.empty(d * d),
        pairs=np.empty(d * d, dtype=np.int64),
        seen=np.zeros(d, dtype=np.int64),
        number=np.zeros(1, dtype=np.int64),
    )


def _kinds(problem: Problem) -> tuple[Wide, Ints]:
    """A device of each kind, and `[device]` its kind."""
    number: dict[bytes, int] = {}
    kind = np.empty(problem.device_count, dtype=np.int32)
    for device in range(problem.device_count):
        columns = problem.batch_time[:, device].tobytes(), problem.unit_allowed[:, device].tobytes()
        kind[device] = number.setdefault(b"".join(columns), len(number))
    return np.unique(kind, return_index=True)[1], kind


def _count_times(problem: Problem, chunk: int, first: Wide) -> Floats:
    counts = problem.options.batch // chunk
    time = np.full((problem.op_count, len(first), counts + 1), np.inf)
    time[:, :, 0] = 0.0
    for number, size in enumerate(problem.batch_sizes.tolist()):
        if size <= problem.options.batch:
            time[:, :, size // chunk] = problem.batch_time[:, first, number]
    return time


@kernel
def finish_time(p, b, rows, order, s):
    """Seconds until the last batch ends, for ``rows[unit, chunk]`` devices; ops in `order`.

    Every batch and transfer comes as early as possible in this sequence: for each op its
    batches, by device, and then the transfers of its tensors, by source and target (with
    transfer unit ``edge`` by consumer first). `order` is topological; `s` is lent.
    """
    return finish_from(p, b, rows, order, order, 0, np.inf, s.total, s)


@kernel
def finish_from(p, b, rows, order, rank, first, limit, total, s):
    """`finish_time`, where ops before place `first` of the order do what they do in what was kept.

    That is, neither they nor who reads from them, where tensors go together, are on other devices;
    ``rank[op]`` is the place of an op, looked at if `first` is above 0. Infinite as soon as some
    device cannot have computed all that is its by `limit`: ``total[device]`` seconds, or more.
    """
    # Arrays stand in names of their own: reading a tuple's field in a loop takes longer than the
    # rest of it, and so does handing tuples on to another kernel.
    op_unit, producers, time, kind = b.op_unit, b.producer, b.time, b.kind
    together, input_offsets, inputs = b.together, p.input_offsets, p.inputs
    output_offsets, outputs, edge_tensor = p.output_offsets, p.outputs, p.edge_tensor
    consumer_offsets, consumers = p.consumer_offsets, p.consumers
    kept_row, finish, arrival = s.kept_row, s.finish, s.arrival
    links = p.link_latency, p.link_seconds_per_byte, p.channel_offsets, p.channels
    moving = s.channel_free, s.moved, s.there, s.pairs, s.seen, s.number
    by_tensor, tensor_bytes = p.by_tensor, p.tensor_bytes
    device_free, busy, ready, count, devices = s.device_free, s.busy, s.ready, s.count, s.devices
    chunks, stride = rows.shape[1], s.stride
    begin = first // stride * stride
    _begin_at(b, begin // stride, s)
    if limit < np.inf:
        for d in range(len(total)):
            if device_free[d] + (total[d] * (1 - ROUNDING) - busy[d]) > limit:
                return np.inf
    for place in range(begin, len(order)):
        if place % stride == 0:
            _take_snapshot(b, place // stride, s)
        op = order[place]
        unit, row = op_unit[op], 1 - kept_row[op]
        used = 0
        for c in range(chunks):
            d = rows[unit, c]
            if count[d] == 0:
                devices[used] = d
                ready[d] = 0.0
                used += 1
            count[d] += 1
        for k in range(input_offsets[op], input_offsets[op + 1]):
            producer = producers[k]
            side = kept_row[producer]
            if begin == 0 or rank[producer] >= begin:
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
            ready[d] = max(device_free[d], ready[d]) + seconds
            device_free[d] = ready[d]
            busy[d] += seconds
            is_late |= ready[d] + (total[d] * (1 - ROUNDING) - busy[d]) > limit
        if is_late:
            return np.inf
        for c in range(chunks):
            finish[row, op, c] = ready[rows[unit, c]]
        if not together:
            continue
        for k in range(output_offsets[op], output_offsets[op + 1]):
            tensor, moves = outputs[k], False
            for edge in range(consumer_offsets[tensor], consumer_offsets[tensor + 1]):
                reader = op_unit[consumers[edge]]
                for c in range(chunks):
                    arrival[row, edge, c] = finish[row, op, c]
                    moves |= rows[unit, c] != rows[reader, c]
            if moves:
                first_edge, last_edge = consumer_offsets[tensor], consumer_offsets[tensor + 1]
                step = last_edge - first_edge if by_tensor else 1
                for edge in range(first_edge, last_edge, step):
                    _send_together(
                        links, tensor_bytes[tensor], b.chunk, rows, unit, op_unit, consumers,
                        edge, edge + step, ready, moving, arrival[row],
                    )  # fmt: skip
    return largest_of(device_free)


@inlined
def _begin_at(b, number, s):
    """Go on from a snapshot of what was kept; from nothing at number 0."""
    if number == 0:
        s.device_free[:] = 0.0
        s.channel_free[:] = 0.0
        s.busy[:] = 0.0
        return
    row = s.kept_snapshot[number]
    copy_into(s.device_free, s.free_then[row, number])
    copy_into(s.busy, s.busy_then[row, number])
    if b.together:
        copy_into(s.channel_free, s.channel_then[row, number])


@inlined
def _take_snapshot(b, number, s):
    row = 1 - s.kept_snapshot[number]
    copy_into(s.free_then[row, number], s.device_free)
    copy_into(s.busy_then[row, number], s.busy)
    if b.together:
        copy_into(s.channel_then[row, number], s.channel_free)


@kernel
def keep_from(order, first, s):
    """Let the last evaluation, begun for place `first` of the order, be what others go on from."""
    snapshot = first // s.stride
    for place in range(snapshot * s.stride, len(order)):
        s.kept_row[order[place]] = 1 - s.kept_row[order[place]]
    for number in range(snapshot, len(s.kept_snapshot)):
        s.kept_snapshot[number] = 1 - s.kept_snapshot[number]
    copy_into(s.total, s.busy)


@inlined
def _send_together(
    links, input_bytes, chunk, rows, unit, op_unit, consumers, first, last, ready, moving, arrival
):
    """Send a tensor of a unit's op to the readers of edges first … last - 1; into `arrival`.

    Of each input `input_bytes`; its batch on a device ends when that is `ready`.
    """
    channel_free, moved, there, pairs, seen, number = moving
    devices, used = len(ready), 0
    for c in range(rows.shape[1]):
        source = rows[unit, c]
        number[0] += 1
        for edge in range(first, last):
            target = rows[op_unit[consumers[edge]], c]
            if target != source and seen[target] != number[0]:
                seen[target] = number[0]
                used = count_pair(np.int64(source) * devices + target, moved, pairs, used)
    for i in range(used):
        pair = pairs[i]
        source = pair // devices
        target = pair - source * devices
        nbytes = input_bytes * (moved[pair] * chunk)
        there[pair] = book(links, source, target, nbytes, ready[source], channel_free)
        moved[pair] = 0
    for edge in range(first, last):
        reader = op_unit[consumers[edge]]
        for c in range(rows.shape[1]):
            source, target = rows[unit, c], rows[reader, c]
            if source != target:
                arrival[edge, c] = there[np.int64(source) * devices + target]


@inlined
def book(links, source, target, nbytes, ready, channel_free):
    """Book the channels of one transfer, as soon as it is ready and they are free; when it ends."""
    latency, per_byte, channel_offsets, channels = links
    pair = np.int64(source) * latency.shape[0] + target
    first, last = channel_offsets[pair], channel_offsets[pair + 1]
    start = ready
    for k in range(first, last):
        start = max(start, channel_free[channels[k]])
    finish = start + (latency[source, target] + nbytes * per_byte[source, target])
    for k in range(first, last):
        channel_free[channels[k]] = finish
    return finish


@inlined
def count_pair(pair, moved, pairs, used):
    """One chunk more that moves between two devices; the `used` pairs that any moves between rise.

    Returns how many these are now.
    """
    moved[pair] += 1
    if moved[pair] > 1:
        return used
    i = used
    while i > 0 and pairs[i - 1] > pair:
        pairs[i] = pairs[i - 1]
        i -= 1
    pairs[i] = pair
    return used + 1
