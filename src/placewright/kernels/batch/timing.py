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
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.problem import Problem, once_per_problem


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


class Scratch(NamedTuple):
    """Arrays that `finish_time` borrows."""

    ready: Floats  # [op, device]
    finish: Floats  # [op, device]
    count: Any  # [device] its chunks; tuples have a method of this name
    device_free: Floats
    channel_free: Floats
    moved: Wide  # [source, target] chunks of the tensor at hand
    seen: Wide  # [target] the last chunk that was counted
    arrival: Floats  # [source, target]


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
    return Scratch(
        ready=np.empty((problem.op_count, d)),
        finish=np.empty((problem.op_count, d)),
        count=np.empty(d, dtype=np.int64),
        device_free=np.empty(d),
        channel_free=np.empty(channel_count),
        moved=np.empty((d, d), dtype=np.int64),
        seen=np.empty(d, dtype=np.int64),
        arrival=np.empty((d, d)),
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
    s.device_free[:] = 0.0
    if not b.together:
        return _finish_apart(p, b, rows, order, s)
    s.ready[:] = 0.0
    s.channel_free[:] = 0.0
    makespan = 0.0
    for op in order:
        unit = b.op_unit[op]
        _count_chunks(rows, unit, s.count)
        makespan = max(makespan, _run(b, op, s.ready[op], s))
        for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
            tensor = p.outputs[k]
            first, last = p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]
            step = max(last - first, 1) if p.by_tensor else 1
            for edge in range(first, last, step):
                _send_together(p, b, rows, op, tensor, edge, edge + step, s)
                _deliver(p, b, rows, unit, edge, edge + step, s)
    return makespan


@inner
def _finish_apart(p, b, rows, order, s):
    """`finish_time` where nothing contends: transfers need no booking."""
    ready = s.ready[0]
    makespan = 0.0
    for op in order:
        unit = b.op_unit[op]
        ready[:] = 0.0
        for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
            producer = b.producer[k]
            made = b.op_unit[producer]
            for c in range(rows.shape[1]):
                a, d = rows[made, c], rows[unit, c]
                ready[d] = max(ready[d], s.finish[producer, a] + b.apart_time[k, a, d])
        _count_chunks(rows, unit, s.count)
        makespan = max(makespan, _run(b, op, ready, s))
    return makespan


@inlined
def _count_chunks(rows, unit, count):
    for d in range(len(count)):
        count[d] = 0
    for c in range(rows.shape[1]):
        count[rows[unit, c]] += 1


@inlined
def _run(b, op, ready, s):
    """Time the op's batches; the last finish."""
    last = 0.0
    for d in range(len(s.count)):
        if s.count[d] > 0:
            finish = max(s.device_free[d], ready[d]) + b.time[op, d, s.count[d]]
            s.finish[op, d] = s.device_free[d] = finish
            last = max(last, finish)
    return last


@inner
def _send_together(p, b, rows, op, tensor, first, last, s):
    """`arrival` of the op's tensor for the edges first … last - 1, channels booked."""
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
                s.arrival[source, target] = s.finish[op, source]
            elif s.moved[source, target] > 0:
                s.arrival[source, target] = send(
                    p, tensor, source, target, s.moved[source, target] * b.chunk,
                    s.finish[op, source], s.channel_free,
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


@inlined
def _deliver(p, b, rows, unit, first, last, s):
    """Consumers' batches wait for what their inputs need."""
    for edge in range(first, last):
        reader = p.consumers[edge]
        there = b.op_unit[reader]
        for c in range(rows.shape[1]):
            d = rows[there, c]
            s.ready[reader, d] = max(s.ready[reader, d], s.arrival[rows[unit, c], d])
