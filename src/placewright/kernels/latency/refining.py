"""Simulated annealing over devices and the order of ops and transfers, timed by `incremental`.

The kernel works on a `Timeline` in place and stops after so many evaluations, so that the caller
can look at the clock; called again it goes on where it stopped, and how often it is called
changes nothing. Random numbers come from the caller's generator.

With a price on overflow (`Timeline.value`) devices may have too much at a price per byte, so that a
unit can move before another makes room for it (strategic oscillation: Glover 1977). The price rises
while devices have too much and falls while they do not, and so about half of the time they do not.
Only what fits counts for the best.
"""

from __future__ import annotations

import math

from placewright.kernels.common.rows import largest_of
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.kernels.latency.ejection import make_room
from placewright.kernels.latency.incremental import (
    CURRENT,
    OVERFLOW,
    PRICE,
    REJECTED,
    TAILS_FROM,
    WORK,
    commit,
    find_tails,
    forget,
    overflow,
    retime,
)
from placewright.kernels.latency.moves import below, fits, take_back
from placewright.kernels.latency.order_moves import extent, redevice, reorder_edge, reorder_op
from placewright.kernels.latency.passing import LENGTH, undo_order
from placewright.kernels.latency.within_memory import if_memory_counts

COLDEST = 1e-300  # seconds; a temperature that still divides
CRITICAL_SHARE = 0.5  # of the draws: ops on a longest path
SAME = 1e-9  # relative; paths as long as the longest but for rounding
TAILS_PER_WORK = 1.0  # find tails again when so many sequences have been timed since
PRICE_STEP = 1e-3  # by which the price of overflow rises or falls with each change, relatively
ROOM_SHARE = 0.2  # of the changes make room where overflow has a price; all where it has none


@kernel
def refine(p, space, structure, t, critical, rng, evaluations, temperature, cooling, order_share):
    """Simulated annealing; returns the temperature it ends with, for the next call.

    Before each evaluation the temperature (seconds) is multiplied by `cooling`. A share
    `order_share` of the changes is to the order, the others to devices. A change that comes to
    nothing or overflows a memory counts as an evaluation. `critical` is ``[0]`` how many, then
    which ops were on a longest path.
    """
    for _ in range(evaluations):
        temperature = max(temperature * cooling, COLDEST)
        if t.counts[TAILS_FROM] >= 0 and t.counts[WORK] > TAILS_PER_WORK * len(t.sequence):
            find_tails(p, t)
            find_critical(p, t, critical)
            t.counts[WORK] = 0
        # Of what is worse as much as a uniform draw u allows: worse ≤ -temperature · log u.
        limit = _priced(t) - temperature * math.log(1.0 - rng.random())
        try_change(p, space, structure, t, critical, rng, limit, order_share)
    return temperature


@inlined
def _priced(t):
    """Seconds: the makespan and the price of overflow, which rises or falls with that."""
    value = t.value[CURRENT]
    if t.value[PRICE] > 0.0:
        value += t.value[PRICE] * t.value[OVERFLOW]
        t.value[PRICE] *= 1.0 + (PRICE_STEP if t.value[OVERFLOW] > 0.0 else -PRICE_STEP)
    return value


@inner
def try_change(p, space, structure, t, critical, rng, limit, order_share):
    """Make a change that keeps the makespan and the price of overflow within `limit`, or none."""
    count, price = 0, t.value[PRICE]
    t.saved[LENGTH] = 0
    if len(space.movable) == 0 or rng.random() < order_share:
        if rng.random() < structure.edge_share:
            edge = draw_edge(p, t, critical, rng)
            if edge < 0:
                return
            first, last, reach = reorder_edge(p, t, rng, edge)
        else:
            first, last, reach = reorder_op(p, t, rng, draw(t, critical, rng))
        if first < 0:
            return
    else:
        op = draw_movable(space, t, critical, rng)
        count = redevice(p, space, structure, t, rng, op)
        if count == 0:
            return
        if price == 0.0 or rng.random() < ROOM_SHARE:
            count = make_room(space, t, t, rng, count)
        if price == 0.0 and not fits(t, t, count):
            take_back(space, t, t, count)
            return
        first, last, reach = extent(p, space, t, count)
    if price > 0.0:
        limit -= price * overflow(t)
        if limit <= 0.0:
            take_back(space, t, t, count)
            undo_order(t, t)
            return
    value = retime(p, t, first, last, reach, limit)
    if value < REJECTED:  # `t` has the times as if memory were no matter
        value = if_memory_counts(p, t.device, t.sequence, value)
    if value <= limit:
        commit(t, last, value)
        return
    forget(t)
    take_back(space, t, t, count)
    undo_order(t, t)


@kernel
def draw(t, critical, rng):
    """An op, half of the time a critical one."""
    if critical[0] > 0 and rng.random() < CRITICAL_SHARE:
        return critical[1 + below(rng, critical[0])]
    return below(rng, len(t.device))


@inner
def draw_edge(p, t, critical, rng):
    """A random edge of such an op, -1 if it has none."""
    op = draw(t, critical, rng)
    inputs = p.input_offsets[op + 1] - p.input_offsets[op]
    outputs = p.output_offsets[op + 1] - p.output_offsets[op]
    if inputs + outputs == 0:
        return -1
    k = below(rng, inputs + outputs)
    if k < inputs:
        return p.inputs[p.input_offsets[op] + k]
    tensor = p.outputs[p.output_offsets[op] + k - inputs]
    first, last = p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]
    return first + below(rng, last - first) if last > first else -1


@inner
def draw_movable(space, t, critical, rng):
    """An op of a unit with a choice of devices, half of the time a critical one if that has one."""
    if critical[0] > 0 and rng.random() < CRITICAL_SHARE:
        return critical[1 + below(rng, critical[0])]
    unit = space.movable[below(rng, len(space.movable))]
    first, last = space.unit_offsets[unit], space.unit_offsets[unit + 1]
    return space.unit_ops[first + below(rng, last - first)]


@kernel
def find_critical(p, t, critical):
    """The ops on a longest path, by their tails; what waits for memory is no part of a path."""
    count = 0
    least = largest_of(t.block_end) * (1.0 - SAME)
    for op in range(len(t.device)):
        if t.op_finish[op] - p.op_time[op, t.device[op]] + t.tail[op] >= least:
            count += 1
            critical[count] = op
    critical[0] = count
