"""Linear orders of the ops, and the best places to cut one into groups of neighbours."""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import kernel
from placewright.kernels.latency.earliest_start import heap_pop, heap_push

ALONE = -1


@kernel(allocates=True)
def top_levels(op_weight, edge_weight, order, p):
    """`level[op]`: the longest path from the beginning to the op's start (Celeritas eq. 2).

    `order` is topological. The longest path through an op is its level here and its
    `ranks.upward_ranks` together.
    """
    level = np.zeros(len(op_weight))
    for op in order:
        for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
            edge = p.inputs[k]
            producer = p.edge_producer[edge]
            level[op] = max(level[op], level[producer] + op_weight[producer] + edge_weight[edge])
    return level


@kernel(allocates=True)
def depth_first_order(offsets, readers, waiting, roots):
    """A topological order that goes on, where it can, with what the last op made ready.

    `readers[offsets[op]:offsets[op + 1]]` are the ops that read from an op, once per edge;
    `waiting[op]`, which is used up, the edges it reads; `roots` the ops that read nothing. Of
    several, the later in these arrays comes first.
    """
    order = np.empty(len(waiting), dtype=np.int32)
    stack = np.empty(len(waiting), dtype=np.int32)
    stack[: len(roots)] = roots
    size = len(roots)
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
    return order


@kernel(allocates=True)
def breadth_first_order(offsets, readers, waiting, roots):
    """A topological order in which ops come as they became ready; see `depth_first_order`."""
    order = np.empty(len(waiting), dtype=np.int32)
    order[: len(roots)] = roots
    count = len(roots)
    for position in range(len(waiting)):
        op = order[position]
        for k in range(offsets[op], offsets[op + 1]):
            reader = readers[k]
            waiting[reader] -= 1
            if waiting[reader] == 0:
                order[count] = reader
                count += 1
    return order


@kernel(allocates=True)
def order_by_label(offsets, readers, waiting, roots, position, label):
    """A topological order that stays with one label as long as it has a ready op.

    Of several, and when the label changes, the op with the least `position` comes first.
    `label[op]` ≥ 0; see `depth_first_order` for the rest.
    """
    op_count = len(waiting)
    members = np.zeros(label.max() + 2, dtype=np.int64)
    for op in range(op_count):
        members[label[op] + 1] += 1
    first = np.cumsum(members)
    size = np.zeros(len(members), dtype=np.int64)
    key, ready = np.empty(op_count), np.empty(op_count, dtype=np.int32)  # a heap per label
    all_key, all_ready = np.empty(op_count), np.empty(op_count, dtype=np.int32)
    all_size = 0
    done = np.zeros(op_count, dtype=np.bool_)
    order = np.empty(op_count, dtype=np.int32)
    fresh = np.empty(op_count, dtype=np.int32)
    fresh[: len(roots)] = roots
    fresh_count = len(roots)
    now = ALONE
    for count in range(op_count):
        for k in range(fresh_count):
            op = fresh[k]
            at = first[label[op]]
            size[label[op]] = heap_push(
                key[at:], ready[at:], size[label[op]], float(position[op]), op, position
            )
            all_size = heap_push(all_key, all_ready, all_size, float(position[op]), op, position)
        fresh_count = 0
        if now == ALONE or size[now] == 0:
            while done[all_ready[0]]:
                all_size = heap_pop(all_key, all_ready, all_size, position)
            now = label[all_ready[0]]
        at = first[now]
        op = ready[at]
        size[now] = heap_pop(key[at:], ready[at:], size[now], position)
        order[count] = op
        done[op] = True
        for k in range(offsets[op], offsets[op + 1]):
            reader = readers[k]
            waiting[reader] -= 1
            if waiting[reader] == 0:
                fresh[fresh_count] = reader
                fresh_count += 1
    return order


@kernel(allocates=True)
def cheapest_cuts(
    input_offsets, input_after, input_cost, memory, allowed, device_memory, limit, label, pure,
    reach,
):  # fmt: skip
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
    least = np.zeros(count + 1, dtype=np.int64)
    groups = np.zeros(count + 1, dtype=np.int64)
    begin = np.zeros(count + 1, dtype=np.int64)
    cost = np.zeros(count, dtype=np.int64)  # of the group [i, j), for the j of the moment
    leaves = np.zeros(count, dtype=np.int64)  # what inputs of the new op cost only after i
    possible = np.empty(device_count, dtype=np.bool_)
    for last in range(count):
        first, end = input_offsets[last], input_offsets[last + 1]
        entering = 0
        for k in range(first, end):
            leaves[input_after[k]] += input_cost[k]
            entering += input_cost[k]
        possible[:] = True
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
                possible[d] &= allowed[i, d]
                fits |= possible[d] and held <= device_memory[d]
            if not fits or (i < last and held > limit):
                break
            cost[i] += entering
            total = least[i] + cost[i]
            if (
                i == last
                or total < least[last + 1]
                or (total == least[last + 1] and groups[i] + 1 < groups[last + 1])
            ):
                least[last + 1] = total
                groups[last + 1] = groups[i] + 1
                begin[last + 1] = i
            i -= 1
            if i >= 0:
                entering -= leaves[i]
        for k in range(first, end):
            leaves[input_after[k]] = 0
    return begin
