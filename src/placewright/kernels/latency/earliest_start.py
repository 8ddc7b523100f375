"""Earliest-task-first: the pair of ready op and device that can start first, again and again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.graph import Floats, Ints, Wide
from placewright.kernels.common.arrays import Arrays, transfer_time
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.kernels.latency.units import Units

NONE = -1


@inlined
def _before(key_a, tie_a, key_b, tie_b):
    return key_a < key_b or (key_a == key_b and tie_a < tie_b)


@inner
def heap_push(keys, ops, size, key, op, tie):
    """Add (key, op) to a binary min-heap of `size` entries, ties by ``tie[op]``."""
    k = size
    while k > 0:
        parent = (k - 1) // 2
        if not _before(key, tie[op], keys[parent], tie[ops[parent]]):
            break
        keys[k], ops[k] = keys[parent], ops[parent]
        k = parent
    keys[k], ops[k] = key, op
    return size + 1


@inner
def heap_pop(keys, ops, size, tie):
    """Remove the least entry; the caller has read ``keys[0], ops[0]``."""
    size -= 1
    key, op = keys[size], ops[size]
    k = 0
    while 2 * k + 1 < size:
        child = 2 * k + 1
        if child + 1 < size and _before(
            keys[child + 1], tie[ops[child + 1]], keys[child], tie[ops[child]]
        ):
            child += 1
        if not _before(keys[child], tie[ops[child]], key, tie[op]):
            break
        keys[k], ops[k] = keys[child], ops[child]
        k = child
    if size > 0:
        keys[k], ops[k] = key, op
    return size


class Queues(NamedTuple):
    """Two heaps of ready ops per device: those to wait for, and those whose time has come.

    An op is in the heaps of every device; those that have placed it already are dropped when
    they come up.
    """

    wait_key: Floats  # [device, k] seconds from which on the op may start
    wait_op: Ints
    wait_size: Wide  # [device]
    here_key: Floats  # [device, k] priority
    here_op: Ints
    here_size: Wide  # [device]


class Started(NamedTuple):
    """What runs where so far; start times ignore contention."""

    device_free: Floats  # [device] seconds
    op_finish: Floats  # [op] seconds
    op_device: Ints  # [op] or `NONE`
    missing: Ints  # [op] inputs whose producers are not placed
    fresh: Ints  # ops whose last producer was placed last


def empty_queues(p: Arrays) -> Queues:
    op_count, device_count = p.op_time.shape
    shape = (device_count, op_count)
    size = lambda: np.zeros(device_count, dtype=np.int64)  # noqa: E731
    return Queues(
        np.empty(shape), np.empty(shape, dtype=np.int32), size(),
        np.empty(shape), np.empty(shape, dtype=np.int32), size(),
    )  # fmt: skip


def nothing_started(p: Arrays) -> Started:
    op_count, device_count = p.op_time.shape
    return Started(
        device_free=np.zeros(device_count),
        op_finish=np.zeros(op_count),
        op_device=np.full(op_count, NONE, dtype=np.int32),
        missing=np.diff(p.input_offsets).astype(np.int32),
        fresh=np.empty(op_count, dtype=np.int32),
    )


def earliest_start_placement(p: Arrays, priority: Ints, units: Units) -> int:
    """Place ops by earliest start; ties by `priority` (small first), then device number.

    Start times ignore contention. Fills `units`; returns -1, or an op no device had room for.
    """
    return int(_place(p, priority, units, empty_queues(p), nothing_started(p)))


@kernel
def _place(p, priority, units, queues, started):
    op_count, device_count = p.op_time.shape
    fresh_count = find_fresh(started)
    for _ in range(op_count):
        for k in range(fresh_count):
            op = started.fresh[k]
            for d in range(device_count):
                if units.allowed[units.of_op[op], d]:
                    wait_for(queues, d, arrival_on(p, started, op, d), op, priority)
        best_device, best_op, best_start = NONE, NONE, np.inf
        for d in range(device_count):
            op, start = next_of(queues, d, started.device_free[d], priority, units, started)
            if op != NONE and (
                start < best_start or (start == best_start and priority[op] < priority[best_op])
            ):
                best_start, best_op, best_device = start, op, d
        if best_device == NONE:
            return without_device(started)
        fresh_count = start_op(p, units, started, best_op, best_device, best_start)
    return -1


@inlined
def find_fresh(started):
    """The ops without inputs; how many."""
    count = 0
    for op in range(len(started.missing)):
        if started.missing[op] == 0:
            started.fresh[count] = op
            count += 1
    return count


@inlined
def arrival_on(p, started, op, device):
    """When the last input of `op` is on `device`."""
    latest = 0.0
    for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
        edge = p.inputs[k]
        producer = p.edge_producer[edge]
        there = started.op_finish[producer]
        source = started.op_device[producer]
        if source != device:
            there += transfer_time(p, p.edge_tensor[edge], source, device)
        latest = max(latest, there)
    return latest


@inlined
def may_go(units, started, op, device):
    """Whether `device` can still get the op: unplaced, supported there, its unit not elsewhere
    and, if its unit is nowhere yet, with memory for it."""
    unit = units.of_op[op]
    if started.op_device[op] != NONE or not units.allowed[unit, device]:
        return False
    if units.device[unit] != NONE:
        return units.device[unit] == device
    return units.memory[unit] <= units.free[device]


@inlined
def wait_for(queues, device, key, op, priority):
    """Let `op` wait on a device until `key`."""
    queues.wait_size[device] = heap_push(
        queues.wait_key[device], queues.wait_op[device], queues.wait_size[device], key, op, priority
    )


@inner
def next_of(queues, device, now, priority, units, started):
    """The op that can start first on `device`, free from `now` on, and when: (op or -1, start)."""
    keys, ops = queues.wait_key[device], queues.wait_op[device]
    here_keys, here_ops = queues.here_key[device], queues.here_op[device]
    waiting, here = queues.wait_size[device], queues.here_size[device]
    while waiting > 0:
        op = ops[0]
        stays = may_go(units, started, op, device)
        if stays and keys[0] > now:
            break
        waiting = heap_pop(keys, ops, waiting, priority)
        if stays:
            here = heap_push(here_keys, here_ops, here, float(priority[op]), op, priority)
    while here > 0 and not may_go(units, started, here_ops[0], device):
        here = heap_pop(here_keys, here_ops, here, priority)
    queues.wait_size[device], queues.here_size[device] = waiting, here
    if here > 0:
        return here_ops[0], now
    if waiting > 0:
        return ops[0], keys[0]
    return NONE, np.inf


@inlined
def without_device(started):
    """The first op that has its inputs and no device."""
    for op in range(len(started.missing)):
        if started.op_device[op] == NONE and started.missing[op] == 0:
            return op
    return NONE


@inlined
def start_op(p, units, started, op, device, start):
    """Place an op; how many have all their inputs now, in `started.fresh`."""
    unit = units.of_op[op]
    if units.device[unit] == NONE:
        units.device[unit] = device
        units.free[device] -= units.memory[unit]
    started.op_device[op] = device
    finish = start + p.op_time[op, device]
    started.op_finish[op] = finish
    started.device_free[device] = finish
    count = 0
    for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
        tensor = p.outputs[k]
        for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
            consumer = p.consumers[edge]
            started.missing[consumer] -= 1
            if started.missing[consumer] == 0:
                started.fresh[count] = consumer
                count += 1
    return count
