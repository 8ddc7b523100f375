"""Whether branches that run side by side can be done before a horizon, time cut into slots.

A *forest* is what lies between two ops, op 0 on device `first` that ends at 0 and a last op that
starts before the horizon T: each op with at most one edge to another of them, its *parent*; a
root may have an edge to the last op instead. Time until T is cut into intervals of equal width,
these into slots. In a schedule

- a device runs ops, and a channel carries transfers, for no more than an interval's width in each
  interval, and what ops on a device keep fits its memory. Over its capacity each of these *rows*
  is at most 1, and so is their average by any weights;
- an op that starts in slot i and takes t, before a transfer of p to its parent's device, lets the
  parent start no sooner than in slot i + ⌊t⌋ + ⌊p⌋, counted in slots, and the transfer in no slot
  before i + ⌊t⌋: ⌊x + y⌋ ≥ ⌊x⌋ + ⌊y⌋;
- by the weights an op or transfer costs what they are on the time that it is busy, at least the
  least of that over all starts in its slot. A share of a tensor is charged for where several
  readers would each pay for it once, see `Network.weights`.

So the least cost of each tree over devices and slots of its ops, found exactly from the leaves to
the root, summed over all trees, is at most 1 where there is a schedule: where it is more, none
is done before T. Weights are moved towards rows that the cheapest trees overload.

Of the *fan-out tensor*, which op 0 sends but once to a device, it is said whether a device gets
a copy: 1, which then arrives within ``low[d]`` and ``high[d]``, keeps its route busy for as long as
it is sent and lets no reader on d start before ``low[d]``; 0, so no reader is there; or −1 for
either: no reader on d starts before ``low[d]`` either, and each of k readers elsewhere is charged a
k-th of a copy sent some time before it starts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Wide
from placewright.kernels.common.rows import (
    copy_into,
    copy_table,
    largest_of,
    least_of,
    smallest_of,
)
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.latency.dual_ascent import delay, pair_prices

ROUND = 1e-9  # of a slot, that rounding of floats may be off
SURE = 1.0 + 1e-7
LEAST_WEIGHT = 1e-12
TINY = 1e-12
GOAL = 1.02  # that steps are meant to bring the value to, up to a share of what Polyak's say
REACH = 0.85
STEEPEST = 3.0  # change of a weight's logarithm
LOST = 0.3  # of the best value: from there it goes on from the best, with steps that are
LESS = 0.8  # shorter
PATIENCE = 128  # steps, then twice as many …, of which the latter half is to bring half of the rest


class Forest(NamedTuple):
    """Ops from leaves to roots, a root's tree at once before it.

    ``time``, ``share`` of memory, seconds before (`early`) and after (`late`) it are
    ``[op, device]``, `early` `inf` where it cannot be; `times[op]` how many there are of its tree.
    `size`, `fixed`, `weight` of the edge to its `parent` (−1: to the last op). Entries are its
    edges from op 0, those of the fan-out tensor marked.
    """

    time: Floats
    share: Floats
    early: Floats
    late: Floats
    times: Floats
    parent: Wide
    size: Floats
    fixed: Floats
    weight: Floats
    children: Wide
    child_offsets: Wide
    entry_offsets: Wide
    entry_size: Floats
    entry_fixed: Floats
    entry_weight: Floats
    entry_fan_out: Flags


class Copies(NamedTuple):
    """By device: seconds to send the fan-out tensor there; whether it gets a copy, and when."""

    send: Floats
    copy: Wide
    low: Floats
    high: Floats


@inner
def _whole(seconds, slot):
    """Slots that fit into so many seconds."""
    return int(max(seconds / slot - ROUND, 0.0))


@inner
def _least_in_slots(grid, seconds, slot, out):
    """`out[k]` the least price of a busy time over its starts in slot k.

    ``grid[k]`` is what all time before slot k costs, nothing is beyond the last. Prices change
    only between slots, so it is least where the time begins or ends with a slot.
    """
    count = len(grid) - 1
    whole = int(seconds / slot)
    rest = seconds / slot - whole
    for k in range(count):
        i, j = min(k + whole + 1, count), min(k + whole + 2, count)
        h = min(k + whole, count)
        first = grid[h] + rest * (grid[i] - grid[h]) - grid[k]
        last = grid[i] + rest * (grid[j] - grid[i]) - grid[k + 1]
        turn = grid[i] - grid[k] - (1.0 - rest) * (grid[k + 1] - grid[k])
        out[k] = min(first, min(last, turn))


@inner
def _add_use(use, width, start, seconds, amount):
    """Add `amount` times the part of each interval that lies in [start, start + seconds]."""
    for j in range(int(start / width), len(use)):
        inside = min(start + seconds, (j + 1) * width) - max(start, j * width)
        if inside <= 0.0:
            return
        use[j] += amount * inside / width


@inner
def _add_route_use(use, routes, a, b, width, start, seconds, amount):
    devices = routes.latency.shape[0]
    pair = a * devices + b
    for k in range(routes.channel_offsets[pair], routes.channel_offsets[pair + 1]):
        _add_use(use[devices + routes.channels[k]], width, start, seconds, amount)


@inner(allocates=True)
def _add_up(weight, routes, each, on_device, on_route):
    """What all time before each slot costs on devices and on routes."""
    devices, count = on_device.shape[0], on_device.shape[1] - 1
    channel = np.empty(routes.channel_count)
    price = np.zeros((devices, devices))
    for k in range(count):
        j = k // each
        if k % each == 0:
            for c in range(len(channel)):
                channel[c] = weight[devices + c, j]
            pair_prices(routes, channel, price)
        for a in range(devices):
            on_device[a, k + 1] = on_device[a, k] + weight[a, j] / each
            for b in range(devices):
                on_route[a, b, k + 1] = on_route[a, b, k] + price[a, b] / each


@inner
def _enter(row, cost, sent, weight):
    """Add to `row[k]` a share of the least cost of what was sent in time for slot k."""
    least = np.inf
    for k in range(len(row)):
        if k >= sent:
            least = min(least, cost[k - sent])
        row[k] += weight * least


@inner
def _entry_delay(forest, routes, entry, a, b):
    return (
        forest.entry_fixed[entry] * routes.latency[a, b]
        + forest.entry_size[entry] * routes.per_byte[a, b]
    )


@inner
def _entries(forest, routes, first, copies, on_route, slot, op, d, row, cost):
    """Add what it costs to have the edges from op 0 there in time."""
    for k in range(forest.entry_offsets[op], forest.entry_offsets[op + 1]):
        if d == first or (forest.entry_fan_out[k] and copies.copy[d] >= 0):
            continue
        seconds = _entry_delay(forest, routes, k, first, d)
        _least_in_slots(on_route[first, d], seconds, slot, cost)
        _enter(row, cost, _whole(seconds, slot), forest.entry_weight[k])


@inner
def _start_by(forest, copies, first, op, d):
    """The earliest start of an op on a device."""
    begin = forest.early[op, d]
    for k in range(forest.entry_offsets[op], forest.entry_offsets[op + 1]):
        if forest.entry_fan_out[k] and d != first:
            if copies.copy[d] == 0:
                return np.inf
            begin = max(begin, copies.low[d])
    return begin


@inner
def _own_row(forest, routes, first, copies, on_device, on_route, horizon, slot, op, d, row, cost):
    """What an op costs on a device by the slot of its start, its children aside; if it can be."""
    begin = _start_by(forest, copies, first, op, d)
    end = horizon - forest.late[op, d] - forest.time[op, d]
    if not begin <= end + ROUND * slot:
        row[:] = np.inf
        return False
    _least_in_slots(on_device[d], forest.time[op, d], slot, row)
    _entries(forest, routes, first, copies, on_route, slot, op, d, row, cost)
    row[: _whole(begin, slot)] = np.inf
    row[int(max(end, 0.0) / slot + ROUND) + 1 :] = np.inf
    return True


@inner
def _hand_on(forest, routes, on_route, table, slot, op, d, cost, out):
    """`out[k]`: the least cost of an op's tree with its result on d by the start of slot k."""
    out[:] = np.inf
    for a in range(len(on_route)):
        row = table[op, a]
        ran = _whole(forest.time[op, a], slot)
        least = there = np.inf
        if a == d:
            for k in range(ran, len(out)):
                least = min(least, row[k - ran])
                out[k] = min(out[k], least)
            continue
        seconds = delay(forest, routes, op, a, d)
        _least_in_slots(on_route[a, d], seconds, slot, cost)
        sent = _whole(seconds, slot)
        for k in range(ran, len(out) - sent):
            least = min(least, row[k - ran])
            there = min(there, least + forest.weight[op] * cost[k])
            out[k + sent] = min(out[k + sent], there)


@inner
def _find(forest, routes, on_route, table, slot, op, d, until, cost):
    """`(device, slot, slot of the transfer or −1)` behind what `_hand_on` says for a slot."""
    best, where, at, sent_at = np.inf, -1, -1, -1
    for a in range(len(on_route)):
        row = table[op, a]
        ran = _whole(forest.time[op, a], slot)
        if a == d:
            for k in range(until + 1 - ran):
                if row[k] < best:
                    best, where, at, sent_at = row[k], a, k, -1
            continue
        seconds = delay(forest, routes, op, a, d)
        _least_in_slots(on_route[a, d], seconds, slot, cost)
        least, least_at = np.inf, -1
        for k in range(ran, until + 1 - _whole(seconds, slot)):
            if row[k - ran] < least:
                least, least_at = row[k - ran], k - ran
            if least + forest.weight[op] * cost[k] < best:
                best, where, at, sent_at = least + forest.weight[op] * cost[k], a, least_at, k
    return where, at, sent_at


@inner
def _add_op(forest, routes, first, copies, on_route, width, slot, op, d, k, use, used, cost):
    """Add what an op on d in slot k and its edges from op 0 keep busy."""
    times = forest.times[op]
    _add_use(use[d], width, k * slot, forest.time[op, d], times)
    used[d] += times * forest.share[op, d]
    for e in range(forest.entry_offsets[op], forest.entry_offsets[op + 1]):
        if d == first or (forest.entry_fan_out[e] and copies.copy[d] >= 0):
            continue
        seconds = _entry_delay(forest, routes, e, first, d)
        _least_in_slots(on_route[first, d], seconds, slot, cost)
        start = cost[: k + 1 - _whole(seconds, slot)].argmin() * slot
        amount = times * forest.entry_weight[e]
        _add_route_use(use, routes, first, d, width, start, seconds, amount)


@inner
def _send_copies(routes, first, copies, on_route, horizon, slot, width, use, cost):
    """What copies cost that are sent, each when it is cheapest; `inf` if one has no time."""
    total = 0.0
    for d in range(len(on_route)):
        if d == first or copies.copy[d] != 1:
            continue
        until = min(copies.high[d], horizon) - copies.send[d]
        if until < -ROUND * slot:
            return np.inf
        begin = _whole(copies.low[d] - copies.send[d], slot)
        end = min(int(max(until, 0.0) / slot + ROUND), len(cost) - 1)
        _least_in_slots(on_route[first, d], copies.send[d], slot, cost)
        if begin > end:
            return np.inf
        k = begin + cost[begin : end + 1].argmin()
        total += cost[k]
        _add_route_use(use, routes, first, d, width, k * slot, copies.send[d], 1.0)
    return total


@inner
def _fill(forest, routes, first, last, copies, on_device, on_route, memory, horizon, table, rows):
    """The table `[op, device, slot]`; what all trees cost, and of the roots' ends in `rows`."""
    slots = table.shape[2]
    slot = horizon / slots
    cost, total = rows[0], 0.0
    for op in range(len(table)):
        for d in range(len(on_route)):
            row = table[op, d]
            if _own_row(
                forest, routes, first, copies, on_device, on_route, horizon, slot, op, d, row, cost
            ):
                for k in range(slots):
                    row[k] += memory[d] * forest.share[op, d]
                for i in range(forest.child_offsets[op], forest.child_offsets[op + 1]):
                    child = forest.children[i]
                    _hand_on(forest, routes, on_route, table, slot, child, d, cost, rows[1])
                    for k in range(slots):
                        row[k] += rows[1, k]
        if forest.parent[op] < 0:
            d, k = least_of(table[op])
            least = table[op, d, k]
            if last >= 0:
                _hand_on(forest, routes, on_route, table, slot, op, last, cost, rows[1])
                least = smallest_of(rows[1])
            total += forest.times[op] * least
    return total


@inner
def _use_of(forest, routes, first, last, copies, on_route, horizon, table, use, used, spot, cost):
    """Add what the cheapest trees of a table keep busy."""
    slots, width = table.shape[2], horizon / use.shape[1]
    slot = horizon / slots
    for op in range(len(table) - 1, -1, -1):
        up = forest.parent[op]
        d, until = (last, slots - 1) if up < 0 else (spot[up, 0], spot[up, 1])
        if d < 0:
            where, k = least_of(table[op])
            sent_at = -1
        else:
            where, k, sent_at = _find(forest, routes, on_route, table, slot, op, d, until, cost)
        spot[op, 0], spot[op, 1] = where, k
        _add_op(forest, routes, first, copies, on_route, width, slot, op, where, k, use, used, cost)
        if sent_at >= 0:
            amount = forest.times[op] * forest.weight[op]
            seconds = delay(forest, routes, op, where, d)
            _add_route_use(use, routes, where, d, width, sent_at * slot, seconds, amount)


@inner
def _spread(weight, memory, use, used, value):
    """The variance of what is used, by the weights."""
    spread = 0.0
    for row in range(weight.shape[0]):
        for interval in range(weight.shape[1]):
            spread += weight[row, interval] * (use[row, interval] - value) ** 2
    for d in range(len(memory)):
        spread += memory[d] * (used[d] - value) ** 2
    return spread


@inner
def _step(weight, memory, use, used, pace):
    """A step of multiplicative weights, to a sum of 1."""
    total = 0.0
    for row in range(weight.shape[0]):
        for interval in range(weight.shape[1]):
            weight[row, interval] *= math.exp(pace * use[row, interval])
            total += weight[row, interval]
    for d in range(len(memory)):
        memory[d] *= math.exp(pace * used[d])
        total += memory[d]
    for row in range(weight.shape[0]):
        for interval in range(weight.shape[1]):
            weight[row, interval] = max(weight[row, interval] / total, LEAST_WEIGHT)
    for d in range(len(memory)):
        memory[d] /= total


@kernel(allocates=True)
def slots_bound(forest, routes, first, last, copies, horizon, each, weight, memory, steps):
    """More than 1 where nothing is done before the horizon; `(value, steps taken)`.

    ``weight[row, interval]`` of devices and channels, each interval of `each` slots, and
    ``memory[device]``, in all 1, are where to seek from, and are left at the best found. Stops
    as soon as the value is above 1, or has come too little nearer.
    """
    ops, devices = forest.time.shape
    intervals = weight.shape[1]
    slots = intervals * each
    slot, width = horizon / slots, horizon / intervals
    on_device = np.zeros((devices, slots + 1))
    on_route = np.zeros((devices, devices, slots + 1))
    table, rows = np.empty((ops, devices, slots)), np.empty((2, slots))
    use, used = np.empty(weight.shape), np.empty(devices)
    spot = np.zeros((ops, 2), dtype=np.int64)
    found, found_memory = weight.copy(), memory.copy()
    best, before, check, reach = 0.0, 0.0, PATIENCE, REACH
    for step in range(steps):
        _add_up(weight, routes, each, on_device, on_route)
        use[:] = 0.0
        used[:] = 0.0
        value = _send_copies(
            routes, first, copies, on_route, horizon, slot, width, use, rows[0]
        ) + _fill(
            forest, routes, first, last, copies, on_device, on_route, memory, horizon, table, rows
        )
        if value > best:
            best = value
            copy_table(found, weight)
            copy_into(found_memory, memory)
        if best > SURE:
            break
        if step == check // 2:
            before = best
        elif step == check:
            if best + best - before < 1.0:
                break
            before, check = best, 2 * check
        _use_of(
            forest, routes, first, last, copies, on_route, horizon, table, use, used, spot, rows[0]
        )
        largest = max(largest_of(use.ravel()), largest_of(used))
        if largest <= 0.0:
            break
        if value < LOST * best:
            copy_table(weight, found)
            copy_into(memory, found_memory)
            reach *= LESS
            continue
        spread = _spread(weight, memory, use, used, value)
        pace = min(reach * (GOAL - value) / max(spread, TINY), STEEPEST / largest)
        _step(weight, memory, use, used, pace)
    copy_table(weight, found)
    copy_into(memory, found_memory)
    return best, step + 1
