"""Least prices of placements, bounded by messages; multipliers by exponentiated steps.

A *part* is a set of ops with the edges between them, ops numbered topologically. With the device
of every op as its label, an op o on device d costs `unary[o, d]`, an edge e from a to b

    (flow[e] + weight[e] · price[a, b]) · (fixed[e] · latency[a, b] + size[e] · per_byte[a, b]),

nothing where a = b. Any messages `back[e, a]`, `ahead[e, b]` move costs between edges and their
ends without changing what a placement costs in all:

    Σ_o θ_o(x_o) + Σ_e θ_e(x_u, x_v)  =  Σ_o (θ_o + Σ back + Σ ahead)(x_o)
                                         + Σ_e (θ_e − back − ahead)(x_u, x_v),

so the sum of the least entries on the right is a lower bound on the least cost, whatever the
messages. Sweeps there and back make it no worse: an op takes all it can from its edges, and hands
even shares on to those ahead. On a tree whose ops have one edge ahead one sweep makes it exact.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from placewright.graph import Floats, Ints, Wide
from placewright.kernels.common.rows import largest_of, tilt, total_of
from placewright.kernels.compiled import inlined, inner, kernel


class Part(NamedTuple):
    """Ops `0 … n − 1`, edges by tail; `time`, `closed` (the `penalty` where an op cannot be) and
    `share` (of a device's memory) are ``[op, device]``; the rest ``[edge]`` or CSR."""

    time: Floats
    closed: Floats
    share: Floats
    tail: Wide
    head: Wide
    size: Floats
    fixed: Floats
    weight: Floats
    out_offsets: Wide
    in_offsets: Wide
    in_edges: Wide
    penalty: float


class Routes(NamedTuple):
    """What transfers take, and which channels the pair ``a · devices + b`` keeps busy."""

    latency: Floats
    per_byte: Floats
    channel_offsets: Wide
    channels: Ints
    channel_count: int


@inlined
def delay(net, routes, e, a, b):
    """Seconds that edge `e` of a part or network is sent from device `a` to `b`."""
    if a == b:
        return 0.0
    return net.fixed[e] * routes.latency[a, b] + net.size[e] * routes.per_byte[a, b]


@inlined
def _cost(part, routes, flow, price, e, a, b):
    return (flow[e] + part.weight[e] * price[a, b]) * delay(part, routes, e, a, b)


@inner
def _take_all(part, routes, flow, price, back, ahead, op, total):
    """Take from the op's edges what each of its labels costs there at least."""
    count = len(total)
    for k in range(part.in_offsets[op], part.in_offsets[op + 1]):
        e = part.in_edges[k]
        for b in range(count):
            least = np.inf
            for a in range(count):
                least = min(least, _cost(part, routes, flow, price, e, a, b) - back[e, a])
            total[b] += least - ahead[e, b]
            ahead[e, b] = least
    for e in range(part.out_offsets[op], part.out_offsets[op + 1]):
        for a in range(count):
            least = np.inf
            for b in range(count):
                least = min(least, _cost(part, routes, flow, price, e, a, b) - ahead[e, b])
            total[a] += least - back[e, a]
            back[e, a] = least


@inner
def _gather(part, unary, back, ahead, op, total):
    for d in range(len(total)):
        total[d] = unary[op, d]
    for k in range(part.in_offsets[op], part.in_offsets[op + 1]):
        e = part.in_edges[k]
        for d in range(len(total)):
            total[d] += ahead[e, d]
    for e in range(part.out_offsets[op], part.out_offsets[op + 1]):
        for d in range(len(total)):
            total[d] += back[e, d]


@kernel(allocates=True)
def sweep(part, routes, unary, flow, price, back, ahead, node, label):
    """A sweep there and one back; the bound, and in `label` a placement that is cheap.

    `back` and `ahead` are messages to start from, and are changed; `node[op, device]` is left
    with what the op's labels cost there.
    """
    n, count = unary.shape
    total = np.empty(count)
    for op in range(n):
        _gather(part, unary, back, ahead, op, total)
        _take_all(part, routes, flow, price, back, ahead, op, total)
        before = part.in_offsets[op + 1] - part.in_offsets[op]
        after = part.out_offsets[op + 1] - part.out_offsets[op]
        part_of = 1.0 / max(before, after, 1)
        for e in range(part.out_offsets[op], part.out_offsets[op + 1]):
            for d in range(count):
                back[e, d] -= part_of * total[d]
    bound = 0.0
    for op in range(n - 1, -1, -1):
        _gather(part, unary, back, ahead, op, total)
        _take_all(part, routes, flow, price, back, ahead, op, total)
        before = part.in_offsets[op + 1] - part.in_offsets[op]
        after = part.out_offsets[op + 1] - part.out_offsets[op]
        part_of = 1.0 / max(before, after, 1)
        for k in range(part.in_offsets[op], part.in_offsets[op + 1]):
            e = part.in_edges[k]
            for d in range(count):
                ahead[e, d] -= part_of * total[d]
        left = 1.0 - part_of * before
        least = np.inf
        for d in range(count):
            node[op, d] = left * total[d]
            least = min(least, node[op, d])
        bound += least  # edges behind it have nothing left: their least entry is 0
    _choose(part, routes, flow, price, back, ahead, node, label)
    return bound


@inner
def _choose(part, routes, flow, price, back, ahead, node, label):
    n, count = node.shape
    for op in range(n):
        best, choice = np.inf, 0
        for d in range(count):
            cost = node[op, d]
            for k in range(part.in_offsets[op], part.in_offsets[op + 1]):
                e = part.in_edges[k]
                a = label[part.tail[e]]
                cost += _cost(part, routes, flow, price, e, a, d) - back[e, a] - ahead[e, d]
            if cost < best:
                best, choice = cost, d
        label[op] = choice


@kernel
def add_loads(part, routes, label, load, busy, used):
    """Add what the placement `label` makes devices, channels and memories carry."""
    count = routes.latency.shape[0]
    for op in range(len(label)):
        d = label[op]
        load[d] += part.time[op, d]
        used[d] += part.share[op, d]
    for e in range(len(part.tail)):
        a, b = label[part.tail[e]], label[part.head[e]]
        if a != b:
            seconds = part.weight[e] * delay(part, routes, e, a, b)
            pair = a * count + b
            for k in range(routes.channel_offsets[pair], routes.channel_offsets[pair + 1]):
                busy[routes.channels[k]] += seconds


@kernel
def pair_prices(routes, weight, price):
    """`price[a, b]`: the sum of the weights of the channels that the pair keeps busy."""
    count = routes.latency.shape[0]
    for a in range(count):
        for b in range(count):
            pair = a * count + b
            price[a, b] = 0.0
            for k in range(routes.channel_offsets[pair], routes.channel_offsets[pair + 1]):
                price[a, b] += weight[routes.channels[k]]


@inner(allocates=True)
def _longest(part, routes, label, length, on_path, on_edge):
    """The longest path under a placement; marks its ops and edges."""
    n = len(label)
    best = 0.0
    last = -1
    via = np.full(n, -1)
    for op in range(n):
        length[op] = 0.0
        for k in range(part.in_offsets[op], part.in_offsets[op + 1]):
            e = part.in_edges[k]
            tail = part.tail[e]
            there = length[tail] + delay(part, routes, e, label[tail], label[op])
            if there > length[op] or via[op] < 0:
                length[op], via[op] = there, e
        length[op] += part.time[op, label[op]]
        if length[op] >= best:
            best, last = length[op], op
    on_path[:] = 0.0
    on_edge[:] = 0.0
    while last >= 0:
        on_path[last] = 1.0
        if via[last] < 0:
            break
        on_edge[via[last]] = 1.0
        last = part.tail[via[last]]
    return best


@kernel(allocates=True)
def region_bound(part, routes, first, last, steps, enough):
    """A bound on the time that the part's ops take, op 0 on device `first`, the last on `last`.

    -1 for anywhere. For weights λ + Σ α_d + Σ ε_c = 1 over a flow of paths, the loads of devices
    and those of channels, and prices of memory, each step bounds the least price by one sweep,
    then moves weight to what the placement found overloads. Stops after `steps`, or when the
    bound is as long as a placement's own (to a share of `enough`). All weights at once give a
    valid bound, so the best counts.
    """
    n, count = part.time.shape
    edges = len(part.tail)
    weight = np.full(1 + count + routes.channel_count, 1.0 / (1 + count))
    weight[1 + count :] *= 0.1
    weight /= weight.sum()
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
    best = 0.0
    least = np.inf
    for step in range(steps):
        pair_prices(routes, weight[1 + count :], price)
        for op in range(n):
            for d in range(count):
                unary[op, d] = (
                    (weight[0] * flow_op[op] + weight[1 + d]) * part.time[op, d]
                    + memory[d] * part.share[op, d]
                    + part.closed[op, d]
                )
        if first >= 0:
            for d in range(count):
                if d != first:
                    unary[0, d] += part.penalty
        if last >= 0:
            for d in range(count):
                if d != last:
                    unary[n - 1, d] += part.penalty
        for e in range(edges):
            scaled[e] = weight[0] * flow_edge[e]
        bound = sweep(part, routes, unary, scaled, price, back, ahead, node, label) - total_of(
            memory
        )
        best = max(best, bound)
        gains[:] = 0.0
        used = np.zeros(count)
        add_loads(part, routes, label, gains[1 : 1 + count], gains[1 + count :], used)
        gains[0] = _longest(part, routes, label, length, on_path, on_edge)
        largest = largest_of(gains)
        if largest <= 0.0:
            break
        if largest_of(used) <= 1.0:
            least = min(least, largest)
        if best >= least * (1.0 - enough):
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
    return best, least
