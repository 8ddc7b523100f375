"""Joining pairs of ops so that what remains is a DAG, and as little parallelism is lost as can be.

Ops have a *depth*: the number of edges of the longest path to them. Two ops are joined if an edge
leads from one to the other and their depths differ by one, or if they have one depth (siblings).
Going once around a cycle of joined ops, every edge climbs by at least one, and every group loses
at most one, and nothing if its ops have one depth; so on a cycle all groups are pairs of the same
two depths, joined by edges from the lower op of one to the upper op of the next. No such cycle
can close if a pair that is joined later never has edges of this kind both to and from pairs joined
before (a special case of Herrmann et al. 2019, "Multilevel algorithms for acyclic partitioning of
directed acyclic graphs", §4.1).
"""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import inlined, inner, kernel
from placewright.kernels.latency.earliest_start import heap_pop, heap_push

SINGLE, LOWER, UPPER, SIBLING = 0, 1, 2, 3


@kernel(allocates=True)
def depths_of(order, reader_offsets, readers):
    """`[op]` edges of the longest path that leads to it; `order` is topological."""
    depth = np.zeros(len(order), dtype=np.int32)
    for op in order:
        for k in range(reader_offsets[op], reader_offsets[op + 1]):
            depth[readers[k]] = max(depth[readers[k]], depth[op] + 1)
    return depth


@kernel(allocates=True)
def heads_and_tails(order, weight, reader_offsets, readers, reader_cost):
    """Longest paths: `head[op]` to its start, `tail[op]` from its start to the end, in seconds."""
    head = np.zeros(len(order))
    tail = np.zeros(len(order))
    for op in order:
        there = head[op] + weight[op]
        for k in range(reader_offsets[op], reader_offsets[op + 1]):
            head[readers[k]] = max(head[readers[k]], there + reader_cost[k])
    for position in range(len(order) - 1, -1, -1):
        op = order[position]
        for k in range(reader_offsets[op], reader_offsets[op + 1]):
            tail[op] = max(tail[op], reader_cost[k] + tail[readers[k]])
        tail[op] += weight[op]
    return head, tail


@inner(allocates=True)
def _two_largest(count, ends, others, values):
    """Per op, the largest value of its edges, which op is at the other end, and the next largest.

    Of edges from or to other ops: the next largest is 0 if there is none.
    """
    largest, second = np.zeros(count), np.zeros(count)
    at = np.full(count, -1, dtype=np.int32)
    for k in range(len(ends)):
        op = ends[k]
        if values[k] > largest[op] or at[op] < 0:
            second[op] = largest[op]
            largest[op] = max(values[k], 0.0)
            at[op] = others[k]
        else:
            second[op] = max(second[op], values[k])
    return largest, at, second


@kernel(allocates=True)
def losses(one, two, source, target, cost, weight, head, tail):
    """Seconds that joining each pair of ops adds to the longest path, and to that through them.

    Joined, ops start when the inputs of both are there and have results when both are done.
    `source`, `target` and `cost` are the edges; pairs are ``one[k], two[k]``.
    """
    count = len(weight)
    before, before_at, before_next = _two_largest(
        count, target, source, head[source] + weight[source] + cost
    )
    after, after_at, after_next = _two_largest(count, source, target, cost + tail[target])
    longest = 0.0
    for op in range(count):
        longest = max(longest, head[op] + tail[op])
    lost, stretched = np.empty(len(one)), np.empty(len(one))
    for k in range(len(one)):
        a, b = one[k], two[k]
        start = max(
            before_next[a] if before_at[a] == b else before[a],
            before_next[b] if before_at[b] == a else before[b],
        )
        rest = max(
            after_next[a] if after_at[a] == b else after[a],
            after_next[b] if after_at[b] == a else after[b],
        )
        through = start + weight[a] + weight[b] + rest
        lost[k] = max(0.0, through - longest)
        stretched[k] = max(0.0, through - max(head[a] + tail[a], head[b] + tail[b]))
    return lost, stretched


@inlined
def _root(parent, unit):
    while parent[unit] != unit:
        parent[unit] = parent[parent[unit]]
        unit = parent[unit]
    return unit


@kernel(allocates=True)
def join_pairs(
    one, two, depth, reader_offsets, readers, writer_offsets, writers, unit,
    parent, unit_memory, unit_weight, unit_allowed, most_memory, most_weight, least_count,
):  # fmt: skip
    """`[op]` the op it is joined with (itself if none): pairs in their order, if they may be.

    Pairs with an edge are ``one`` → ``two``. Units (`unit[op]`) of joined ops become one; `parent`
    is a forest of units, and memory, weight and allowed devices (a bit each) are kept up to date
    at the roots. A unit that comes of joining has at most `most_memory` and `most_weight`, and
    some device is allowed for it. Stops when `least_count` groups are left.
    """
    count = len(depth)
    partner = np.arange(count, dtype=np.int32)
    role = np.zeros(count, dtype=np.int8)
    left = count
    for k in range(len(one)):
        if left <= least_count:
            break
        a, b = one[k], two[k]
        if role[a] != SINGLE or role[b] != SINGLE:
            continue
        x, y = _root(parent, unit[a]), _root(parent, unit[b])
        if x != y and (
            unit_memory[x] + unit_memory[y] > most_memory
            or unit_weight[x] + unit_weight[y] > most_weight
            or unit_allowed[x] & unit_allowed[y] == 0
        ):
            continue
        if depth[a] != depth[b]:
            leaves = False
            for j in range(reader_offsets[a], reader_offsets[a + 1]):
                leaves |= role[readers[j]] == UPPER and depth[readers[j]] == depth[b]
            if leaves:
                enters = False
                for j in range(writer_offsets[b], writer_offsets[b + 1]):
                    enters |= role[writers[j]] == LOWER and depth[writers[j]] == depth[a]
                if enters:
                    continue
            role[a], role[b] = LOWER, UPPER
        else:
            role[a], role[b] = SIBLING, SIBLING
        partner[a], partner[b] = b, a
        left -= 1
        if x != y:
            parent[y] = x
            unit_memory[x] += unit_memory[y]
            unit_weight[x] += unit_weight[y]
            unit_allowed[x] &= unit_allowed[y]
    return partner


@kernel(allocates=True)
def join_units(one, two, mass, most):
    """`[unit]` the unit it is joined with (itself if none): pairs in their order, up to a mass."""
    partner = np.arange(len(mass), dtype=np.int32)
    for k in range(len(one)):
        a, b = one[k], two[k]
        if a != b and partner[a] == a and partner[b] == b and mass[a] + mass[b] <= most:
            partner[a], partner[b] = b, a
    return partner


@kernel(allocates=True)
def ordered(p, waiting, place):
    """A topological order that always takes the ready op of the lowest `place[op]`.

    `waiting[op]`, which is used up, are the edges that the op reads.
    """
    count = len(waiting)
    order = np.empty(count, dtype=np.int32)
    keys, ops, size = np.empty(count), np.empty(count, dtype=np.int32), 0
    for op in range(count):
        if waiting[op] == 0:
            size = heap_push(keys, ops, size, float(place[op]), op, place)
    for position in range(count):
        op = ops[0]
        size = heap_pop(keys, ops, size, place)
        order[position] = op
        for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
            tensor = p.outputs[k]
            for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
                reader = p.consumers[edge]
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    size = heap_push(keys, ops, size, float(place[reader]), reader, place)
    return order
