"""Slow, obvious twins of `kernels.latency.multilevel_matching` and `multilevel_timing`."""

from __future__ import annotations

from functools import cache

from tests import naive


def depths(count, edges):
    """Edges of the longest path to each op."""
    writers = {op: [a for a, b in edges if b == op] for op in range(count)}

    @cache
    def depth(op):
        return max((1 + depth(writer) for writer in writers[op]), default=0)

    return [depth(op) for op in range(count)]


def longest_path(edges, weight):
    """Seconds of the heaviest path: `edges` are (from, to, seconds), `weight` is by op."""
    readers = {op: [(b, seconds) for a, b, seconds in edges if a == op] for op in weight}

    @cache
    def way(op):
        return weight[op] + max((seconds + way(b) for b, seconds in readers[op]), default=0.0)

    return max(way(op) for op in weight)


def heads_and_tails(edges, weight):
    """`(head, tail)` by op: the heaviest path to its start, and from its start to the end."""

    @cache
    def head(op):
        behind = (head(a) + weight[a] + seconds for a, b, seconds in edges if b == op)
        return max(behind, default=0.0)

    @cache
    def tail(op):
        return weight[op] + max(
            (seconds + tail(b) for a, b, seconds in edges if a == op), default=0
        )

    return {op: head(op) for op in weight}, {op: tail(op) for op in weight}


def joined(edges, weight, one, two):
    """The same graph with two ops made one."""
    name = {op: one if op == two else op for op in weight}
    kept = [(name[a], name[b], seconds) for a, b, seconds in edges if name[a] != name[b]]
    heavier = {op: seconds for op, seconds in weight.items() if op != two}
    heavier[one] += weight[two]
    return kept, heavier


def tails(problem, device, sequence):
    """`[op]` the longest way from its finish to the end: through readers, devices and channels."""
    _, _, sent, _ = naive.time_sequence(problem, device, sequence)
    after = {item: [] for item in sequence}
    last = {}

    def follows(item, resources):
        for resource in resources:
            if resource in last:
                after[last[resource]].append(item)
            last[resource] = item

    for item in sequence:
        if item >= 0:
            follows(item, [("device", device[item])])
        elif -1 - item in sent:
            source, target = (
                device[problem.edge_producer[-1 - item]],
                device[_reader(problem, item)],
            )
            follows(item, naive.contended(problem, source, target))
    for edge in range(problem.edge_count):
        producer, reader = int(problem.edge_producer[edge]), int(problem.consumers[edge])
        if device[producer] == device[reader]:
            after[producer].append(reader)
            continue
        server = _server(problem, device, sent, edge)
        after[producer].append(-1 - server)
        after[-1 - server].append(reader)

    def seconds(item):
        if item >= 0:
            return float(problem.op_time[item, device[item]])
        source, target = device[problem.edge_producer[-1 - item]], device[_reader(problem, item)]
        return naive.transfer_time(problem, problem.edge_tensor[-1 - item], source, target)

    @cache
    def tail(item):
        return max((seconds(each) + tail(each) for each in after[item]), default=0.0)

    return [tail(op) for op in range(problem.op_count)]


def _reader(problem, item):
    return problem.consumers[-1 - item]


def _server(problem, device, sent, edge):
    """The edge whose transfer brings this edge's tensor to its reader's device."""
    if edge in sent:
        return edge
    tensor, target = problem.edge_tensor[edge], device[problem.consumers[edge]]
    return next(
        other
        for other in sent
        if problem.edge_tensor[other] == tensor and device[problem.consumers[other]] == target
    )


def join_pairs(pairs, depth, edges, unit, memory, weight, allowed, limits, least_count):
    """`[op]` the op it is joined with, or itself: pairs in their order, each tried as it comes.

    `memory`, `weight` and `allowed` (a set of devices) are by unit; `limits` is the most of memory
    and of weight. No pair has edges both to and from earlier pairs of its two depths.
    """
    partner = {op: op for op in range(len(depth))}
    together = {one: {one} for one in unit}  # units that joined ops have made one
    lower, upper = set(), set()
    left = len(depth)
    for one, two in pairs:
        if left <= least_count:
            break
        units = together[unit[one]] | together[unit[two]]
        merges = together[unit[one]] != together[unit[two]]
        too_much = any(
            sum(each[u] for u in sorted(units)) > most
            for each, most in zip((memory, weight), limits, strict=True)
        )
        nowhere = not set.intersection(*(allowed[u] for u in units))
        leaves = any(a == one and b in upper and depth[b] == depth[two] for a, b in edges)
        enters = any(b == two and a in lower and depth[a] == depth[one] for a, b in edges)
        if (
            (partner[one], partner[two]) != (one, two)
            or (merges and (too_much or nowhere))
            or (depth[one] != depth[two] and leaves and enters)
        ):
            continue
        partner[one], partner[two] = two, one
        left -= 1
        if depth[one] != depth[two]:
            lower.add(one)
            upper.add(two)
        for each in units:
            together[each] = units
    return [partner[op] for op in range(len(depth))]


def join_units(pairs, mass, most):
    """`[unit]` the unit it is joined with, or itself: pairs in their order."""
    partner = {unit: unit for unit in range(len(mass))}
    for one, two in pairs:
        alone = partner[one] == one and partner[two] == two
        if one != two and alone and mass[one] + mass[two] <= most:
            partner[one], partner[two] = two, one
    return [partner[unit] for unit in range(len(mass))]


def ordered(problem, place):
    """A topological order that always takes the ready op of the lowest place."""
    done = []
    while len(done) < problem.op_count:
        ready = [
            op
            for op in range(problem.op_count)
            if op not in done
            and all(problem.edge_producer[e] in done for e in naive.inputs_of(problem, op))
        ]
        done.append(min(ready, key=lambda op: place[op]))
    return done
