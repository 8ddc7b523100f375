"""A region whose first op feeds many others with one tensor, by the devices that get a copy.

Op 0 of a part is on device a. Its *fan-out tensor* goes once to each device with a reader. Say
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
by it is bounded by dual ascent as in `dual_ascent`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Ints
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


class Copies(NamedTuple):
    """A case: which devices get a copy of the tensor that op 0, on `first`, feeds its readers."""

    first: int
    last: int
    reader: Flags  # [op]
    readers: int
    send: Floats  # [device] seconds
    copy: Ints  # [device]


class CopyRows(NamedTuple):
    """What copies say, -1 for no row, and where the weights of all rows begin."""

    early: Floats  # [device] seconds of its row beside its ops
    late: Floats
    is_late: Flags  # [op, device] whether the late row has the op
    busy: Floats  # [channel] seconds of copies
    queue: Floats  # [channel] seconds of its row, in which the late ops of d have share[c, d]
    share: Floats  # [channel, device]
    devices_at: int
    channels_at: int
    early_at: int
    late_at: int
    queue_at: int


class Flow(NamedTuple):
    """What the longest paths of the placements so far go through, a mean of them."""

    op: Floats
    edge: Floats
    on_path: Floats  # the last of them
    on_edge: Floats
    length: Floats


@inner(allocates=True)
def copy_rows(part, routes, case, head, tail):
    n, count = part.time.shape
    channels = routes.channel_count
    rest = np.zeros(count)
    rows = CopyRows(
        np.full(count, -1.0), np.full(count, -1.0), np.zeros((n, count), dtype=np.uint8),
        np.zeros(channels), np.full(channels, -1.0), np.zeros((channels, count)),
        1, 1 + count, 1 + count + channels, 1 + 2 * count + channels, 1 + 3 * count + channels,
    )  # fmt: skip
    for d in range(count):
        if d == case.first or case.copy[d] != 1:
            continue
        soonest, least, rest[d] = np.inf, np.inf, np.inf
        for op in range(1, n if case.reader[n - 1] else n - 1):
            if head[op, d] == np.inf or tail[op, d] == np.inf:
                continue
            soonest, least = min(soonest, head[op, d]), min(least, tail[op, d])
            if case.reader[op] or head[op, d] >= case.send[d]:
                rows.is_late[op, d] = 1
                rest[d] = min(rest[d], tail[op, d])
        rows.early[d], rows.late[d] = soonest + least, case.send[d] + rest[d]
    for d in range(count):
        if d == case.first or case.copy[d] != 1:
            continue
        pair = case.first * count + d
        for k in range(routes.channel_offsets[pair], routes.channel_offsets[pair + 1]):
            rows.share[routes.channels[k], d] = case.send[d]
    for c in range(channels):
        total = total_of(rows.share[c])
        if total <= 0.0:
            continue
        squares, tails = 0.0, 0.0
        for d in range(count):
            if rows.share[c, d] > 0.0:
                squares += rows.share[c, d] ** 2
                tails += rows.share[c, d] * rest[d]
        rows.busy[c] = total
        rows.queue[c] = (0.5 * (squares + total * total) + tails) / total
        for d in range(count):
            rows.share[c, d] /= total
    return rows


@kernel(allocates=True)
def case_bound(part, routes, first, last, reader, send, copy, weight, steps, goal, enough):
    """A bound on T where `copy` says who gets a copy; `inf` where readers find no device.

    `part` charges nothing for the edges of the fan-out op, whose copies take ``send[d]`` from
    `first`. `weight`, of the path, devices, channels, early, late and queue rows, is where to seek
    from, and is left at the best found. Stops at `goal`.
    """
    n, count = part.time.shape
    edges = len(part.tail)
    readers = 0
    for op in range(n):
        readers += 1 if reader[op] else 0
    case = Copies(first, last, reader, readers, send, copy)
    shut = part.closed > 0.0
    _shut_without_copy(case, shut)
    head, tail = heads_and_tails(part, routes, first, last, shut)
    if _is_nowhere(head, tail):
        return np.inf
    rows = copy_rows(part, routes, case, head, tail)
    _admit_rows(rows, weight)
    found, gains = weight.copy(), np.zeros(len(weight))
    memory, used, after = np.zeros(count), np.zeros(count), np.zeros(count)
    flow = Flow(np.zeros(n), np.zeros(edges), np.zeros(n), np.zeros(edges), np.zeros(n))
    unary, node = np.empty((n, count)), np.empty((n, count))
    back, ahead = np.zeros((edges, count)), np.zeros((edges, count))
    scaled, price = np.zeros(edges), np.zeros((count, count))
    label = np.zeros(n, dtype=np.int64)
    best, least = 0.0, np.inf
    for step in range(steps):
        pair_prices(routes, weight[rows.channels_at : rows.early_at], price)
        constant = _charge(part, case, rows, weight, memory, flow, shut, price, unary)
        for e in range(edges):
            scaled[e] = weight[0] * flow.edge[e]
        bound = sweep(part, routes, unary, scaled, price, back, ahead, node, label)
        bound += constant - total_of(memory)
        if bound > best:
            best = bound
            copy_into(found, weight)
        _gain(part, routes, case, rows, label, flow, gains, used, after)
        largest = largest_of(gains)
        if largest <= 0.0:
            break
        if largest_of(used) <= 1.0:
            least = min(least, largest)
        if best >= goal or best >= least * (1.0 - enough):
            break
        _mix(flow, 1.0 if step == 0 else 2.0 / (3.0 + step))
        tilt(weight, gains, largest, 1.0 / math.sqrt(1.0 + step))
        for d in range(count):
            if largest_of(part.share[:, d]) > 0.0:
                memory[d] = max(0.0, memory[d] + best * (used[d] - 1.0) / (1.0 + step))
    copy_into(weight, found)
    return best


@inner
def _shut_without_copy(case, shut):
    """No reader is where no copy is."""
    for op in range(len(case.reader)):
        if case.reader[op]:
            for d in range(len(case.copy)):
                if d != case.first and case.copy[d] == 0:
                    shut[op, d] = True


@inner
def _is_nowhere(head, tail):
    """Whether some op can be on no device."""
    for op in range(len(head)):
        least = np.inf
        for d in range(head.shape[1]):
            least = min(least, head[op, d] + tail[op, d])
        if least == np.inf:
            return True
    return False


@inner
def _admit_rows(rows, weight):
    """Weight for the rows that there are, none for the others; to a sum of 1."""
    for d in range(len(rows.early)):
        for at in (rows.early_at, rows.late_at):
            if rows.early[d] < 0.0:
                weight[at + d] = 0.0
            else:
                weight[at + d] = max(weight[at + d], 0.25 * weight[rows.devices_at + d], 1e-3)
    for c in range(len(rows.queue)):
        at = rows.queue_at + c
        weight[at] = 0.0 if rows.queue[c] < 0.0 else max(weight[at], 1e-2)
    total = total_of(weight)
    for row in range(len(weight)):
        weight[row] /= total


@inner
def _charge(part, case, rows, weight, memory, flow, shut, price, unary):
    """What ops cost by the weights, in `unary[op, device]`; what is paid wherever they are."""
    n, count = unary.shape
    constant = 0.0
    for c in range(len(rows.queue)):
        constant += weight[rows.channels_at + c] * rows.busy[c]
        if rows.queue[c] >= 0.0:
            constant += weight[rows.queue_at + c] * rows.queue[c]
    for d in range(count):
        whole, after = weight[rows.devices_at + d], 0.0
        if rows.early[d] >= 0.0:
            early, after = weight[rows.early_at + d], weight[rows.late_at + d]
            whole += early
            constant += early * rows.early[d] + after * rows.late[d]
            for c in range(len(rows.queue)):
                after += weight[rows.queue_at + c] * rows.share[c, d]
        is_open = case.copy[d] < 0 and d != case.first
        charge = price[case.first, d] * case.send[d] / case.readers if is_open else 0.0
        for op in range(n):
            unary[op, d] = (
                (weight[0] * flow.op[op] + whole + after * rows.is_late[op, d]) * part.time[op, d]
                + memory[d] * part.share[op, d]
                + (part.penalty if shut[op, d] else 0.0)
                + (charge if case.reader[op] else 0.0)
            )
        if d != case.first:
            unary[0, d] += part.penalty
        if case.last >= 0 and d != case.last:
            unary[n - 1, d] += part.penalty
    return constant


@inner
def _gain(part, routes, case, rows, label, flow, gains, used, after):
    """What each row comes to where ops are on ``label[op]``, and of the memory what is used."""
    count = len(used)
    for row in range(len(gains)):
        gains[row] = 0.0
    for d in range(count):
        used[d], after[d] = 0.0, 0.0
    devices, channels = gains[rows.devices_at : rows.channels_at], gains[rows.channels_at :]
    add_loads(part, routes, label, devices, channels, used)
    gains[0] = _longest(part, routes, label, flow.length, flow.on_path, flow.on_edge)
    for op in range(len(label)):
        d = label[op]
        if rows.is_late[op, d]:
            after[d] += part.time[op, d]
        if case.reader[op] and d != case.first and case.copy[d] < 0:
            pair = case.first * count + d
            for k in range(routes.channel_offsets[pair], routes.channel_offsets[pair + 1]):
                channels[routes.channels[k]] += case.send[d] / case.readers
    for d in range(count):
        if rows.early[d] >= 0.0:
            gains[rows.early_at + d] = rows.early[d] + devices[d]
            gains[rows.late_at + d] = rows.late[d] + after[d]
    for c in range(len(rows.queue)):
        channels[c] += rows.busy[c]
        if rows.queue[c] >= 0.0:
            gains[rows.queue_at + c] = rows.queue[c]
            for d in range(count):
                gains[rows.queue_at + c] += rows.share[c, d] * after[d]


@inner
def _mix(flow, moved):
    """A share `moved` of the way from the mean to the last path."""
    for op in range(len(flow.op)):
        flow.op[op] += moved * (flow.on_path[op] - flow.op[op])
    for e in range(len(flow.edge)):
        flow.edge[e] += moved * (flow.on_edge[e] - flow.edge[e])
