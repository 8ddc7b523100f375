"""m-SCT: placement by earliest start with favourite children, and a descent that finds them."""

from __future__ import annotations

import numpy as np

from placewright.kernels.common.arrays import transfer_time
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.kernels.latency.earliest_start import heap_pop, heap_push
from placewright.kernels.latency.getf import soft_longest_path

NONE = -1
LEAST = 1e-6  # what a pair saves does not sink below, so that it can come back


@inlined
def _may_go(op, d, op_device, op_unit, unit_device, unit_memory, unit_allowed, free_memory):
    """Whether device `d` can still get the op: unplaced, supported there, its unit not elsewhere
    and, if its unit is nowhere yet, with memory for it."""
    unit = op_unit[op]
    if op_device[op] != NONE or not unit_allowed[unit, d]:
        return False
    if unit_device[unit] != NONE:
        return unit_device[unit] == d
    return unit_memory[unit] <= free_memory[d]


@inner
def _next_of(
    d, wait_key, wait_op, wait_size, here_key, here_op, here_size, now, priority,
    op_device, op_unit, unit_device, unit_memory, unit_allowed, free_memory,
):  # fmt: skip
    """The op that can start first on `d`, and when: (op or -1, start).

    Of two heaps, one holds ops by the time they may start at, the other those whose time has
    come (by `now`, when the device is free), by priority; ops that can no longer go to `d` are
    dropped from the top.
    """
    while wait_size[d] > 0:
        op = wait_op[d, 0]
        stays = _may_go(
            op, d, op_device, op_unit, unit_device, unit_memory, unit_allowed, free_memory
        )
        if stays and wait_key[d, 0] > now:
            break
        wait_size[d] = heap_pop(wait_key[d], wait_op[d], wait_size[d], priority)
        if stays:
            here_size[d] = heap_push(
                here_key[d], here_op[d], here_size[d], float(priority[op]), op, priority
            )
    while here_size[d] > 0 and not _may_go(
        here_op[d, 0], d, op_device, op_unit, unit_device, unit_memory, unit_allowed, free_memory
    ):
        here_size[d] = heap_pop(here_key[d], here_op[d], here_size[d], priority)
    if here_size[d] > 0:
        return here_op[d, 0], now
    if wait_size[d] > 0:
        return wait_op[d, 0], wait_key[d, 0]
    return NONE, np.inf


@kernel(allocates=True)
def favourite_child_placement(
    p, priority, favourite, op_unit, unit_device, unit_memory, unit_allowed, free_memory
):
    """Place ops by earliest start, keeping a device for the favourite child of its last op.

    As `earliest_start_placement`, but where the last op of device d has the favourite child f
    (``favourite[op]``, -1 for none), f has all its inputs, and f can start earlier on d than on
    any other device, d is *awake*: until f has started, d takes no other op but an urgent one,
    which can start on d once its inputs are on every device that supports it. Time moves
    forward: no op starts before the last one placed did. Fills `unit_device` and `free_memory`;
    returns -1, or an op no device had room for.
    """
    op_count, device_count = p.op_time.shape
    shape = (device_count, op_count)
    wait_key, wait_op = np.empty(shape), np.empty(shape, dtype=np.int32)
    here_key, here_op = np.empty(shape), np.empty(shape, dtype=np.int32)
    late_key, late_op = np.empty(shape), np.empty(shape, dtype=np.int32)  # the same, by urgency
    urgent_key, urgent_op = np.empty(shape), np.empty(shape, dtype=np.int32)
    wait_size = np.zeros(device_count, dtype=np.int64)
    here_size = np.zeros(device_count, dtype=np.int64)
    late_size = np.zeros(device_count, dtype=np.int64)
    urgent_size = np.zeros(device_count, dtype=np.int64)
    arrival = np.empty((op_count, device_count))
    device_free = np.zeros(device_count)
    device_last = np.full(device_count, NONE, dtype=np.int32)
    op_finish = np.zeros(op_count)
    op_device = np.full(op_count, NONE, dtype=np.int32)
    missing = np.empty(op_count, dtype=np.int32)
    fresh = np.empty(op_count, dtype=np.int32)
    fresh_count = 0
    now = 0.0
    for op in range(op_count):
        missing[op] = p.input_offsets[op + 1] - p.input_offsets[op]
        if missing[op] == 0:
            fresh[fresh_count] = op
            fresh_count += 1

    for _ in range(op_count):
        for k in range(fresh_count):
            op = fresh[k]
            everywhere = 0.0
            for d in range(device_count):
                latest = 0.0
                for i in range(p.input_offsets[op], p.input_offsets[op + 1]):
                    edge = p.inputs[i]
                    producer = p.edge_producer[edge]
                    there = op_finish[producer]
                    if op_device[producer] != d:
                        there += transfer_time(p, p.edge_tensor[edge], op_device[producer], d)
                    latest = max(latest, there)
                arrival[op, d] = latest
                if unit_allowed[op_unit[op], d]:
                    everywhere = max(everywhere, latest)
            for d in range(device_count):
                if unit_allowed[op_unit[op], d]:
                    wait_size[d] = heap_push(
                        wait_key[d], wait_op[d], wait_size[d], arrival[op, d], op, priority
                    )
                    late_size[d] = heap_push(
                        late_key[d], late_op[d], late_size[d], everywhere, op, priority
                    )
        fresh_count = 0

        best_device, best_op, best_start = NONE, NONE, np.inf
        for d in range(device_count):
            free_at = max(device_free[d], now)
            child = NONE if device_last[d] == NONE else favourite[device_last[d]]
            awake = (
                child != NONE
                and missing[child] == 0
                and _may_go(
                    child, d, op_device, op_unit, unit_device, unit_memory, unit_allowed,
                    free_memory,
                )
            )  # fmt: skip
            child_start = np.inf
            if awake:
                child_start = max(free_at, arrival[child, d])
                for other in range(device_count):
                    if (
                        other != d
                        and max(device_free[other], now, arrival[child, other]) <= child_start
                        and _may_go(
                            child, other, op_device, op_unit, unit_device, unit_memory,
                            unit_allowed, free_memory,
                        )
                    ):  # fmt: skip
                        awake = False
            if awake:
                op, start = _next_of(
                    d, late_key, late_op, late_size, urgent_key, urgent_op, urgent_size, free_at,
                    priority, op_device, op_unit, unit_device, unit_memory, unit_allowed,
                    free_memory,
                )  # fmt: skip
                if child_start < start or (child_start == start and priority[child] < priority[op]):
                    op, start = child, child_start
            else:
                op, start = _next_of(
                    d, wait_key, wait_op, wait_size, here_key, here_op, here_size, free_at,
                    priority, op_device, op_unit, unit_device, unit_memory, unit_allowed,
                    free_memory,
                )  # fmt: skip
            if op != NONE and (
                start < best_start or (start == best_start and priority[op] < priority[best_op])
            ):
                best_start, best_op, best_device = start, op, d
        if best_device == NONE:
            for op in range(op_count):
                if op_device[op] == NONE and missing[op] == 0:
                    return op
        unit = op_unit[best_op]
        if unit_device[unit] == NONE:
            unit_device[unit] = best_device
            free_memory[best_device] -= unit_memory[unit]
        op_device[best_op] = best_device
        now = best_start
        finish = best_start + p.op_time[best_op, best_device]
        op_finish[best_op] = finish
        device_free[best_device] = finish
        device_last[best_device] = best_op
        for k in range(p.output_offsets[best_op], p.output_offsets[best_op + 1]):
            tensor = p.outputs[k]
            for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
                consumer = p.consumers[edge]
                missing[consumer] -= 1
                if missing[consumer] == 0:
                    fresh[fresh_count] = consumer
                    fresh_count += 1
    return -1


@inner
def _scale_down(total, value, end):
    """Scale the pairs that share an end so that their values add up to 1 at most."""
    total[:] = 0.0
    for k in range(len(value)):
        total[end[k]] += value[k]
    for k in range(len(value)):
        if total[end[k]] > 1.0:
            value[k] /= total[end[k]]


@kernel(allocates=True)
def favourite_descent(
    order, in_offsets, pair_producer, pair_consumer, is_last, op_weight, pair_weight, unit,
    iterations,
):  # fmt: skip
    """The favourite-child program by mirror descent: (saved[pair], makespan).

    `saved` = 1 − x is the share of each pair's transfer that is not paid; over the pairs that
    leave an op, and over those that enter one, it sums to 1 at most. Each step raises the
    logarithm of `saved` along the gradient of a soft longest path that hardens (temperature
    from `unit`, a typical op time, down to a hundredth of it), then scales back, out of an op
    and into it by turns. Returns the best point met: its exact longest path is the makespan, at
    or above the program's optimum. Pairs of `pair_weight` 0 save nothing.
    """
    pairs, ops = len(pair_weight), len(op_weight)
    saved, paid = np.zeros(pairs), np.empty(pairs)
    total, head, flow = np.empty(ops), np.empty(ops), np.empty(ops)
    pair_flow = np.empty(pairs)
    for k in range(pairs):
        saved[k] = 1.0 if pair_weight[k] > 0.0 else 0.0
    _scale_down(total, saved, pair_producer)
    _scale_down(total, saved, pair_consumer)
    best, makespan = saved.copy(), np.inf
    for step in range(iterations + 1):
        for k in range(pairs):
            paid[k] = pair_weight[k] * (1.0 - saved[k])
        longest = 0.0
        for op in order:
            head[op] = 0.0
            for k in range(in_offsets[op], in_offsets[op + 1]):
                producer = pair_producer[k]
                head[op] = max(head[op], head[producer] + op_weight[producer] + paid[k])
            longest = max(longest, head[op] + op_weight[op])
        if longest < makespan:
            makespan = longest
            best[:] = saved
        if step == iterations:
            break
        temperature = unit * 0.01 ** (step / iterations)
        soft_longest_path(
            order, in_offsets, pair_producer, op_weight, paid, is_last, temperature, head, flow,
            pair_flow,
        )  # fmt: skip
        for k in range(pairs):
            if pair_weight[k] > 0.0:
                gain = min(0.1 * pair_weight[k] * pair_flow[k] / temperature, 2.0)
                saved[k] = max(saved[k], LEAST) * np.exp(gain)
        for _ in range(4):
            _scale_down(total, saved, pair_producer)
            _scale_down(total, saved, pair_consumer)
    return best, makespan
