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
from placewright.kernels.common.rows import copy_into, largest_of
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.problem import Problem, once_per_problem

MOST_SNAPSHOT_NUMBERS = 1 << 20
ROUNDING = 1e-12  # of seconds added up in another order


class Batches(NamedTuple):
    """What `Arrays` does not say of a problem of batches. A count is a number of chunks."""

    chunk: int  # inputs in a chunk
    time: (
        Floats  # [op, device, count] seconds; 0 for none, inf where the device takes no such batch
    )
    allowed: Flags  # [unit, device, count] whether the device takes that of every op of the unit
    op_unit: Ints
    unit_memory: Floats
    together: bool  # tensors of a batch follow one another, rather than go all at once
    producer: Ints  # [input edge, as in Arrays.inputs] the op that it comes from
    apart_time: Floats  # [input edge, source, target] seconds of one input's transfer


class Times(NamedTuple):
    """One evaluation of `finish_time`, of which another may go on from the middle.

    A snapshot is what it was before the op at every `stride`-th place of the order.
    """

    finish: Floats  # [op, device]
    arrival: Floats  # [edge, chunk] when the tensor is there; nothing where none contends
    device_free: Floats  # [snapshot, device]
    channel_free: Floats  # [snapshot, channel]


class Scratch(NamedTuple):
    """Arrays that `finish_time` borrows; `stride` places of the order lie between snapshots."""

    stride: int
    now: Times  # the last evaluation
    kept: Times  # the one that it may go on from
    ready: Floats  # [device]
    left: Floats  # [device] seconds that it is to compute
    count: Any  # [device] its chunks; tuples have a method of this name
    device_free: Floats
    channel_free: Floats
    moved: Wide  # [source, target] chunks of the tensor at hand
    seen: Wide  # [target] the last chunk that was counted
    there: Floats  # [source, target] when the tensor at hand is there


@once_per_problem
def batches_of(problem: Problem) -> Batches:
    """The arrays of a problem with objective ``batch-throughput``."""
    chunk = gcd(problem.options.batch, *problem.batch_sizes.tolist())
    time = _count_times(problem, chunk)
    edges = problem.op_inputs[1]
    return Batches(
        chunk,
        time,
        _allowed_counts(problem, time),
        problem.op_unit,
        problem.unit_memory,
        problem.options.contention != "none",
        problem.edge_producer[edges],
        _apart_times(problem, edges),
    )


def scratch_of(problem: Problem, channel_count: int) -> Scratch:
    d = problem.device_count
    stride = 1 + problem.op_count * (d + channel_count) // MOST_SNAPSHOT_NUMBERS
    return Scratch(
        stride,
        _times_of(problem, channel_count, stride),
        _times_of(problem, channel_count, stride),
        ready=np.empty(d),
        left=np.empty(d),
        count=np.empty(d, dtype=np.int64),
        device_free=np.empty(d),
        channel_free=np.empty(channel_count),
        moved=np.empty((d, d), dtype=np.int64),
        seen=np.empty(d, dtype=np.int64),
        there=np.empty((d, d)),
    )


def _times_of(problem: Problem, channel_count: int, stride: int) -> Times:
    batches = batches_of(problem)
    edges = len(problem.consumers) if batches.together else 0
    snapshots = (problem.op_count + stride - 1) // stride
    return Times(
        np.empty((problem.op_count, problem.device_count)),
        np.empty((edges, problem.options.batch // batches.chunk)),
        np.empty((snapshots, problem.device_count)),
        np.empty((snapshots, channel_count)),
    )


def _count_times(problem: Problem, chunk: int) -> Floats:
    counts = problem.options.batch // chunk
    time = np.full((problem.op_count, problem.device_count, counts + 1), np.inf)
    time[:, :, 0] = 0.0
    for number, size in enumerate(problem.batch_sizes.tolist()):
        if size <= problem.options.batch:
            time[:, :, size // chunk] = problem.batch_time[:, :, number]
    return time


def _apart_times(problem: Problem, edges: Ints) -> Floats:
    """Nothing where tensors go together: it is not asked for, and large."""
    if problem.options.contention != "none":
        return np.zeros((0, problem.device_count, problem.device_count))
    nbytes = problem.tensor_bytes[problem.edge_tensor[edges]]
    return problem.link_latency + nbytes[:, None, None] * problem.link_seconds_per_byte


def _allowed_counts(problem: Problem, time: Floats) -> Flags:
    allowed = np.ones((problem.unit_count, *time.shape[1:]), dtype=np.bool_)
    np.logical_and.at(allowed, problem.op_unit, np.isfinite(time))
    allowed &= problem.unit_allowed[:, :, None]
    allowed[:, :, 0] = True
    return allowed


@kernel
def finish_time(p, b, rows, order, s):
    """Seconds until the last batch ends, for ``rows[unit, chunk]`` devices; ops in `order`.

    Every batch and transfer comes as early as possible in this sequence: for each op its
    batches, by device, and then the transfers of its tensors, by source and target (with
    transfer unit ``edge`` by consumer first). `order` is topological; `s` is lent.
    """
    return finish_from(p, b, rows, order, order, 0, np.inf, s)


@kernel
def finish_from(p, b, rows, order, rank, first, limit, s):
    """`finish_time`, where ops before place `first` of the order do what they do in ``s.kept``.

    That is, neither they nor who reads from them, where tensors go together, are on other devices;
    ``rank[op]`` is the place of an op, looked at if `first` is above 0. Infinite as soon as some
    device cannot have computed all that is its by `limit`.
    """
    snapshot = first // s.stride
    begin = snapshot * s.stride
    if begin == 0:
        s.device_free[:] = 0.0
        s.channel_free[:] = 0.0
    else:
        copy_into(s.device_free, s.kept.device_free[snapshot])
        if b.together:
            copy_into(s.channel_free, s.kept.channel_free[snapshot])
    if limit < np.inf and not _may_end_by(b, rows, order, begin, limit, s):
        return np.inf
    for place in range(begin, len(order)):
        if place % s.stride == 0:
            copy_into(s.now.device_free[place // s.stride], s.device_free)
            if b.together:
                copy_into(s.now.channel_free[place // s.stride], s.channel_free)
        op = order[place]
        unit = b.op_unit[op]
        s.ready[:] = 0.0
        for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
            producer = b.producer[k]
            made = b.op_unit[producer]
            is_kept = begin > 0 and rank[producer] < begin
            for c in range(rows.shape[1]):
                source, device = rows[made, c], rows[unit, c]
                if b.together:
                    times = s.kept.arrival if is_kept else s.now.arrival
                    there = times[p.inputs[k], c]
                else:
                    times = s.kept.finish if is_kept else s.now.finish
                    there = times[producer, source] + b.apart_time[k, source, device]
                s.ready[device] = max(s.ready[device], there)
        _count_chunks(rows, unit, s.count)
        for d in range(len(s.count)):
            if s.count[d] > 0:
                seconds = b.time[op, d, s.count[d]]
                finish = max(s.device_free[d], s.ready[d]) + seconds
                s.now.finish[op, d] = s.device_free[d] = finish
                s.left[d] -= seconds
                if finish + s.left[d] > limit:
                    return np.inf
        if b.together:
            _send_outputs(p, b, rows, op, s)
    return largest_of(s.device_free)


@inlined
def _may_end_by(b, rows, order, begin, limit, s):
    """Whether what each device is to compute from a place of the order on fits before `limit`.

    How much that is stays in ``s.left``, a little less than it is for what is rounded on the way.
    """
    for d in range(len(s.left)):
        s.left[d] = 0.0
    for place in range(begin, len(order)):
        op = order[place]
        _count_chunks(rows, b.op_unit[op], s.count)
        for d in range(len(s.count)):
            s.left[d] += b.time[op, d, s.count[d]]
    fits = True
    for d in range(len(s.left)):
        s.left[d] -= ROUNDING * (s.device_free[d] + s.left[d])
        fits &= s.device_free[d] + s.left[d] <= limit
    return fits


@kernel
def keep_from(p, b, order, first, s):
    """Let the last evaluation, begun for place `first` of the order, be what others go on from."""
    snapshot = first // s.stride
    for place in range(snapshot * s.stride, len(order)):
        op = order[place]
        copy_into(s.kept.finish[op], s.now.finish[op])
        if b.together:
            for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
                tensor = p.outputs[k]
                for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
                    copy_into(s.kept.arrival[edge], s.now.arrival[edge])
    for number in range(snapshot, len(s.now.device_free)):
        copy_into(s.kept.device_free[number], s.now.device_free[number])
        copy_into(s.kept.channel_free[number], s.now.channel_free[number])


@inlined
def _count_chunks(rows, unit, count):
    for d in range(len(count)):
        count[d] = 0
    for c in range(rows.shape[1]):
        count[rows[unit, c]] += 1


@inner
def _send_outputs(p, b, rows, op, s):
    """Send the op's tensors, and note when what each chunk of a reader needs is there."""
    unit = b.op_unit[op]
    for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
        tensor = p.outputs[k]
        first, last = p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]
        step = max(last - first, 1) if p.by_tensor else 1
        for begin in range(first, last, step):
            _send_together(p, b, rows, op, tensor, begin, begin + step, s)
            for edge in range(begin, begin + step):
                reader = b.op_unit[p.consumers[edge]]
                for c in range(rows.shape[1]):
                    s.now.arrival[edge, c] = s.there[rows[unit, c], rows[reader, c]]


@inner
def _send_together(p, b, rows, op, tensor, first, last, s):
    """`there` of the op's tensor for the edges first … last - 1, channels booked."""
    s.moved[:] = 0
    s.seen[:] = -1
    unit = b.op_unit[op]
    for c in range(rows.shape[1]):
        for edge in range(first, last):
            target = rows[b.op_unit[p.consumers[edge]], c]
            if s.seen[target] != c:
                s.seen[target] = c
                s.moved[rows[unit, c], target] += 1
    for source in range(len(s.count)):
        if s.count[source] == 0:
            continue
        for target in range(len(s.count)):
            if source == target:
                s.there[source, target] = s.now.finish[op, source]
            elif s.moved[source, target] > 0:
                s.there[source, target] = send(
                    p, tensor, source, target, s.moved[source, target] * b.chunk,
                    s.now.finish[op, source], s.channel_free,
                )  # fmt: skip


@kernel
def send(p, tensor, source, target, inputs, ready, channel_free):
    """Book one transfer for some `inputs`; when it is there."""
    pair = source * p.link_latency.shape[0] + target
    first, last = p.channel_offsets[pair], p.channel_offsets[pair + 1]
    start = ready
    for k in range(first, last):
        start = max(start, channel_free[p.channels[k]])
    nbytes = p.tensor_bytes[tensor] * inputs
    finish = start + (
        p.link_latency[source, target] + nbytes * p.link_seconds_per_byte[source, target]
    )
    for k in range(first, last):
        channel_free[p.channels[k]] = finish
    return finish
