"""Linear orders of the ops, and the best places to cut one into groups of neighbours."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.common.arrays import Arrays
from placewright.kernels.compiled import kernel
from placewright.kernels.latency.earliest_start import heap_pop, heap_push

ALONE = -1


def top_levels(op_weight: Floats, edge_weight: Floats, order: Ints, p: Arrays) -> Floats:
    """`level[op]`: the longest path from the beginning to the op's start (Celeritas eq. 2).

    `order` is topological. The longest path through an op is its level here and its
    `ranks.upward_ranks` together.
    """
    level = np.zeros(len(op_weight))
    _top_levels(op_weight, edge_weight, order, p, level)
    return level


@kernel
def _top_levels(op_weight, edge_weight, order, p, level):
    for op in order:
        for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
            edge = p.inputs[k]
            producer = p.edge_producer[edge]
            level[op] = max(level[op], level[producer] + op_weight[producer] + edge_weight[edge])


def depth_first_order(
    offsets: Wide, readers: NDArray[Any], waiting: Wide, roots: NDArray[Any]
) -> Ints:
    """A topological order that goes on, where it can, with what the last op made ready.

    `readers[offsets[op]:offsets[op + 1]]` are the ops that read from an op, once per edge;
    `waiting[op]`, which is used up, the edges it reads; `roots` the ops that read nothing. Of
    several, the later in these arrays comes first.
    """
    order, stack = np.empty(len(waiting), dtype=np.int32), np.empty(len(waiting), dtype=np.int32)
    stack[: len(roots)] = roots
    _depth_first(offsets, readers, waiting, order, stack, len(roots))
    return order


@kernel
def _depth_first(offsets, readers, waiting, order, stack, size):
    """`stack` has the `size` roots."""
    count = 0
    while size > 0:
        size -= 1
        op = stack[size]
        order[count] = op
        count += 1
        for k in range(offsets[op], offsets[op + 1]):
            reader = readers[k]
            waiting[reader] -= 1
            if waiting[reader] == 0:
                stack[size] = reader
                size += 1


def breadth_first_order(
    offsets: Wide, readers: NDArray[Any], waiting: Wide, roots: NDArray[Any]
) -> Ints:
    """A topological order in which ops come as they became ready; see `depth_first_order`."""
    order = np.empty(len(waiting), dtype=np.int32)
    order[: len(roots)] = roots
    _breadth_first(offsets, readers, waiting, order, len(roots))
    return order


@kernel
def _breadth_first(offsets, readers, waiting, order, count):
    """`order` begins with the roots, `count` of them."""
    for position in range(len(waiting)):
        op = order[position]
        for k in range(offsets[op], offsets[op + 1]):
            reader = readers[k]
            waiting[reader] -= 1
            if waiting[reader] == 0:
                order[count] = reader
                count += 1


class _Heaps(NamedTuple):
    """Ready ops by position: a heap per label, from ``first[label]`` on, and one of all."""

    first: Wide  # [label]
    size: Wide  # [label]
    key: Floats
    ready: Ints
    all_key: Floats
    all_ready: Ints


def order_by_label(
    offsets: Wide, readers: Ints, waiting: Wide, roots: NDArray[Any], position: Wide, label: Ints
) -> Ints:
    """A topological order that stays with one label as long as it has a ready op.

    Of several, and when the label changes, the op with the least `position` comes first.
    `label[op]` ≥ 0; see `depth_first_order` for the rest.
    """
    op_count = len(waiting)
    members = np.bincount(label)
    heaps = _Heaps(
        first=np.cumsum(members) - members,
        size=np.zeros(len(members), dtype=np.int64),
        key=np.empty(op_count),
        ready=np.empty(op_count, dtype=np.int32),
        all_key=np.empty(op_count),
        all_ready=np.empty(op_count, dtype=np.int32),
    )
    done = np.zeros(op_count, dtype=np.bool_)
    order, fresh = np.empty(op_count, dtype=np.int32), np.empty(op_count, dtype=np.int32)
    fresh[: len(roots)] = roots
    _by_label(offsets, readers, waiting, position, label, heaps, done, order, fresh, len(roots))
    return order


@kernel
def _by_label(offsets, readers, waiting, position, label, h, done, order, fresh, fresh_count):
    """`fresh` are the ops that became ready last, `fresh_count` of them: the roots."""
    all_size = 0
    now = ALONE
    for count in range(len(waiting)):
        for k in range(fresh_count):
            op = fresh[k]
            its, place = label[op], float(position[op])
            at = h.first[its]
            h.size[its] = heap_push(h.key[at:], h.ready[at:], h.size[its], place, op, position)
            all_size = heap_push(h.all_key, h.all_ready, all_size, place, op, position)
        fresh_count = 0
        if now == ALONE or h.size[now] == 0:
            while done[h.all_ready[0]]:
                all_size = heap_pop(h.all_key, h.all_ready, all_size, position)
            now = label[h.all_ready[0]]
        at = h.first[now]
        op = h.ready[at]
        h.size[now] = heap_pop(h.key[at:], h.ready[at:], h.size[now], position)
        order[count] = op
        done[op] = True
        for k in range(offsets[op], offsets[op + 1]):
            reader = readers[k]
            waiting[reader] -= 1
            if waiting[reader] == 0:
                fresh[fresh_count] = reader
                fresh_count += 1


class _Cuts(NamedTuple):
    """The best cuts of the first j positions, and what the last group of them costs."""

    begin: Wide  # [j] where the last group begins
    least: Wide  # [j] cost
    groups: Wide  # [j]
    cost: Wide  # [i] of the group [i, j), for the j of the moment
    leaves: Wide  # [i] what inputs of the new op cost only after i
    possible: Flags  # [device]


def cheapest_cuts(
    input_offsets: Wide, input_after: NDArray[Any], input_cost: Wide, memory: Floats,
    allowed: Flags, device_memory: Floats, limit: float, label: NDArray[Any], pure: Flags,
    reach: int,
) -> Wide:  # fmt: skip
    """Cut the positions 0 … n - 1 into groups of neighbours at the least cost (Kernighan 1971).

    Input k of position j (``input_offsets[j] ≤ k < input_offsets[j + 1]``) costs
    ``input_cost[k]``, a whole number, if the group of j begins after position
    ``input_after[k]`` < j. So the cost of the group that is [i, j) does not depend on the others
    and grows with j, input by input: the recursion of Celeritas eqs. 4–6, counted where a tensor
    is read instead of where it is made, which adds up to the same.

    A group has at most `reach` members and `limit` of memory; one device (`allowed[j, device]`)
    supports all members and has the memory they need; and all members that have a `label`
    (≥ 0) have the same. A member that is `pure` is only with members of its own label. One
    position alone is always a group. Among equal costs the fewest groups win.

    Returns `begin[j]`: where the group begins that ends before j, 1 ≤ j ≤ n, in the best cut of
    the first j positions; `begin[0]` is 0.
    """
    count, device_count = allowed.shape
    begin, least, groups = (np.zeros(count + 1, dtype=np.int64) for _ in range(3))
    cost, leaves = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    cuts = _Cuts(begin, least, groups, cost, leaves, np.empty(device_count, dtype=np.bool_))
    _cut(
        input_offsets, input_after, input_cost, memory, allowed, device_memory, limit, label, pure,
        reach, cuts,
    )  # fmt: skip
    return begin


@kernel
def _cut(
    input_offsets, input_after, input_cost, memory, allowed, device_memory, limit, label, pure,
    reach, c,
):  # fmt: skip
    count, device_count = allowed.shape
    for last in range(count):
        first, end = input_offsets[last], input_offsets[last + 1]
        entering = 0
        for k in range(first, end):
            c.leaves[input_after[k]] += input_cost[k]
            entering += input_cost[k]
        c.possible[:] = True
        held = 0.0
        seen = ALONE
        i = last
        while i >= 0 and i > last - reach:
            if i < last and label[i] != seen:
                mixed = label[i] != ALONE and seen != ALONE
                if mixed or pure[i] or pure[last]:
                    break
            if label[i] != ALONE:
                seen = label[i]
            held += memory[i]
            fits = i == last
            for d in range(device_count):
                c.possible[d] &= allowed[i, d]
                fits |= c.possible[d] and held <= device_memory[d]
            if not fits or (i < last and held > limit):
                break
            c.cost[i] += entering
            total = c.least[i] + c.cost[i]
            if (
                i == last
                or total < c.least[last + 1]
                or (total == c.least[last + 1] and c.groups[i] + 1 < c.groups[last + 1])
            ):
                c.least[last + 1] = total
                c.groups[last + 1] = c.groups[i] + 1
                c.begin[last + 1] = i
            i -= 1
            if i >= 0:
                entering -= c.leaves[i]
        for k in range(first, end):
            c.leaves[input_after[k]] = 0
