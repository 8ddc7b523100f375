"""Timing a schedule anew after a change: from the first item that may differ, no further than
differences reach.

The schedule is that of `timing.time_sequence`: a sequence of all ops and edges, a device per op.
What is known of the present one makes a change cheap to judge:

- `marks`, the state of devices and channels every `STRIDE` items, from which timing can begin;
- where that state is met again and no changed item is read any more, the rest is as it was;
- `tail`, from the start of an item to the end of everything: one behind all changes that starts
  so late that its tail passes the limit ends the matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.common.arrays import Arrays
from placewright.kernels.common.rows import copy_into, equal_rows
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.kernels.latency.moves import Space, assign_all
from placewright.kernels.latency.within_memory import value_within_memory

STRIDE = 16
CURRENT, BEST, OVERFLOW, PRICE, SLACK = range(5)  # in Timeline.value
# In Timeline.counts.
TAILS_FROM, OPS_LOGGED, SLOTS_LOGGED, BEGUN, STOPPED, WORK, STAMP = range(7)
REJECTED = 1e300


class Timeline(NamedTuple):
    """A schedule under change. `slot`: an edge or, where a tensor is sent once, tensor and device.

    Positions of edges follow those of ops: edge e is at ``position[op_count + e]``. Resources are
    the devices and then the channels. `trial_…`, `logged_…` and `undo_…` belong to the change that
    is being judged.
    """

    device: Ints  # [op]
    unit_device: Ints  # [unit]
    free: Floats  # [device] bytes
    sequence: Ints  # items: op i as i, edge e as -1 - e
    position: Ints  # [op, then edge]
    op_finish: Floats  # [op]
    arrival: Floats  # [slot] when the tensor is there
    carrier: Ints  # [slot] the edge that is sent for it
    clock: Floats  # [resource] free from
    marks: Floats  # [block, resource] `clock` before the first item of the block
    block_end: Floats  # [block] the last finish of its ops
    tail: Floats  # [op, then edge], right only behind position counts[TAILS_FROM]
    after: Floats  # [op, then slot, then resource], borrowed by `find_tails`
    trial_marks: Floats
    trial_end: Floats
    logged_op: Ints
    logged_finish: Floats
    logged_slot: Wide
    logged_arrival: Floats
    logged_carrier: Ints
    undo_unit: Ints
    undo_device: Ints
    undo_sequence: Ints  # see `passing`, as for `saved` and `kept`
    saved: Wide
    kept: Ints
    changed: Flags  # [unit] by the change that is being made
    mark: Wide  # [unit] met in change number counts[STAMP]
    counts: Wide
    # [CURRENT] and [BEST] seconds; [OVERFLOW] bytes, [PRICE] seconds per byte of it; [SLACK] bytes
    # a device may have too many for rounding.
    value: Floats
    best_unit_device: Ints
    best_sequence: Ints


@inlined
def overflow(t):
    """Bytes that devices have too many, all together."""
    total = 0.0
    for d in range(len(t.free)):
        total -= min(t.free[d] + t.value[SLACK], 0.0)
    return total


@inlined
def slot_of(p, edge, target):
    """Where the edge's tensor arrives, sent to `target`."""
    if p.by_tensor:
        return p.edge_tensor[edge] * p.op_time.shape[1] + target
    return edge


@inlined
def move_time(p, edge, source, target):
    return (
        p.link_latency[source, target]
        + p.edge_bytes[edge] * p.link_seconds_per_byte[source, target]
    )


@inlined
def op_place(t, op):
    return t.position[op]


@inlined
def edge_place(t, edge):
    return t.position[len(t.device) + edge]


# -- forwards --------------------------------------------------------------------------------


@kernel
def retime(p, t, first, last, reach, limit):
    """Seconds: the makespan after a change, or `REJECTED` if it is above `limit`.

    `first` is the first position at which anything may differ; `last` the last at which an item
    itself does: its device, its place, from or to where it is sent; `reach` the last at which
    such an item is read. Afterwards `commit` the change or `forget` it.
    """
    blocks = len(t.block_end)
    block = first // STRIDE
    copy_into(t.clock, t.marks[block])
    t.counts[OPS_LOGGED] = 0
    t.counts[SLOTS_LOGGED] = 0
    t.counts[BEGUN] = block
    t.counts[STOPPED] = block
    settled = max(last, t.counts[TAILS_FROM])
    reach = max(reach, last)
    while block < blocks:
        start = block * STRIDE
        if block > t.counts[BEGUN]:
            if start > reach and equal_rows(t.clock, t.marks[block]):
                break
            copy_into(t.trial_marks[block], t.clock)
        reach, end = _time_block(p, t, start, reach, settled, limit)
        if end > limit:
            t.counts[WORK] += start - first + STRIDE
            return REJECTED
        t.trial_end[block] = end
        block += 1
        t.counts[STOPPED] = block
    t.counts[WORK] += block * STRIDE - first
    makespan = 0.0
    for b in range(blocks):
        inside = t.counts[BEGUN] <= b < block
        makespan = max(makespan, t.trial_end[b] if inside else t.block_end[b])
    return makespan if makespan <= limit else REJECTED


@inner
def _time_block(p, t, start, reach, settled, limit):
    """Time one block; `(reach, the last finish of its ops)`, the latter `REJECTED` if too late."""
    end = 0.0
    op_count, device_count = len(t.device), len(t.free)
    for k in range(start, min(start + STRIDE, len(t.sequence))):
        item = t.sequence[k]
        if item >= 0:
            d = t.device[item]
            begin = t.clock[d]
            for i in range(p.input_offsets[item], p.input_offsets[item + 1]):
                edge = p.inputs[i]
                producer = p.edge_producer[edge]
                if t.device[producer] == d:
                    begin = max(begin, t.op_finish[producer])
                else:
                    begin = max(begin, t.arrival[slot_of(p, edge, d)])
            finish = begin + p.op_time[item, d]
            t.clock[d] = finish
            end = max(end, finish)
            if finish != t.op_finish[item]:
                reach = max(reach, _log_op(p, t, item, finish))
            if finish > limit or (k > settled and begin + t.tail[item] > limit):
                return reach, REJECTED
            continue
        edge = -1 - item
        source, target = t.device[p.edge_ends[edge, 0]], t.device[p.edge_ends[edge, 1]]
        if source == target:
            continue
        slot = slot_of(p, edge, target)
        if p.by_tensor:
            other = t.carrier[slot]
            is_before = other >= 0 and other != edge and edge_place(t, other) < k
            if is_before and t.device[p.consumers[other]] == target:
                continue  # sent already
        begin = t.op_finish[p.edge_ends[edge, 0]]
        pair = source * device_count + target
        for c in range(p.channel_offsets[pair], p.channel_offsets[pair + 1]):
            begin = max(begin, t.clock[device_count + p.channels[c]])
        finish = begin + move_time(p, edge, source, target)
        for c in range(p.channel_offsets[pair], p.channel_offsets[pair + 1]):
            t.clock[device_count + p.channels[c]] = finish
        if finish != t.arrival[slot] or t.carrier[slot] != edge:
            reach = max(reach, _log_slot(p, t, edge, slot, target, finish))
        if k > settled and begin + t.tail[op_count + edge] > limit:
            return reach, REJECTED
    return reach, end


@inner
def _log_op(p, t, op, finish):
    """Write the finish; the last position at which it is read."""
    count = t.counts[OPS_LOGGED]
    t.logged_op[count] = op
    t.logged_finish[count] = t.op_finish[op]
    t.counts[OPS_LOGGED] = count + 1
    t.op_finish[op] = finish
    return last_reader(p, t, op)


@inner
def last_reader(p, t, op):
    """The last position of an op that reads a tensor of `op`; its edges are before their ops."""
    last = 0
    for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
        tensor = p.outputs[k]
        for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
            last = max(last, op_place(t, p.consumers[edge]))
    return last


@inner
def _log_slot(p, t, edge, slot, target, finish):
    """Write that `edge` is sent, until `finish`; the last position at which that is read."""
    count = t.counts[SLOTS_LOGGED]
    t.logged_slot[count] = slot
    t.logged_arrival[count] = t.arrival[slot]
    t.logged_carrier[count] = t.carrier[slot]
    t.counts[SLOTS_LOGGED] = count + 1
    t.arrival[slot] = finish
    t.carrier[slot] = edge
    if not p.by_tensor:
        return op_place(t, p.consumers[edge])
    last = 0
    tensor = p.edge_tensor[edge]
    for other in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
        reader = p.consumers[other]
        if t.device[reader] == target:
            last = max(last, op_place(t, reader))
    return last


@kernel
def commit(t, last, value):
    """Take the change that was timed last for the present schedule; `last` as in `retime`."""
    for block in range(t.counts[BEGUN], t.counts[STOPPED]):
        if block > t.counts[BEGUN]:
            copy_into(t.marks[block], t.trial_marks[block])
        t.block_end[block] = t.trial_end[block]
    t.counts[TAILS_FROM] = max(t.counts[TAILS_FROM], last)
    t.value[CURRENT] = value
    if t.value[PRICE] > 0.0:  # else all that comes fits
        t.value[OVERFLOW] = overflow(t)
    if value < t.value[BEST] and t.value[OVERFLOW] == 0.0:
        t.value[BEST] = value
        copy_into(t.best_unit_device, t.unit_device)
        copy_into(t.best_sequence, t.sequence)


@kernel
def forget(t):
    """Put the times back that the last change was timed with; not the change itself."""
    for k in range(t.counts[OPS_LOGGED] - 1, -1, -1):
        t.op_finish[t.logged_op[k]] = t.logged_finish[k]
    for k in range(t.counts[SLOTS_LOGGED] - 1, -1, -1):
        t.arrival[t.logged_slot[k]] = t.logged_arrival[k]
        t.carrier[t.logged_slot[k]] = t.logged_carrier[k]


def begin(p: Arrays, space: Space, t: Timeline, unit_device: Ints, sequence: Ints) -> None:
    """Make this the present schedule, and the best if it is better than that.

    No kernel: one would be compiled together with all that it calls, which others call too.
    """
    assign_all(space, t, unit_device)
    t.sequence[:] = sequence
    t.position[np.where(sequence >= 0, sequence, len(t.device) - 1 - sequence)] = np.arange(
        len(sequence)
    )
    t.marks[0] = 0.0
    t.op_finish[:] = -1.0
    t.arrival[:] = -1.0
    t.carrier[:] = -1
    t.counts[TAILS_FROM] = len(sequence)
    last = len(sequence) - 1
    value = retime(p, t, 0, last, last, REJECTED)
    if p.device_memory is not None:
        value = value_within_memory(p, t.device, t.sequence)
    commit(t, last, value)


# -- backwards -------------------------------------------------------------------------------


@kernel
def find_tails(p, t):
    """`tail` of every item of the present schedule: the longest path from its start to the end."""
    n, device_count = len(t.device), len(t.free)
    after_op = t.after[:n]
    after_slot = t.after[n : n + len(t.arrival)]
    following = t.after[n + len(t.arrival) :]  # [resource]
    t.after[:] = 0.0
    for k in range(len(t.sequence) - 1, -1, -1):
        item = t.sequence[k]
        if item >= 0:
            d = t.device[item]
            tail = p.op_time[item, d] + max(following[d], after_op[item])
            t.tail[item] = tail
            following[d] = tail
            for i in range(p.input_offsets[item], p.input_offsets[item + 1]):
                edge = p.inputs[i]
                producer = p.edge_producer[edge]
                if t.device[producer] == d:
                    after_op[producer] = max(after_op[producer], tail)
                else:
                    slot = slot_of(p, edge, d)
                    after_slot[slot] = max(after_slot[slot], tail)
            continue
        edge = -1 - item
        producer = p.edge_ends[edge, 0]
        source, target = t.device[producer], t.device[p.edge_ends[edge, 1]]
        t.tail[n + edge] = 0.0
        if source == target:
            continue
        slot = slot_of(p, edge, target)
        if p.by_tensor and t.carrier[slot] != edge:
            continue
        tail = after_slot[slot]
        pair = source * device_count + target
        first, last = p.channel_offsets[pair], p.channel_offsets[pair + 1]
        for c in range(first, last):
            tail = max(tail, following[device_count + p.channels[c]])
        tail += move_time(p, edge, source, target)
        t.tail[n + edge] = tail
        for c in range(first, last):
            following[device_count + p.channels[c]] = tail
        after_op[producer] = max(after_op[producer], tail)
    t.counts[TAILS_FROM] = -1
