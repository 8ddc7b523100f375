"""A slow obvious twin of `kernels.latency.bound_slots`: one value for given prices."""

from __future__ import annotations

import math
from functools import cache

ROUND = 1e-9


def value(forest, routes, first, last, copies, horizon, each, weight, memory):
    """What copies and the cheapest trees cost, slot by slot, in exact recursion."""
    devices, intervals = len(copies.send), weight.shape[1]
    slots, width = intervals * each, horizon / intervals
    slot = horizon / slots

    def channels(a, b):
        pair = a * devices + b
        return routes.channels[routes.channel_offsets[pair] : routes.channel_offsets[pair + 1]]

    def price(rows, start, seconds):
        """Of a busy time on some rows; nothing beyond the horizon."""
        return sum(
            float(weight[row, j])
            * max(min(start + seconds, (j + 1) * width) - max(start, j * width), 0.0)
            / width
            for row in rows
            for j in range(intervals)
        )

    def least_in_slot(rows, k, seconds):
        """Over starts in slot k: where either end of it meets the end of a slot."""
        low, high = k * slot, (k + 1) * slot
        meets = [m * slot - seconds for m in range(slots + 1)]
        starts = [low, high, *(s for s in meets if low < s < high)]
        return min(price(rows, start, seconds) for start in starts)

    def whole(seconds):
        return math.floor(max(seconds / slot - ROUND, 0.0))

    def sent(rows, seconds, k, weight):
        """The cheapest transfer that has come by the start of slot k."""
        options = [least_in_slot(rows, j, seconds) for j in range(k - whole(seconds) + 1)]
        return weight * min(options, default=math.inf)

    def on_route(a, b):
        return [devices + c for c in channels(a, b)]

    def can_start(op, d, k):
        begin = float(forest.early[op, d])
        for e in range(forest.entry_offsets[op], forest.entry_offsets[op + 1]):
            if forest.entry_fan_out[e] and d != first:
                if copies.copy[d] == 0:
                    return False
                begin = max(begin, float(copies.low[d]))
        end = horizon - forest.late[op, d] - forest.time[op, d]
        if not begin <= end + ROUND * slot:
            return False
        return whole(begin) <= k <= math.floor(max(end, 0.0) / slot + ROUND)

    @cache
    def tree(op, d, k):
        """The least cost of an op and all below it, if it starts on d in slot k."""
        if not can_start(op, d, k):
            return math.inf
        cost = least_in_slot([d], k, float(forest.time[op, d]))
        cost += float(memory[d] * forest.share[op, d])
        for e in range(forest.entry_offsets[op], forest.entry_offsets[op + 1]):
            if d != first and not (forest.entry_fan_out[e] and copies.copy[d] >= 0):
                delay = forest.entry_fixed[e] * routes.latency[first, d]
                delay += forest.entry_size[e] * routes.per_byte[first, d]
                cost += sent(on_route(first, d), float(delay), k, float(forest.entry_weight[e]))
        below = range(forest.child_offsets[op], forest.child_offsets[op + 1])
        return cost + sum(handed(int(forest.children[i]), d, k) for i in below)

    @cache
    def handed(op, d, k):
        """The least cost of a tree whose result is on d by the start of slot k."""
        best = math.inf
        for a in range(devices):
            ran = whole(float(forest.time[op, a]))
            delay = 0.0
            if a != d:
                delay = float(
                    forest.fixed[op] * routes.latency[a, d]
                    + forest.size[op] * routes.per_byte[a, d]
                )
            for start in range(k + 1):
                if a == d:
                    if start + ran <= k:
                        best = min(best, tree(op, a, start))
                    continue
                for j in range(start + ran, k - whole(delay) + 1):
                    moved = float(forest.weight[op]) * least_in_slot(on_route(a, d), j, delay)
                    best = min(best, tree(op, a, start) + moved)
        return best

    total = 0.0
    for d in range(devices):
        if d != first and copies.copy[d] == 1:
            seconds = float(copies.send[d])
            until = min(float(copies.high[d]), horizon) - seconds
            if until < -ROUND * slot:
                return math.inf
            final = min(math.floor(max(until, 0.0) / slot + ROUND), slots - 1)
            starts = range(whole(float(copies.low[d]) - seconds), final + 1)
            costs = [least_in_slot(on_route(first, d), k, seconds) for k in starts]
            total += min(costs, default=math.inf)
    for op in range(len(forest.time)):
        if forest.parent[op] < 0:
            if last >= 0:
                least = handed(op, last, slots - 1)
            else:
                least = min(tree(op, d, k) for d in range(devices) for k in range(slots))
            total += float(forest.times[op]) * least
    return total
