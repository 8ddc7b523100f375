"""Slow, obvious twins of the kernels of m-SCT and GETF, and their programs by enumeration."""

from __future__ import annotations

import itertools
import math
from collections import Counter

from tests.naive.latency import inputs_of, transfer_time


def favourite_child_placement(problem, priority, favourite, unit_device):
    """(unit_device, failed op or -1): try every ready op on every device; see the kernel."""
    unit_device = list(unit_device)
    free = [float(m) for m in problem.device_memory]
    for unit, d in enumerate(unit_device):
        if d >= 0:
            free[d] -= float(problem.unit_memory[unit])
    devices = range(problem.device_count)
    device_free, last = [0.0] * len(devices), [-1] * len(devices)
    op_finish, op_device = {}, {}
    now = 0.0

    def arrival(op, d):
        times = [0.0]
        for e in inputs_of(problem, op):
            producer = int(problem.edge_producer[e])
            there = op_finish[producer]
            if op_device[producer] != d:
                there += transfer_time(problem, problem.edge_tensor[e], op_device[producer], d)
            times.append(there)
        return max(times)

    def supported(op, d):
        return math.isfinite(problem.unit_time[problem.op_unit[op], d])

    def may_go(op, d):
        unit = problem.op_unit[op]
        if op in op_finish or not supported(op, d):
            return False
        if unit_device[unit] >= 0:
            return unit_device[unit] == d
        return problem.unit_memory[unit] <= free[d]

    def start(op, d):
        return max(now, device_free[d], arrival(op, d))

    def kept_for(d, ready):
        child = favourite[last[d]] if last[d] >= 0 else -1
        if child not in ready or not may_go(child, d):
            return None
        elsewhere = [start(child, e) for e in devices if e != d and may_go(child, e)]
        return child if all(start(child, d) < other for other in elsewhere) else None

    while len(op_finish) < problem.op_count:
        ready = [
            op
            for op in range(problem.op_count)
            if op not in op_finish
            and all(problem.edge_producer[e] in op_finish for e in inputs_of(problem, op))
        ]
        pairs = []
        for d in devices:
            child = kept_for(d, ready)
            for op in ready:
                if not may_go(op, d):
                    continue
                begin = start(op, d)
                if child is not None and op != child:
                    everywhere = max(arrival(op, e) for e in devices if supported(op, e))
                    begin = max(begin, everywhere)
                pairs.append((begin, int(priority[op]), d, op))
        if not pairs:
            return unit_device, ready[0]
        now, _, d, op = min(pairs)
        unit = problem.op_unit[op]
        if unit_device[unit] < 0:
            unit_device[unit] = d
            free[d] -= float(problem.unit_memory[unit])
        op_device[op], last[d] = d, op
        op_finish[op] = device_free[d] = now + float(problem.op_time[op, d])
    return unit_device, -1


def paths(pairs):
    """All paths as (ops, pairs), from an op without producers to one without consumers."""
    out = {op: [] for op in range(len(pairs.order))}
    for pair, (producer, consumer) in enumerate(zip(pairs.producer, pairs.consumer, strict=True)):
        out[int(producer)].append((int(consumer), pair))
    found = []

    def walk(ops, used):
        if not out[ops[-1]]:
            found.append((ops, used))
        for consumer, pair in out[ops[-1]]:
            walk([*ops, consumer], [*used, pair])

    for op in out:
        if op not in set(pairs.consumer.tolist()):
            walk([op], [])
    return found


def length(path, op_weight, pair_weight):
    return sum(op_weight[o] for o in path[0]) + sum(pair_weight[p] for p in path[1])


def soft_longest_path(pairs, op_weight, pair_weight, temperature):
    """(op_flow, pair_flow): every path weighted by exp(length / temperature)."""
    every = paths(pairs)
    lengths = [length(path, op_weight, pair_weight) for path in every]
    weights = [math.exp((each - max(lengths)) / temperature) for each in lengths]
    op_flow, pair_flow = [0.0] * len(pairs.order), [0.0] * len(pairs.producer)
    for (ops, used), weight in zip(every, weights, strict=True):
        for op in ops:
            op_flow[op] += weight / sum(weights)
        for pair in used:
            pair_flow[pair] += weight / sum(weights)
    return op_flow, pair_flow


def equitable_classes(pairs, colour, op_unit):
    """`[op]` class: split by the neighbours' classes, all at once, until nothing splits."""
    ops = range(len(pairs.order))
    colour = list(colour)
    while True:
        seen = []
        for op in ops:
            near = Counter()
            for k, (a, b) in enumerate(zip(pairs.producer, pairs.consumer, strict=True)):
                if b == op:
                    near["in", colour[a], pairs.seconds[k]] += 1
                if a == op:
                    near["out", colour[b], pairs.seconds[k]] += 1
            mates = Counter(colour[other] for other in ops if op_unit[other] == op_unit[op])
            seen.append((colour[op], frozenset(near.items()), frozenset(mates.items())))
        numbers = {each: number for number, each in enumerate(dict.fromkeys(seen))}
        if len(numbers) == len(set(colour)):
            return [numbers[each] for each in seen]
        colour = [numbers[each] for each in seen]


def same_partition(one, other):
    return len(set(zip(one, other, strict=True))) == len(set(one)) == len(set(other))


def _scale_down(saved, ends):
    total = Counter()
    for end, value in zip(ends.tolist(), saved, strict=True):
        total[end] += value
    return [v / max(total[end], 1.0) for end, v in zip(ends.tolist(), saved, strict=True)]


def favourite_descent(pairs, op_weight, unit, iterations):
    """(saved, makespan); see the kernel."""
    seconds = pairs.seconds.tolist()
    saved = [1.0 if c > 0 else 0.0 for c in seconds]
    saved = _scale_down(_scale_down(saved, pairs.producer), pairs.consumer)
    points = []
    for step in range(iterations + 1):
        paid = [c * (1 - s) for c, s in zip(seconds, saved, strict=True)]
        points.append((max(length(path, op_weight, paid) for path in paths(pairs)), saved))
        temperature = unit * 0.01 ** (step / iterations)
        _, flow = soft_longest_path(pairs, op_weight, paid, temperature)
        saved = [
            max(s, 1e-6) * math.exp(min(0.1 * c * f / temperature, 2.0)) if c > 0 else 0.0
            for s, c, f in zip(saved, seconds, flow, strict=True)
        ]
        for _ in range(4):
            saved = _scale_down(_scale_down(saved, pairs.producer), pairs.consumer)
    makespan, saved = min(points, key=lambda point: point[0])
    return saved, makespan


def best_favourites(pairs, op_time):
    """The favourite-child program in integers, by trying every choice of favourites."""
    best = math.inf
    every = paths(pairs)
    for chosen in itertools.product((0, 1), repeat=len(pairs.producer)):
        picked = [k for k, one in enumerate(chosen) if one]
        parents, children = pairs.producer[picked].tolist(), pairs.consumer[picked].tolist()
        if len(set(parents)) < len(parents) or len(set(children)) < len(children):
            continue
        paid = [c * (1 - one) for c, one in zip(pairs.seconds, chosen, strict=True)]
        best = min(best, max(length(path, op_time, paid) for path in every))
    return best


def dual_value(unit_cost, unit_allowed, price):
    """The least total cost over all assignments of units to device kinds, less the prices."""
    choices = [[k for k, ok in enumerate(row) if ok] for row in unit_allowed]
    totals = [
        sum(unit_cost[unit][k] for unit, k in enumerate(kinds))
        for kinds in itertools.product(*choices)
    ]
    return min(totals) - sum(price)


def assignment_descent(pairs, op_unit, op_time, fill, allowed, size, iterations):
    """(share, bound); see the kernel."""
    ops, units, kinds = range(len(pairs.order)), range(len(fill)), range(len(size))
    log_share = [[0.0 for _ in kinds] for _ in units]
    mean = [[0.0 for _ in kinds] for _ in units]
    weights = [1.0 / (len(kinds) + 1)] * (len(kinds) + 1)  # of each kind's load, then of paths
    price = [0.0 for _ in kinds]
    bound = 0.0
    for step in range(iterations):
        progress = step / iterations
        rate = 1.01 - progress
        share = []
        for unit in units:
            top = max(log_share[unit][k] for k in kinds if allowed[unit][k])
            log_share[unit] = [
                max(log_share[unit][k] - top, -30.0) if allowed[unit][k] else log_share[unit][k]
                for k in kinds
            ]
            raw = [math.exp(log_share[unit][k]) if allowed[unit][k] else 0.0 for k in kinds]
            share.append([each / sum(raw) for each in raw])
        time = [sum(op_time[o][k] * share[op_unit[o]][k] for k in kinds) for o in ops]
        load = [sum(op_time[o][k] * share[op_unit[o]][k] for o in ops) / size[k] for k in kinds]
        filled = [sum(fill[u][k] * share[u][k] for u in units) for k in kinds]
        temperature = sum(time) / len(time) * 0.03**progress
        if temperature == 0:
            return share, 0.0
        flow, _ = soft_longest_path(pairs, time, [0.0] * len(pairs.producer), temperature)
        path = sum(f * t for f, t in zip(flow, time, strict=True))
        largest = max(path, *load)
        weights = [
            w * math.exp(rate * (each / largest - 1))
            for w, each in zip(weights, [*load, path], strict=True)
        ]
        weights = [w / sum(weights) for w in weights]
        price = [max(p + rate * largest * (f - 1), 0.0) for p, f in zip(price, filled, strict=True)]
        cost = [[fill[u][k] * price[k] for k in kinds] for u in units]
        for o in ops:
            for k in kinds:
                charged = weights[k] / size[k] + weights[-1] * flow[o]
                cost[op_unit[o]][k] += op_time[o][k] * charged
        bound = max(bound, dual_value(cost, allowed, price))
        for u in units:
            usual = [cost[u][k] for k in kinds if allowed[u][k]]
            if sum(usual) > 0:
                scale = rate * len(usual) / sum(usual)
                log_share[u] = [log_share[u][k] - scale * cost[u][k] for k in kinds]
        if 2 * step >= iterations - 1:
            mean = [[mean[u][k] + share[u][k] for k in kinds] for u in units]
    return [[each / sum(row) for each in row] for row in mean], bound
