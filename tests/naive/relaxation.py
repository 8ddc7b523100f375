"""Slow obvious twins of the kernels behind `bounds.latency.paths.relaxation`."""

from __future__ import annotations

import math
from itertools import product


def delay(part, routes, e, a, b):
    if a == b:
        return 0.0
    return float(part.fixed[e] * routes.latency[a, b] + part.size[e] * routes.per_byte[a, b])


def cheapest_placement(part, routes, unary, flow, price):
    """The least price of all placements, by trying them."""
    n, devices = unary.shape
    best = math.inf
    for label in product(range(devices), repeat=n):
        cost = sum(unary[op, d] for op, d in enumerate(label))
        for e in range(len(part.tail)):
            a, b = label[part.tail[e]], label[part.head[e]]
            cost += (flow[e] + part.weight[e] * price[a, b]) * delay(part, routes, e, a, b)
        best = min(best, float(cost))
    return best


def loads(part, routes, label):
    """(by device, by channel, by memory) of a placement."""
    devices = routes.latency.shape[0]
    load, used = [0.0] * devices, [0.0] * devices
    busy = [0.0] * routes.channel_count
    for op, d in enumerate(label):
        load[d] += part.time[op, d]
        used[d] += part.share[op, d]
    for e in range(len(part.tail)):
        a, b = label[part.tail[e]], label[part.head[e]]
        pair = a * devices + b
        if a != b:
            for channel in routes.channels[
                routes.channel_offsets[pair] : routes.channel_offsets[pair + 1]
            ]:
                busy[channel] += part.weight[e] * delay(part, routes, e, a, b)
    return load, busy, used


def pair_prices(routes, weight):
    """`[a][b]` the sum of the weights of the channels on the route from a to b."""
    devices = range(routes.latency.shape[0])

    def channels(a, b):
        pair = a * len(devices) + b
        return routes.channels[routes.channel_offsets[pair] : routes.channel_offsets[pair + 1]]

    return [[sum(weight[channel] for channel in channels(a, b)) for b in devices] for a in devices]


def cheapest_chain(cost):
    """By trying all labels."""
    steps, devices, _ = cost.shape
    return min(
        float(sum(cost[k, label[k], label[k + 1]] for k in range(steps)))
        for label in product(range(devices), repeat=steps + 1)
    )


def reachable(edges, op):
    """Ops on some path from `op`, itself left out; `edges` are pairs (tail, head)."""
    found, waiting = set(), [op]
    while waiting:
        at = waiting.pop()
        for tail, head in edges:
            if tail == at and head not in found:
                found.add(head)
                waiting.append(head)
    return found


def between(edges, first, last):
    return {op for op in reachable(edges, first) if last in reachable(edges, op)}


def seconds_alone(edges, time, closed, share, overfull, first, last):
    """Seconds of what is between two ops on the best single device, `overfull` times if too large.

    Where an op is closed to a device it takes what it takes where it is fastest.
    """
    inside = between(edges, first, last)
    devices = range(len(time[0]))
    total = dict.fromkeys(devices, 0.0)
    for op in inside:
        fastest = min((time[op][d] for d in devices if not closed[op][d]), default=math.inf)
        for d in devices:
            total[d] += fastest if closed[op][d] else time[op][d]
    fits = any(sum(share[op][d] for op in inside) <= 1.0 for d in devices)
    return min(total.values()) * (1.0 if fits else overfull)


def meeting_point(edges, n, op):
    """The first op ahead without which the last cannot be reached from `op`."""
    for other in range(op + 1, n):
        rest = [(tail, head) for tail, head in edges if other not in (tail, head)]
        if other == n - 1 or n - 1 not in reachable(rest, op):
            return other
    return n - 1


def earliest_ends(net, routes, closed, arcs):
    """`[op][device]`; `arcs` are (tail, head, cost[a][b])."""
    n, devices = net.time.shape
    ends = [[math.inf] * devices for _ in range(n)]
    for op in range(n):
        for d in range(devices):
            if closed[op, d]:
                continue
            waits = [float(net.time[op, d])]
            for e in range(len(net.tail)):
                if net.head[e] == op:
                    tail = net.tail[e]
                    waits.append(
                        min(
                            ends[tail][a] + delay(net, routes, e, a, d) + float(net.time[op, d])
                            for a in range(devices)
                        )
                    )
            for tail, head, cost in arcs:
                if head == op:
                    waits.append(min(ends[tail][a] + cost[a][d] for a in range(devices)))
            ends[op][d] = max(waits)
    return ends


def arcs_below(via, closed, tail, arc_tail):
    """Arcs that the last op's ends rest on, from op to op."""
    edges, waiting, seen, found = len(tail), [len(via) - 1], {len(via) - 1}, set()
    while waiting:
        op = waiting.pop()
        for way in [int(way) for d, way in enumerate(via[op]) if not closed[op, d]]:
            if way == edges:
                continue
            found |= {-1 - way} if way < 0 else set()
            below = int(arc_tail[-1 - way] if way < 0 else tail[way])
            if below not in seen:
                seen.add(below)
                waiting.append(below)
    return found


def least_rest(net, routes, closed, arcs):
    """`[op][device]` from its end to the end of all."""
    n, devices = net.time.shape
    rest = [[math.inf] * devices for _ in range(n)]
    for op in reversed(range(n)):
        for d in range(devices):
            if closed[op, d]:
                continue
            waits = [0.0]
            for e in range(len(net.tail)):
                if net.tail[e] == op:
                    head = net.head[e]
                    waits.append(
                        min(
                            delay(net, routes, e, d, b) + float(net.time[head, b]) + rest[head][b]
                            for b in range(devices)
                        )
                    )
            for tail, head, cost in arcs:
                if tail == op:
                    waits.append(min(cost[d][b] + rest[head][b] for b in range(devices)))
            rest[op][d] = max(waits)
    return rest
