"""A window whose first op feeds many others with one tensor, by the devices that get a copy.

Op 0 of a part is on device a. Its *hub* tensor goes once to each other device with a reader. Say
for each device whether it gets a copy (1), gets none (0), or that it is left open (-1). Then, with
T the time from the end of op 0 to the start of the last op, which is on b:

- where there is no copy there is no reader, and a copy keeps the channels of its route busy for
  p_d, the time it is sent, however few its readers;
- nothing starts on d before what is before it has run and been sent there, `head[o, d]`, and from
  the end of o on d to the start of the last op there are `tail[o, d]` (both shortest ways, which
  need no more than the edges). So of ops on d that start no sooner than r, if there are any,

      T  ≥  r + Σ t_o + least tail of them.

  With a copy there is a reader, so this holds for r = the least head of all (of all ops on d) and
  for r = p_d (of ops whose head is no less, readers among them);
- copies over one channel follow each other. On one machine jobs of p_d that end at C_d have
  Σ p_d C_d ≥ (Σ p_d² + P²) / 2, with P = Σ p_d (Queyranne 1993), and T ≥ C_d + Σ t_o + tail as
  above for each. The sum of these, each p_d / P times, is one more row without the C_d.

Each row is at most T, so is their average by any weights, and the least price of all placements
by it is bounded by messages as in `bound_energy`.
"""

from __future__ import annotations

import math

import numpy as np

from placewright.kernels.common.rows import copy_into, largest_of, tilt, total_of
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.latency.bound_paths import remainders
from placewright.kernels.latency.dual_ascent import _longest, add_loads, delay, pair_prices, sweep


@kernel(allocates=True)
def heads_and_tails(part, routes, first, last, shut):
    """`(head, tail)[op, device]`: least seconds until the op can start, and from its end on.

    Op 0 ends at 0 on `first`; the last op is on `last`, -1 for anywhere. `shut`: not there.
    """
    n, count = part.time.shape
    head = np.full((n, count), np.inf)
    for op in range(n):
        for d in range(count):
            if shut[op, d] or (op == 0 and d != first):
                continue
            latest = 0.0
            for k in range(part.in_offsets[op], part.in_offsets[op + 1]):
                e = part.in_edges[k]
                u = part.tail[e]
                least = np.inf
                for a in range(count):
                    there = head[u, a] + part.time[u, a] + delay(part, routes, e, a, d)
                    least = min(least, there)
                latest = max(latest, least)
            head[op, d] = latest
    closed = shut.copy()
    for d in range(count):
        if last >= 0 and d != last:
            closed[n - 1, d] = True
    none = np.zeros(0, dtype=np.int64)
    tail = remainders(
        part, routes, closed, np.zeros(n + 1, dtype=np.int64), none, none,
        np.zeros((0, count, count)),
    )  # fmt: skip
    return head, tail


@inner(allocates=True)
def copy_rows(part, routes, first, reader, send, copy, head, tail):
    """What copies say: `(early, late, is_late, busy, queue, share)`.

    `early[d]`, `late[d]` seconds of the rows of d beside its ops, `is_late[op, d]` the ops of the
    latter; `busy[c]` seconds of copies on a channel; `queue[c]` seconds of the row over a channel,
    in which the late ops of d have ``share[c, d]``. -1 for no row.
    """
    n, count = part.time.shape
    early, late = np.full(count, -1.0), np.full(count, -1.0)
    is_late = np.zeros((n, count), dtype=np.uint8)
    busy, queue = np.zeros(routes.channel_count), np.full(routes.channel_count, -1.0)
    share = np.zeros((routes.channel_count, count))
    rest = np.zeros(count)
    for d in range(count):
        if d == first or copy[d] != 1:
            continue
        soonest, least, rest[d] = np.inf, np.inf, np.inf
        for op in range(1, n - 1):
            if head[op, d] == np.inf or tail[op, d] == np.inf:
                continue
            soonest, least = min(soonest, head[op, d]), min(least, tail[op, d])
            if reader[op] or head[op, d] >= send[d]:
                is_late[op, d] = 1
                rest[d] = min(rest[d], tail[op, d])
        early[d], late[d] = soonest + least, send[d] + rest[d]
    for d in range(count):
        if d == first or copy[d] != 1:
            continue
        pair = first * count + d
        for k in range(routes.channel_offsets[pair], routes.channel_offsets[pair + 1]):
            share[routes.channels[k], d] = send[d]
    for c in range(routes.channel_count):
        total = share[c].sum()
        if total <= 0.0:
            continue
        squares, tails = 0.0, 0.0
        for d in range(count):
            if share[c, d] > 0.0:
                squares += share[c, d] ** 2
                tails += share[c, d] * rest[d]
        busy[c] = total
        queue[c] = (0.5 * (squares + total * total) + tails) / total
        share[c] /= total
    return early, late, is_late, busy, queue, share


@kernel(allocates=True)
def case_bound(part, routes, first, last, reader, send, copy, weight, steps, goal, enough):
    """A bound on T where `copy` says who gets a copy; `inf` where readers find no device.

    `part` charges nothing for the edges of the hub, whose copies take ``send[d]`` from `first`.
    `weight`, of the path, devices, channels, early, late and queue rows, is where to seek from,
    and is left at the best found. Stops at `goal`.
    """
    n, count = part.time.shape
    edges, channels = len(part.tail), routes.channel_count
    shut = part.closed > 0.0
    readers = 0
    for op in range(n):
        if reader[op]:
            readers += 1
            for d in range(count):
                if d != first and copy[d] == 0:
                    shut[op, d] = True
    head, tail = heads_and_tails(part, routes, first, last, shut)
    for op in range(n):
        if (head[op] + tail[op]).min() == np.inf:
            return np.inf
    early, late, is_late, busy, queue, share = copy_rows(
        part, routes, first, reader, send, copy, head, tail
    )
    devices_at, channels_at = 1, 1 + count
    early_at, late_at = channels_at + channels, channels_at + channels + count
    queue_at = late_at + count
    for d in range(count):
        if early[d] < 0.0:
            weight[early_at + d] = weight[late_at + d] = 0.0
        else:
            for at in (early_at, late_at):
                weight[at + d] = max(weight[at + d], 0.25 * weight[devices_at + d], 1e-3)
    for c in range(channels):
        if queue[c] < 0.0:
            weight[queue_at + c] = 0.0
        else:
            weight[queue_at + c] = max(weight[queue_at + c], 1e-2)
    weight /= weight.sum()
    found = weight.copy()
    memory = np.zeros(count)
    flow_op, flow_edge = np.zeros(n), np.zeros(edges)
    on_path, on_edge = np.zeros(n), np.zeros(edges)
    unary, node = np.empty((n, count)), np.empty((n, count))
    back, ahead = np.zeros((edges, count)), np.zeros((edges, count))
    scaled = np.zeros(edges)
    price = np.zeros((count, count))
    label = np.zeros(n, dtype=np.int64)
    length = np.zeros(n)
    gains = np.zeros(len(weight))
    best, least = 0.0, np.inf
    for step in range(steps):
        pair_prices(routes, weight[channels_at:early_at], price)
        constant = 0.0
        for c in range(channels):
            constant += weight[channels_at + c] * busy[c]
            if queue[c] >= 0.0:
                constant += weight[queue_at + c] * queue[c]
        for d in range(count):
            whole, after = weight[devices_at + d], 0.0
            if early[d] >= 0.0:
                whole += weight[early_at + d]
                after = weight[late_at + d]
                constant += weight[early_at + d] * early[d] + weight[late_at + d] * late[d]
                for c in range(channels):
                    after += weight[queue_at + c] * share[c, d]
            charge = price[first, d] * send[d] / readers if copy[d] < 0 and d != first else 0.0
            for op in range(n):
                unary[op, d] = (
                    (weight[0] * flow_op[op] + whole + after * is_late[op, d]) * part.time[op, d]
                    + memory[d] * part.share[op, d]
                    + (part.penalty if shut[op, d] else 0.0)
                    + (charge if reader[op] else 0.0)
                )
            if d != first:
                unary[0, d] += part.penalty
            if last >= 0 and d != last:
                unary[n - 1, d] += part.penalty
        for e in range(edges):
            scaled[e] = weight[0] * flow_edge[e]
        bound = sweep(part, routes, unary, scaled, price, back, ahead, node, label)
        bound += constant - total_of(memory)
        if bound > best:
            best = bound
            copy_into(found, weight)
        gains[:] = 0.0
        used = np.zeros(count)
        add_loads(
            part, routes, label, gains[devices_at:channels_at], gains[channels_at:early_at], used
        )
        gains[0] = _longest(part, routes, label, length, on_path, on_edge)
        after_load = np.zeros(count)
        for op in range(n):
            d = label[op]
            if is_late[op, d]:
                after_load[d] += part.time[op, d]
            if reader[op] and d != first and copy[d] < 0:
                pair = first * count + d
                for k in range(routes.channel_offsets[pair], routes.channel_offsets[pair + 1]):
                    gains[channels_at + routes.channels[k]] += send[d] / readers
        for d in range(count):
            if early[d] >= 0.0:
                gains[early_at + d] = early[d] + gains[devices_at + d]
                gains[late_at + d] = late[d] + after_load[d]
        for c in range(channels):
            gains[channels_at + c] += busy[c]
            if queue[c] >= 0.0:
                gains[queue_at + c] = queue[c]
                for d in range(count):
                    gains[queue_at + c] += share[c, d] * after_load[d]
        largest = largest_of(gains)
        if largest <= 0.0:
            break
        if largest_of(used) <= 1.0:
            least = min(least, largest)
        if best >= goal or best >= least * (1.0 - enough):
            break
        moved = 1.0 if step == 0 else 2.0 / (3.0 + step)
        for op in range(n):
            flow_op[op] += moved * (on_path[op] - flow_op[op])
        for e in range(edges):
            flow_edge[e] += moved * (on_edge[e] - flow_edge[e])
        tilt(weight, gains, largest, 1.0 / math.sqrt(1.0 + step))
        for d in range(count):
            if largest_of(part.share[:, d]) > 0.0:
                memory[d] = max(0.0, memory[d] + best * (used[d] - 1.0) / (1.0 + step))
    copy_into(weight, found)
    return best
