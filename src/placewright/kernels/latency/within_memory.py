"""Timing a sequence where what lives on a device must fit its memory (memory option ``peak``).

The schedule is gated: items begin in the order of the sequence, no item before the one ahead of
it, and each as soon as its inputs are there, its device or channels are free, and its tensors have
room beside all that is alive. Items of no duration that follow each other may begin at one instant
if they have room together, when it is over: the first may make what it has room for only because
the others read something for the last time. What waits begins when something ends: what is alive,
or an op or transfer that one of those beside it waits for. So some order of their starts, those of
no duration first, gives an optimal schedule: by induction each item begins no later than in the
optimum, so at each start no more is alive than there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from placewright.graph import Floats, Ints, Wide
from placewright.kernels.common.arrays import NOT_SENT
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.latency.earliest_start import heap_pop, heap_push
from placewright.kernels.latency.timing import time_sequence

OVERFULL = 1e100
"""Seconds, at least, of a sequence that does not fit; more the sooner it comes to a halt."""
ROUNDING = 1e-12  # of a device's memory, for sums of bytes


class Lives(NamedTuple):
    """What is alive: life k < tensors is tensor k at home, the others are copies of it elsewhere.

    A copy is numbered by tensor and device where one serves all readers there, else by edge.
    """

    free: Floats  # [device] bytes
    where: Ints  # [life] device
    size: Floats  # [life] bytes
    uses: Wide  # [life] that are still to end; at home the making counts too
    until: Floats  # [life] the last finish of a use so far
    end_key: Floats  # a heap of lives that end, by when
    end_life: Wide
    number: Wide  # [life] itself: which of two that end at once is the first
    look: Wide  # [life] the last look ahead in which it was used, see `_room_together`
    used: Wide  # [life] how often in that
    begun: Wide  # [life] the last look ahead in which the copy began


@kernel(allocates=True)
def time_within_memory(
    p, device, sequence, op_ready, op_finish, edge_finish, device_free, channel_free,
    op_start, edge_start,
):  # fmt: skip
    """The makespan, as `timing.time_sequence` records it; `OVERFULL` or more if it does not fit.

    The better of two gated orders: that of the starts where memory is no matter, and `sequence`.
    All arrays are of full length; what they hold after a misfit is of no use.
    """
    fastest = time_sequence(
        p, device, sequence, op_ready, op_finish, edge_finish, device_free, channel_free,
        op_start, edge_start,
    )  # fmt: skip
    by_start = _by_start(sequence, op_start, op_finish, edge_start, edge_finish, p.edge_producer)
    value = _gated(
        p, device, by_start, op_ready, op_finish, edge_finish, device_free, channel_free,
        op_start, edge_start,
    )  # fmt: skip
    if value <= fastest:
        return value
    other = _gated(
        p, device, sequence, op_ready, op_finish, edge_finish, device_free, channel_free,
        op_start, edge_start,
    )  # fmt: skip
    if other <= value:
        return other
    return _gated(
        p, device, by_start, op_ready, op_finish, edge_finish, device_free, channel_free,
        op_start, edge_start,
    )  # fmt: skip


def if_memory_counts(p, device, sequence, makespan):
    """`makespan` or, under memory option ``peak``, `value_within_memory`.

    Which of the two is decided when a kernel is compiled, by the type of ``p.device_memory``: those
    that time sequences without regard to memory have nothing of this in them.
    """
    return makespan if p.device_memory is None else value_within_memory(p, device, sequence)


@overload(if_memory_counts)
def _if_memory_counts(p, device, sequence, makespan):
    memory = p.types[p.fields.index("device_memory")]
    if isinstance(memory, types.NoneType):
        return lambda p, device, sequence, makespan: makespan
    return lambda p, device, sequence, makespan: value_within_memory(p, device, sequence)


@kernel(allocates=True)
def value_within_memory(p, device, sequence):
    """The same, for those who want nothing but the makespan."""
    n, edges = len(device), len(p.consumers)
    return time_within_memory(
        p, device, sequence, np.empty(n), np.empty(n), np.empty(edges),
        np.empty(p.op_time.shape[1]), np.empty(p.channel_count), np.empty(n), np.empty(edges),
    )  # fmt: skip


@inner(allocates=True)
def _by_start(sequence, op_start, op_finish, edge_start, edge_finish, edge_producer):
    """The items by start, then finish, then as they were."""
    start, finish = np.empty(len(sequence)), np.empty(len(sequence))
    for k in range(len(sequence)):
        item = sequence[k]
        if item >= 0:
            start[k], finish[k] = op_start[item], op_finish[item]
            continue
        edge = -1 - item
        there = edge_finish[edge]
        if there < 0.0:
            there = op_finish[edge_producer[edge]]
        start[k], finish[k] = (there if edge_start[edge] < 0.0 else edge_start[edge]), there
    by_finish = np.argsort(finish, kind="mergesort")
    return sequence[by_finish][np.argsort(start[by_finish], kind="mergesort")]


@inner(allocates=True)
def _gated(
    p, device, sequence, op_ready, op_finish, edge_finish, device_free, channel_free,
    op_start, edge_start,
):  # fmt: skip
    device_free[:] = 0.0
    channel_free[:] = 0.0
    op_ready[:] = 0.0
    edge_finish[:] = NOT_SENT
    edge_start[:] = NOT_SENT
    device_count = len(device_free)
    lives = _lives(p, device)
    if lives.free.min() < 0.0:  # what ops keep is too much
        return OVERFULL * 2.0
    now, ending, makespan = 0.0, 0, 0.0
    together, look = 0, 0
    for k in range(len(sequence)):
        item = sequence[k]
        if item >= 0:
            d = device[item]
            start = max(now, device_free[d], op_ready[item])
            duration, needed = p.op_time[item, d], _made_bytes(p, item)
        else:
            edge = -1 - item
            producer, consumer = p.edge_ends[edge, 0], p.edge_ends[edge, 1]
            source, d = device[producer], device[consumer]
            if source == d:
                op_ready[consumer] = max(op_ready[consumer], op_finish[producer])
                continue
            if edge_finish[edge] != NOT_SENT:
                continue  # sent already
            pair = source * device_count + d
            first, last = p.channel_offsets[pair], p.channel_offsets[pair + 1]
            start = max(now, op_finish[producer])
            for c in range(first, last):
                start = max(start, channel_free[p.channels[c]])
            duration, needed = _transfer_time(p, edge, source, d), p.edge_bytes[edge]
        while k >= together:  # those before it have room with the items after them
            ending = _release(lives, ending, start)
            if needed <= max(lives.free[d], 0.0):
                break
            later = lives.end_key[0] if ending > 0 else np.inf
            if duration == 0.0:
                look += 1
                together, ready = _room_together(
                    p, device, sequence, lives, look, k, start, op_ready, op_finish, edge_finish,
                    device_free, channel_free,
                )  # fmt: skip
                if together > k:
                    break
                later = min(later, ready)
            if later == np.inf:
                return OVERFULL * (1.0 + (len(sequence) - k) / len(sequence))
            start = max(start, later)
        now = start
        finish = start + duration
        if item >= 0:
            op_start[item], op_finish[item], device_free[d] = start, finish, finish
            makespan = max(makespan, finish)
            ending = _make_and_read(p, device, lives, ending, item, d, finish)
            continue
        for c in range(first, last):
            channel_free[p.channels[c]] = finish
        edge_start[edge] = start
        _arrive(p, device, edge, d, finish, op_ready, edge_finish)
        lives.free[d] -= p.edge_bytes[edge]
        copy = _copy_of(p, edge, d)
        lives.until[copy] = finish
        ending = _use(lives, ending, p.edge_tensor[edge], finish)
    return makespan


@inner(allocates=True)
def _lives(p, device):
    """Nothing alive yet: the memory beside what ops keep, and how often each life is used."""
    tensors, device_count = len(p.tensor_bytes), p.op_time.shape[1]
    count = tensors + (tensors * device_count if p.by_tensor else len(p.consumers))
    free = p.device_memory * (1.0 + ROUNDING)
    where, size = np.zeros(count, dtype=np.int32), np.zeros(count)
    uses = np.zeros(count, dtype=np.int64)
    for op in range(len(device)):
        free[device[op]] -= p.op_memory[op]
        for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
            tensor = p.outputs[k]
            where[tensor], size[tensor], uses[tensor] = device[op], p.tensor_bytes[tensor], 1
    for edge in range(len(p.consumers)):
        tensor, target = p.edge_tensor[edge], device[p.consumers[edge]]
        if where[tensor] == target:
            uses[tensor] += 1
            continue
        copy = _copy_of(p, edge, target)
        uses[tensor] += uses[copy] == 0  # to send it is a use
        uses[copy] += 1
        where[copy], size[copy] = target, p.edge_bytes[edge]
    number = np.arange(count)
    none = np.full(count, -1)
    return Lives(
        free, where, size, uses, np.zeros(count), np.empty(count), number.copy(), number,
        none, np.zeros(count, dtype=np.int64), none.copy(),
    )  # fmt: skip


@inner
def _copy_of(p, edge, target):
    tensors = len(p.tensor_bytes)
    if p.by_tensor:
        return tensors + p.edge_tensor[edge] * p.op_time.shape[1] + target
    return tensors + edge


@inner
def _life_read(p, device, edge, d):
    """What an op on `d` reads over `edge`: the tensor itself, made there, or the copy of it."""
    home = device[p.edge_producer[edge]] == d
    return p.edge_tensor[edge] if home else _copy_of(p, edge, d)


@inner
def _made_bytes(p, op):
    made = 0.0
    for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
        made += p.tensor_bytes[p.outputs[k]]
    return made


@inner
def _transfer_time(p, edge, source, target):
    per_byte = p.link_seconds_per_byte[source, target]
    return p.link_latency[source, target] + p.edge_bytes[edge] * per_byte


@inner
def _release(lives, ending, now):
    """Give back the room of what has ended by `now`; how many lives are still to end."""
    while ending > 0 and lives.end_key[0] <= now:
        life = lives.end_life[0]
        ending = heap_pop(lives.end_key, lives.end_life, ending, lives.number)
        lives.free[lives.where[life]] += lives.size[life]
    return ending


@inner(allocates=True)
def _room_together(
    p, device, sequence, lives, look, first, now, op_ready, op_finish, edge_finish, device_free,
    channel_free,
):  # fmt: skip
    """The end of the items from `first` on that together have room at `now`; `first` if none.

    They take no time, and all else but memory lets each begin at `now`. Then when to ask again, as
    one of them is not ready yet, else infinite. It is the `look`-th time that this is asked. Of the
    ops among them `op_finish` is written, as if they began.
    """
    needed = np.zeros(len(lives.free))
    for k in range(first, len(sequence)):
        item = sequence[k]
        if item >= 0:
            d = device[item]
            if p.op_time[item, d] > 0.0:
                return first, np.inf
            ready = max(device_free[d], op_ready[item])
            if ready > now:
                return first, ready
            op_finish[item] = now
            needed[d] += _made_bytes(p, item)
            for j in range(p.output_offsets[item], p.output_offsets[item + 1]):
                _use_ahead(lives, look, p.outputs[j], needed)
            for j in range(p.input_offsets[item], p.input_offsets[item + 1]):
                _use_ahead(lives, look, _life_read(p, device, p.inputs[j], d), needed)
        else:
            edge = -1 - item
            source, target = device[p.edge_ends[edge, 0]], device[p.edge_ends[edge, 1]]
            ready = op_finish[p.edge_ends[edge, 0]]
            if ready > now:
                return first, ready
            copy = _copy_of(p, edge, target)
            if source == target or edge_finish[edge] != NOT_SENT or lives.begun[copy] == look:
                continue
            if _transfer_time(p, edge, source, target) > 0.0:
                return first, np.inf
            pair = source * len(lives.free) + target
            for c in range(p.channel_offsets[pair], p.channel_offsets[pair + 1]):
                ready = max(ready, channel_free[p.channels[c]])
            if ready > now:
                return first, ready
            lives.begun[copy] = look
            needed[target] += p.edge_bytes[edge]
            _use_ahead(lives, look, p.edge_tensor[edge], needed)
        if (needed <= np.maximum(lives.free, 0.0)).all():
            return k + 1, np.inf
    return first, np.inf


@inner
def _use_ahead(lives, look, life, needed):
    """A use of a life is over in this look ahead; with the last of them its room is free."""
    if lives.look[life] != look:
        lives.look[life], lives.used[life] = look, 0
    lives.used[life] += 1
    if lives.used[life] == lives.uses[life]:
        needed[lives.where[life]] -= lives.size[life]


@inner
def _use(lives, ending, life, finish):
    """A use of a life is over at `finish`; after the last, when it ends is known."""
    lives.uses[life] -= 1
    lives.until[life] = max(lives.until[life], finish)
    if lives.uses[life] > 0:
        return ending
    return heap_push(lives.end_key, lives.end_life, ending, lives.until[life], life, lives.number)


@inner
def _make_and_read(p, device, lives, ending, op, d, finish):
    """The op's tensors are alive until their last use, and those it reads are used once more."""
    for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
        tensor = p.outputs[k]
        lives.free[d] -= p.tensor_bytes[tensor]
        ending = _use(lives, ending, tensor, finish)
    for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
        ending = _use(lives, ending, _life_read(p, device, p.inputs[k], d), finish)
    return ending


@inner
def _arrive(p, device, edge, target, finish, op_ready, edge_finish):
    """The tensor of `edge` is at `target`, for all that read it there if it is sent once."""
    first, last = edge, edge + 1
    if p.by_tensor:
        tensor = p.edge_tensor[edge]
        first, last = p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]
    for other in range(first, last):
        reader = p.consumers[other]
        if device[reader] == target:
            edge_finish[other] = finish
            op_ready[reader] = max(op_ready[reader], finish)
