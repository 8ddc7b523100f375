"""Earliest-task-first: the pair of ready op and device that can start first, again and again."""

from __future__ import annotations

import numpy as np

from placewright.kernels.common.arrays import transfer_time
from placewright.kernels.compiled import inlined, inner, kernel


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


@kernel(allocates=True)
def earliest_start_placement(
    p, priority, op_unit, unit_device, unit_memory, unit_allowed, free_memory
):
    """Place ops by earliest start; ties by `priority` (small first), then device number.

    Each device has two heaps: ready ops still waiting for inputs, by arrival, and ops whose
    inputs are there, by priority. An op is in the heaps of every device; those that have placed
    it already are dropped when they come up. Start times ignore contention. Fills
    `unit_device` and `free_memory`; returns -1, or an op no device had room for.
    """
    op_count, device_count = p.op_time.shape
    wait_key = np.empty((device_count, op_count))
    wait_op = np.empty((device_count, op_count), dtype=np.int32)
    wait_size = np.zeros(device_count, dtype=np.int64)
    here_key = np.empty((device_count, op_count))
    here_op = np.empty((device_count, op_count), dtype=np.int32)
    here_size = np.zeros(device_count, dtype=np.int64)
    device_free = np.zeros(device_count)
    op_finish = np.zeros(op_count)
    op_device = np.full(op_count, -1, dtype=np.int32)
    missing = np.empty(op_count, dtype=np.int32)
    fresh = np.empty(op_count, dtype=np.int32)
    fresh_count = 0
    for op in range(op_count):
        missing[op] = p.input_offsets[op + 1] - p.input_offsets[op]
        if missing[op] == 0:
            fresh[fresh_count] = op
            fresh_count += 1

    for _ in range(op_count):
        for k in range(fresh_count):
            op = fresh[k]
            for d in range(device_count):
                if not unit_allowed[op_unit[op], d]:
                    continue
                arrival = 0.0
                for i in range(p.input_offsets[op], p.input_offsets[op + 1]):
                    edge = p.inputs[i]
                    producer = p.edge_producer[edge]
                    there = op_finish[producer]
                    if op_device[producer] != d:
                        there += transfer_time(p, p.edge_tensor[edge], op_device[producer], d)
                    arrival = max(arrival, there)
                wait_size[d] = heap_push(
                    wait_key[d], wait_op[d], wait_size[d], arrival, op, priority
                )
        fresh_count = 0

        best_device = -1
        best_op = -1
        best_start = np.inf
        for d in range(device_count):
            # As `favourite_child._next_of`, but in place: a helper's array arguments are counted
            # references at every call, which would triple the time of this kernel.
            while wait_size[d] > 0:
                op = wait_op[d, 0]
                gone = _cannot(op, d, op_device, op_unit, unit_device, unit_memory, free_memory)
                if not gone and wait_key[d, 0] > device_free[d]:
                    break
                wait_size[d] = heap_pop(wait_key[d], wait_op[d], wait_size[d], priority)
                if not gone:
                    here_size[d] = heap_push(
                        here_key[d], here_op[d], here_size[d], float(priority[op]), op, priority
                    )
            while here_size[d] > 0 and _cannot(
                here_op[d, 0], d, op_device, op_unit, unit_device, unit_memory, free_memory
            ):
                here_size[d] = heap_pop(here_key[d], here_op[d], here_size[d], priority)
            if here_size[d] > 0:
                op, start = here_op[d, 0], device_free[d]
            elif wait_size[d] > 0:
                op, start = wait_op[d, 0], wait_key[d, 0]
            else:
                continue
            if start < best_start or (start == best_start and priority[op] < priority[best_op]):
                best_start, best_op, best_device = start, op, d
        if best_device < 0:
            for op in range(op_count):
                if op_device[op] < 0 and missing[op] == 0:
                    return op
        unit = op_unit[best_op]
        if unit_device[unit] < 0:
            unit_device[unit] = best_device
            free_memory[best_device] -= unit_memory[unit]
        op_device[best_op] = best_device
        finish = best_start + p.op_time[best_op, best_device]
        op_finish[best_op] = finish
        device_free[best_device] = finish
        for k in range(p.output_offsets[best_op], p.output_offsets[best_op + 1]):
            tensor = p.outputs[k]
            for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
                consumer = p.consumers[edge]
                missing[consumer] -= 1
                if missing[consumer] == 0:
                    fresh[fresh_count] = consumer
                    fresh_count += 1
    return -1


@inlined
def _cannot(op, d, op_device, op_unit, unit_device, unit_memory, free_memory):
    """The op is placed, its unit is elsewhere, or there is no longer memory for it (for good)."""
    unit = op_unit[op]
    if op_device[op] >= 0:
        return True
    if unit_device[unit] >= 0:
        return unit_device[unit] != d
    return unit_memory[unit] > free_memory[d]
