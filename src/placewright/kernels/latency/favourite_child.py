"""m-SCT: placement by earliest start with favourite children, and a descent that finds them."""

from __future__ import annotations

import numpy as np

from placewright.graph import Ints
from placewright.kernels.common.arrays import Arrays
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.latency.earliest_start import (
    NONE,
    arrival_on,
    empty_queues,
    find_fresh,
    may_go,
    next_of,
    nothing_started,
    start_op,
    wait_for,
    without_device,
)
from placewright.kernels.latency.getf import soft_longest_path
from placewright.kernels.latency.units import Units

LEAST = 1e-6  # what a pair saves does not sink below, so that it can come back


def favourite_child_placement(p: Arrays, priority: Ints, favourite: Ints, units: Units) -> int:
    """Place ops by earliest start, keeping a device for the favourite child of its last op.

    As `earliest_start_placement`, but where the last op of device d has the favourite child f
    (``favourite[op]``, -1 for none), f has all its inputs, and f can start earlier on d than on
    any other device, d is *awake*: until f has started, d takes no other op but an urgent one,
    which can start on d once its inputs are on every device that supports it. Time moves
    forward: no op starts before the last one placed did. Fills `units`; returns -1, or an op no
    device had room for.
    """
    arrival, last = np.empty(p.op_time.shape), np.full(p.op_time.shape[1], NONE, dtype=np.int32)
    failed = _place(
        p, priority, favourite, units, empty_queues(p), empty_queues(p), nothing_started(p),
        arrival, last,
    )  # fmt: skip
    return int(failed)


@kernel
def _place(p, priority, favourite, units, soon, urgent, started, arrival, last):
    """`soon` has ops by when they may start on a device, `urgent` by when on all of them."""
    op_count, device_count = p.op_time.shape
    now = 0.0
    fresh_count = find_fresh(started)
    for _ in range(op_count):
        for k in range(fresh_count):
            _wait(p, priority, units, soon, urgent, started, arrival, started.fresh[k])
        best_device, best_op, best_start = NONE, NONE, np.inf
        for d in range(device_count):
            free_at = max(started.device_free[d], now)
            child = NONE if last[d] == NONE else favourite[last[d]]
            if _is_awake(units, started, arrival, child, d, now):
                op, start = next_of(urgent, d, free_at, priority, units, started)
                child_start = max(free_at, arrival[child, d])
                if child_start < start or (child_start == start and priority[child] < priority[op]):
                    op, start = child, child_start
            else:
                op, start = next_of(soon, d, free_at, priority, units, started)
            if op != NONE and (
                start < best_start or (start == best_start and priority[op] < priority[best_op])
            ):
                best_start, best_op, best_device = start, op, d
        if best_device == NONE:
            return without_device(started)
        now = best_start
        last[best_device] = best_op
        fresh_count = start_op(p, units, started, best_op, best_device, best_start)
    return -1


@inner
def _wait(p, priority, units, soon, urgent, started, arrival, op):
    """Let an op that has its inputs wait for every device that supports it."""
    everywhere, unit = 0.0, units.of_op[op]
    for d in range(len(units.free)):
        arrival[op, d] = arrival_on(p, started, op, d)
        if units.allowed[unit, d]:
            everywhere = max(everywhere, arrival[op, d])
    for d in range(len(units.free)):
        if units.allowed[unit, d]:
            wait_for(soon, d, arrival[op, d], op, priority)
            wait_for(urgent, d, everywhere, op, priority)


@inner
def _is_awake(units, started, arrival, child, device, now):
    """Whether `child` has its inputs and can start on this device earlier than on any other."""
    if child == NONE or started.missing[child] > 0 or not may_go(units, started, child, device):
        return False
    start = max(started.device_free[device], now, arrival[child, device])
    for other in range(len(units.free)):
        there = max(started.device_free[other], now, arrival[child, other])
        if other != device and there <= start and may_go(units, started, child, other):
            return False
    return True


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
