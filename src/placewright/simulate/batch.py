"""Time to finish a batch of inputs (objective ``batch-throughput``; DiviML §IV-A).

All inputs of an op that are on one device make one batch there. `expand` turns a placement of
inputs into a problem of latency: an op per batch, pinned to its device, lasting as long as its
size takes there. What a batch of inputs gives to a batch on another device goes together:

- contention ``none``: each input's tensor goes on its own and all at once, so it takes as long
  as one tensor does (DiviML eq. 3);
- otherwise the tensors follow one another and share one latency.

With transfer unit ``tensor`` an input's tensor goes once to each device, else once per consumer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.options import Options
from placewright.outcome import Batches, BatchSchedule, BatchTransfers, Schedule, Transfers
from placewright.plan import Placement, Plan
from placewright.problem import Problem


@dataclass(frozen=True, eq=False)
class Expansion:
    """`problem` has an op per batch: of `op[batch]`, on `device[batch]`, with `size[batch]` inputs.

    Its tensors carry `tensor[t]` of the original for `inputs[t]` inputs.
    """

    problem: Problem
    op: Ints
    device: Ints
    size: Ints
    tensor: Ints
    inputs: Ints


def run_batches(problem: Problem, placement: Placement) -> BatchSchedule:
    """The schedule of a placement ``device[op, input]``, in its own sequence or a good one."""
    from placewright.simulate.latency import time_placement

    expansion = expand(problem, placement.device)
    schedule = time_placement(
        expansion.problem, Placement(expansion.device, sequence=placement.sequence)
    )
    sent = schedule.transfers
    consumer = np.where(sent.consumer >= 0, expansion.op[sent.consumer], -1)
    return BatchSchedule(
        Batches(
            expansion.op, expansion.device, expansion.size, schedule.op_start, schedule.op_finish
        ),
        BatchTransfers(
            expansion.tensor[sent.tensor],
            consumer,
            sent.source,
            sent.target,
            expansion.inputs[sent.tensor],
            sent.start,
            sent.finish,
        ),
    )


def batch_sequence(plan: Plan, outcome: BatchSchedule) -> Ints:
    """The schedule of a plan as one order of the items of its expansion (`Placement.sequence`).

    Transfers of one tensor for as many inputs between the same batches are taken in the order of
    their starts.
    """
    from placewright.simulate.latency import schedule_sequence

    expansion = expand(plan.problem, plan.placement.device)
    problem, sent = expansion.problem, outcome.transfers
    by_tensor = problem.options.transfer_unit == "tensor"
    target = expansion.device[problem.consumers]
    source = expansion.device[problem.edge_producer]
    edge = np.flatnonzero(source != target)
    if by_tensor:  # once to each device, for the first edge that it serves
        pairs = problem.edge_tensor[edge].astype(np.int64) * problem.device_count + target[edge]
        edge = edge[np.unique(pairs, return_index=True)[1]]
    tensor, consumer = problem.edge_tensor[edge], problem.consumers[edge]
    reader = np.full(len(edge), -1) if by_tensor else expansion.op[consumer]
    here = np.lexsort(
        (edge, expansion.inputs[tensor], source[edge], target[edge], reader,
         expansion.tensor[tensor])
    )  # fmt: skip
    theirs = np.lexsort(
        (sent.start, sent.inputs, sent.source, sent.target, sent.consumer, sent.tensor)
    )
    start, finish = np.empty(len(edge)), np.empty(len(edge))
    start[here], finish[here] = sent.start[theirs], sent.finish[theirs]
    batch = np.lexsort((outcome.batches.device, outcome.batches.op))
    schedule = Schedule(
        outcome.batches.start[batch],
        outcome.batches.finish[batch],
        Transfers(
            tensor,
            np.full(len(edge), -1) if by_tensor else consumer,
            source[edge],
            target[edge],
            start,
            finish,
        ),
    )
    placed = Placement(expansion.device)
    return schedule_sequence(Plan(problem, placed, schedule, plan.value, 0.0, "none", plan.planner))


def expand(problem: Problem, device: Ints) -> Expansion:
    """The latency problem of a placement ``device[op, input]``; batches by op, then device.

    O(E · L log(E · L)), in whole columns: searches ask for thousands of these.
    """
    places = problem.device_count
    counts = np.bincount(
        (np.arange(problem.op_count)[:, None] * places + device).ravel(),
        minlength=problem.op_count * places,
    )
    batches = np.flatnonzero(counts)
    ops, devices = np.divmod(batches, places)
    sizes = counts[batches]
    batch_of = np.empty(len(counts), dtype=np.int64)
    batch_of[batches] = np.arange(len(batches))
    tensors = _tensors(problem, device, batch_of)
    nbytes = problem.tensor_bytes[tensors.tensor]
    if problem.options.contention != "none":
        nbytes = nbytes * tensors.inputs
    listed = ops.tolist()
    expanded = replace(
        problem,
        op_names=tuple(
            f"{problem.op_names[op]} × {size} on {problem.device_names[where]}"
            for op, where, size in zip(listed, devices.tolist(), sizes.tolist(), strict=True)
        ),
        op_types=tuple(problem.op_types[op] for op in listed),
        op_modules=tuple(problem.op_modules[op] for op in listed),
        op_time=_times(problem, ops, devices, sizes),
        op_memory=problem.op_memory[ops],
        op_sync_bytes=problem.op_sync_bytes[ops],
        op_cost_source=np.empty(0, dtype=np.int8),
        op_cost_spread=np.empty(0),
        op_cache=np.empty(0),
        op_copied=np.empty(0),
        op_stash=np.empty(0),
        is_backward=problem.is_backward[ops],
        forward_twin=np.full(len(ops), -1),
        colocation=np.full(len(ops), -1),
        op_pinned=devices,
        tensor_producer=tensors.producer.astype(np.int32),
        tensor_bytes=nbytes,
        consumer_offsets=tensors.offsets,
        consumers=tensors.consumers.astype(np.int32),
        batch_sizes=np.zeros(0, dtype=np.int32),
        batch_time=np.zeros(0),
        options=Options(
            transfer_unit=problem.options.transfer_unit, contention=problem.options.contention
        ),
    )
    whole = [
        each.astype(np.int32) for each in (ops, devices, sizes, tensors.tensor, tensors.inputs)
    ]
    return Expansion(expanded, *whole)


def _times(problem: Problem, ops: Wide, devices: Wide, sizes: Wide) -> Floats:
    """`[batch, device]`: what its size takes where it is; `inf` elsewhere, and of other sizes."""
    index = np.searchsorted(problem.batch_sizes, sizes)
    index = np.minimum(index, len(problem.batch_sizes) - 1)
    time = problem.batch_time[ops, devices, index]
    op_time = np.full((len(ops), problem.device_count), np.inf)
    op_time[np.arange(len(ops)), devices] = np.where(
        problem.batch_sizes[index] == sizes, time, np.inf
    )
    return op_time


@dataclass(frozen=True, eq=False)
class _Tensors:
    """Those of an expansion: the original `tensor`, for how many `inputs`, and who has to do
    with it, consumers ``consumers[offsets[t]:offsets[t + 1]]``."""

    tensor: Wide
    inputs: Wide
    producer: Wide
    offsets: Wide
    consumers: Wide


def _tensors(problem: Problem, device: Ints, batch_of: Wide) -> _Tensors:
    """One for each tensor, device it is made on and device it is read on, in this order.

    Transfer unit ``edge``: for each edge in place of each tensor. `batch_of[op · D + device]`.
    """
    places, inputs = problem.device_count, device.shape[1]
    by_edge = problem.options.transfer_unit == "edge"
    edges = np.arange(problem.edge_count, dtype=np.int64)
    group = edges if by_edge else problem.edge_tensor.astype(np.int64)
    producer, consumer = problem.edge_producer, problem.consumers
    route = (group[:, None] * places + device[producer]) * places + device[consumer]
    carried = _first_of_equals(np.sort((route * inputs + np.arange(inputs)).ravel())) // inputs
    starts = np.flatnonzero(_differs(carried))
    routes, count = carried[starts], np.diff(np.append(starts, len(carried)))
    # A consumer once for each route that some input takes to it.
    ordered = np.sort(route, axis=1)
    is_first = _differs(ordered)
    edge = np.repeat(edges, is_first.sum(axis=1))
    taken = ordered[is_first]
    by_route = np.argsort(taken, kind="stable")
    reader = consumer[edge[by_route]].astype(np.int64)
    offsets = np.append(np.searchsorted(taken[by_route], routes), len(taken))
    group, source, target = routes // places**2, routes // places % places, routes % places
    tensor = problem.edge_tensor[group].astype(np.int64) if by_edge else group
    return _Tensors(
        tensor,
        count,
        batch_of[problem.tensor_producer[tensor] * places + source],
        offsets,
        batch_of[reader * places + np.repeat(target, np.diff(offsets))],
    )


def _differs(ordered: Wide) -> Flags:
    """Whether a number is the first of its kind along the last axis, in which they are sorted."""
    is_first: Flags = np.ones(ordered.shape, dtype=np.bool_)
    is_first[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    return is_first


def _first_of_equals(ordered: Wide) -> Wide:
    """As `np.unique`, which hashes, and so takes ten times as long."""
    return ordered[_differs(ordered)]
