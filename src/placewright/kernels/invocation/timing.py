"""Invocation latency of a given assignment of ops to slots (Tarnawski et al. 2020, §4).

A slot is one invocation of a device: ``slot = (device · 2 + way) · subgraphs + number`` with way
0 for forward and 1 for backward ops. A device runs its slots in this order. On a CPU the slot
means its device alone. The naive twin is `simulate.invocation.invoke`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Ints, Whole, Wide
from placewright.kernels.compiled import inner, kernel
from placewright.problem import Problem, once_per_problem

READS, WRITES = 1, 0  # rows of host_latency and host_seconds_per_byte


class Network(NamedTuple):
    """See `Problem` for the meaning; CSR pairs are ``…_offsets`` with what they index."""

    op_time: Floats
    op_memory: Floats
    op_way: Wide
    op_unit: Ints
    unit_offsets: Wide
    unit_ops: Ints
    unit_allowed: Flags  # [unit, device]
    tensor_producer: Ints
    tensor_bytes: Floats
    consumer_offsets: Wide
    consumers: Ints
    input_offsets: Wide
    input_tensors: Ints
    output_offsets: Wide
    outputs: Ints
    host_latency: Floats
    host_seconds_per_byte: Floats
    is_cpu: Flags
    device_memory: Floats
    subgraphs: int


class Work(NamedTuple):
    """What one evaluation writes; a node is an op (on a CPU) or ops + slot."""

    node: Wide  # [op]
    next_op: Wide  # [op] the next member of its slot
    first_op: Wide  # [slot] or -1
    seen: Wide  # [slot] the last tensor it was found to read
    parts: Floats  # [slot] seconds
    pending: Wide  # [node] inputs not there yet
    ready: Floats  # [node] seconds
    queue: Wide  # [node]


@once_per_problem
def network_of(problem: Problem) -> Network:
    """The problem's arrays."""
    input_offsets, edges = problem.op_inputs
    output_offsets, outputs = problem.op_outputs
    unit_ops = np.argsort(problem.op_unit, kind="stable").astype(np.int32)
    units = np.arange(problem.unit_count + 1)
    return Network(
        problem.op_time,
        problem.op_memory,
        problem.is_backward.astype(np.int64),
        problem.op_unit,
        np.searchsorted(problem.op_unit[unit_ops], units),
        unit_ops,
        problem.unit_allowed.copy(),
        problem.tensor_producer,
        problem.tensor_bytes,
        problem.consumer_offsets,
        problem.consumers,
        input_offsets,
        problem.edge_tensor[edges],
        output_offsets,
        outputs,
        problem.host_latency,
        problem.host_seconds_per_byte,
        problem.is_cpu,
        problem.device_memory,
        problem.options.subgraphs,
    )


def equal_accelerators(problem: Problem) -> list[list[int]]:
    """Accelerators in groups whose members can be swapped without changing any latency."""
    groups: list[list[int]] = []
    for device in np.flatnonzero(~problem.is_cpu).tolist():
        for group in groups:
            if _swappable(problem, group[0], device):
                group.append(device)
                break
        else:
            groups.append([device])
    return groups


def _swappable(problem: Problem, one: int, two: int) -> bool:
    columns = (
        problem.unit_time,
        problem.op_time,
        problem.host_latency,
        problem.host_seconds_per_byte,
    )
    return problem.device_memory[one] == problem.device_memory[two] and all(
        np.array_equal(column[:, one], column[:, two]) for column in columns
    )


def slot_count(problem: Problem) -> int:
    return problem.device_count * 2 * problem.options.subgraphs


def work_for(problem: Problem) -> Work:
    """Arrays that `evaluate` borrows."""
    ops, slots = problem.op_count, slot_count(problem)
    return Work(
        np.empty(ops, dtype=np.int64),
        np.empty(ops, dtype=np.int64),
        np.empty(slots, dtype=np.int64),
        np.empty(slots, dtype=np.int64),
        np.empty(slots),
        np.empty(ops + slots, dtype=np.int64),
        np.empty(ops + slots),
        np.empty(ops + slots, dtype=np.int64),
    )


def latency(problem: Problem, op_slot: Whole) -> float:
    """Seconds; infinite if the slots wait for each other in a circle."""
    slots = np.ascontiguousarray(op_slot, dtype=np.int64)
    return float(evaluate(network_of(problem), slots, work_for(problem)))


@kernel
def evaluate(net, op_slot, work):
    """Seconds until the last output is in host memory; infinite if no order can run the slots."""
    waiting = _join(net, op_slot, work)
    _transfer(net, op_slot, work)
    return _run(net, op_slot, work, waiting)


@inner
def _join(net, op_slot, work):
    """Give ops their nodes, and slots their members and compute time; the number of nodes."""
    ops = len(op_slot)
    per_device = 2 * net.subgraphs
    work.first_op[:] = -1
    work.seen[:] = -1
    work.parts[:] = 0.0
    work.pending[:] = 0
    work.ready[:] = 0.0
    nodes = 0
    for op in range(ops):
        slot = op_slot[op]
        device = slot // per_device
        if net.is_cpu[device]:
            work.node[op] = op
            nodes += 1
            continue
        work.node[op] = ops + slot
        nodes += work.first_op[slot] < 0
        work.next_op[op] = work.first_op[slot]
        work.first_op[slot] = op
        work.parts[slot] += net.op_time[op, device]
    return nodes


@inner
def _transfer(net, op_slot, work):
    """Count the inputs each node waits for, and add what slots read and write to their time."""
    ops = len(op_slot)
    per_device = 2 * net.subgraphs
    for tensor in range(len(net.tensor_producer)):
        producer = net.tensor_producer[tensor]
        home = work.node[producer]
        size = net.tensor_bytes[tensor]
        crosses = False
        for i in range(net.consumer_offsets[tensor], net.consumer_offsets[tensor + 1]):
            reader = work.node[net.consumers[i]]
            if reader == home:
                continue
            crosses = True
            work.pending[reader] += 1
            slot = reader - ops
            if slot >= 0 and work.seen[slot] != tensor:
                work.seen[slot] = tensor
                device = slot // per_device
                work.parts[slot] += (
                    net.host_latency[READS, device]
                    + size * net.host_seconds_per_byte[READS, device]
                )
        if crosses and home >= ops:
            device = (home - ops) // per_device
            work.parts[home - ops] += (
                net.host_latency[WRITES, device] + size * net.host_seconds_per_byte[WRITES, device]
            )


@inner
def _run(net, op_slot, work, waiting):
    """Run the nodes as their inputs come (each slot after the one before on its device)."""
    ops = len(op_slot)
    per_device = 2 * net.subgraphs
    size = 0
    for slot in range(len(work.first_op)):
        if work.first_op[slot] < 0:
            continue
        before = _neighbour(work, slot, -1, per_device)
        if before >= 0:
            work.pending[ops + slot] += 1
        if work.pending[ops + slot] == 0:
            work.queue[size] = ops + slot
            size += 1
    for op in range(ops):
        if work.node[op] == op and work.pending[op] == 0:
            work.queue[size] = op
            size += 1
    last = 0.0
    taken = 0
    while taken < size:
        node = work.queue[taken]
        taken += 1
        if node < ops:
            end = work.ready[node] + net.op_time[node, op_slot[node] // per_device]
            size = _deliver(net, work, node, end, size)
        else:
            slot = node - ops
            end = work.ready[node] + work.parts[slot]
            op = work.first_op[slot]
            while op >= 0:
                size = _deliver(net, work, op, end, size)
                op = work.next_op[op]
            after = _neighbour(work, slot, 1, per_device)
            if after >= 0:
                size = _arrive(work, ops + after, end, size)
        last = max(last, end)
    return last if taken == waiting else math.inf


@inner
def _neighbour(work, slot, step, per_device):
    """The nearest slot in use before or after on the same device, or -1."""
    device = slot // per_device
    other = slot + step
    while other >= 0 and other // per_device == device:
        if other >= len(work.first_op):
            return -1
        if work.first_op[other] >= 0:
            return other
        other += step
    return -1


@inner
def _deliver(net, work, op, end, size):
    """The op's outputs are in host memory; the queue's new size."""
    home = work.node[op]
    for i in range(net.output_offsets[op], net.output_offsets[op + 1]):
        tensor = net.outputs[i]
        for j in range(net.consumer_offsets[tensor], net.consumer_offsets[tensor + 1]):
            reader = work.node[net.consumers[j]]
            if reader != home:
                size = _arrive(work, reader, end, size)
    return size


@inner
def _arrive(work, node, end, size):
    work.ready[node] = max(work.ready[node], end)
    work.pending[node] -= 1
    if work.pending[node] == 0:
        work.queue[size] = node
        size += 1
    return size
