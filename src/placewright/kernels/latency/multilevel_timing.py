"""What a small change of devices or of the order does to the makespan, without timing everything.

The order is kept as blocks, as in `kernels.latency.moves`: an op followed by the edges it produces,
so a transfer is sent right after its producer. `settle` times all blocks and keeps, at every
checkpoint of the order, what is busy until when, and how long the way from there to the end is.
So what a change adds can be told from the blocks it touches and the few up to the next checkpoint:
the longest way through them, as with heads and tails in job shops (Balas and Vazacopoulos 1998).
"""

from __future__ import annotations

from typing import NamedTuple

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.common.arrays import NOT_SENT
from placewright.kernels.common.rows import copy_into
from placewright.kernels.compiled import inlined, inner, kernel

CHECKPOINT = 32  # ranks from one checkpoint to the next
ROUNDING = 1e-9  # of the makespan: who has less slack is critical


class Timing(NamedTuple):
    """When everything happens in the current order; written by the kernels."""

    op_finish: Floats  # [op]
    arrival: Floats  # [edge] when its tensor is where its consumer is
    sends: Flags  # [edge] whether it has a transfer of its own
    op_tail: Floats  # [op] seconds of the longest way from its finish to the end
    device_free: Floats  # [device], and [channel]: borrowed
    channel_free: Floats
    device_at: Floats  # [checkpoint, device] busy until then before rank checkpoint · CHECKPOINT
    channel_at: Floats  # [checkpoint, channel]
    most_at: Floats  # [checkpoint] the last finish so far
    device_after: Floats  # [checkpoint, device] seconds from the next op's start there to the end
    channel_after: Floats  # [checkpoint, channel] the same of the next transfer
    kept_finish: Floats  # [op] and [edge]: as `settle` found them, while windows try others
    kept_arrival: Floats
    critical: Ints  # [position] ops without slack, by rank
    critical_count: Wide  # [0]
    touched: Wide  # [position] ranks whose blocks a change concerns: borrowed
    is_touched: Flags  # [rank]
    changed: Flags  # [checkpoint] whether a block after it was changed since everything was timed


@kernel
def settle(p, space, state, timing, first):
    """Time the blocks from rank `first` on; everything in `timing` is right again. The makespan."""
    value = _replay(p, space, state, timing, first)
    _keep_times(space, state, timing, first // CHECKPOINT * CHECKPOINT)
    _make_tails(p, space, state, timing)
    count = 0
    for rank in range(len(state.op_at)):
        op = state.op_at[rank]
        if timing.op_finish[op] + timing.op_tail[op] >= value * (1.0 - ROUNDING):
            timing.critical[count] = op
            count += 1
    timing.critical_count[0] = count
    return value


@kernel
def window(p, space, state, timing, first, last):
    """What the makespan would be if only the blocks of ranks `first` … `last` were changed.

    The longest way through these blocks and those up to the next checkpoint; a way that avoids
    them all may be longer. Their times are left as tried: `restore` takes them back.
    """
    checkpoint = first // CHECKPOINT
    copy_into(timing.device_free, timing.device_at[checkpoint])
    copy_into(timing.channel_free, timing.channel_at[checkpoint])
    stop = window_stop(state, last)
    most = 0.0
    for rank in range(checkpoint * CHECKPOINT, stop):
        op = state.op_at[rank]
        finish = _time_block(p, space, state, timing, rank, False)
        if rank > last:
            most = max(most, finish + timing.op_tail[op])
        begin = state.block_start[rank] + 1
        for place in range(begin, begin + space.block_length[op] - 1):
            edge = -1 - state.sequence[place]
            reader = p.edge_ends[edge, 1]
            if state.op_rank[reader] >= stop:
                after = p.op_time[reader, state.device[reader]] + timing.op_tail[reader]
                most = max(most, timing.arrival[edge] + after)
    checkpoint = (stop + CHECKPOINT - 1) // CHECKPOINT
    for d in range(len(timing.device_free)):
        most = max(most, timing.device_free[d] + timing.device_after[checkpoint, d])
    for c in range(len(timing.channel_free)):
        if timing.channel_after[checkpoint, c] > 0.0:
            most = max(most, timing.channel_free[c] + timing.channel_after[checkpoint, c])
    return most


@inlined
def window_stop(state, last):
    """The rank before which the blocks of a window that ends with `last` are timed."""
    return min((last // CHECKPOINT + 1) * CHECKPOINT, len(state.op_at))


@kernel
def restore(space, state, timing, first, last):
    """The blocks of a window of ranks `first` … `last` have the times of `settle` again."""
    for rank in range(first // CHECKPOINT * CHECKPOINT, window_stop(state, last)):
        op = state.op_at[rank]
        timing.op_finish[op] = timing.kept_finish[op]
        begin = state.block_start[rank] + 1
        for place in range(begin, begin + space.block_length[op] - 1):
            edge = -1 - state.sequence[place]
            timing.arrival[edge] = timing.kept_arrival[edge]


@inner
def _keep_times(space, state, timing, first):
    for rank in range(first, len(state.op_at)):
        op = state.op_at[rank]
        timing.kept_finish[op] = timing.op_finish[op]
        begin = state.block_start[rank] + 1
        for place in range(begin, begin + space.block_length[op] - 1):
            edge = -1 - state.sequence[place]
            timing.kept_arrival[edge] = timing.arrival[edge]


@inner
def _replay(p, space, state, timing, first):
    """Time all blocks from the checkpoint before rank `first` on, writing checkpoints."""
    checkpoint = first // CHECKPOINT
    copy_into(timing.device_free, timing.device_at[checkpoint])
    copy_into(timing.channel_free, timing.channel_at[checkpoint])
    most = timing.most_at[checkpoint]
    for rank in range(checkpoint * CHECKPOINT, len(state.op_at)):
        if rank % CHECKPOINT == 0:
            copy_into(timing.device_at[rank // CHECKPOINT], timing.device_free)
            copy_into(timing.channel_at[rank // CHECKPOINT], timing.channel_free)
            timing.most_at[rank // CHECKPOINT] = most
        most = max(most, _time_block(p, space, state, timing, rank, True))
    return most


@inlined
def _time_block(p, space, state, timing, rank, record):
    """Time an op and its transfers, after all before; the op's finish.

    As `timing.time_sequence` does. With `record`, which edges have a transfer is written too.
    """
    devices = len(timing.device_free)
    device_free, channel_free = timing.device_free, timing.channel_free
    device, arrival = state.device, timing.arrival
    op = state.op_at[rank]
    d = device[op]
    start = device_free[d]
    for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
        start = max(start, arrival[p.inputs[k]])
    finish = start + p.op_time[op, d]
    timing.op_finish[op] = finish
    device_free[d] = finish
    begin = state.block_start[rank] + 1
    end = begin + space.block_length[op] - 1
    for place in range(begin, end):
        edge = -1 - state.sequence[place]
        arrival[edge] = NOT_SENT
        if record:
            timing.sends[edge] = False
    for place in range(begin, end):
        edge = -1 - state.sequence[place]
        if arrival[edge] != NOT_SENT:  # an earlier transfer of its tensor serves it
            continue
        target = device[p.edge_ends[edge, 1]]
        if target == d:
            arrival[edge] = finish
            continue
        pair = d * devices + target
        sent = finish
        for k in range(p.channel_offsets[pair], p.channel_offsets[pair + 1]):
            sent = max(sent, channel_free[p.channels[k]])
        there = sent + (
            p.link_latency[d, target] + p.edge_bytes[edge] * p.link_seconds_per_byte[d, target]
        )
        for k in range(p.channel_offsets[pair], p.channel_offsets[pair + 1]):
            channel_free[p.channels[k]] = there
        arrival[edge] = there
        if record:
            timing.sends[edge] = True
        shared = p.edge_ends[edge, 2]
        if shared >= 0:
            for other in range(p.consumer_offsets[shared], p.consumer_offsets[shared + 1]):
                if device[p.consumers[other]] == target:
                    arrival[other] = there
    return finish


@inner
def _make_tails(p, space, state, timing):
    """The longest way from each op's finish to the end, through all that waits for it."""
    devices = len(timing.device_free)
    device_next, channel_next = timing.device_free, timing.channel_free
    device_next[:] = 0.0
    channel_next[:] = 0.0
    device, op_tail = state.device, timing.op_tail
    for rank in range(len(state.op_at) - 1, -1, -1):
        op = state.op_at[rank]
        d = device[op]
        tail = device_next[d]
        begin = state.block_start[rank] + 1
        for place in range(begin + space.block_length[op] - 2, begin - 1, -1):
            edge = -1 - state.sequence[place]
            reader = p.edge_ends[edge, 1]
            target = device[reader]
            after = p.op_time[reader, target] + op_tail[reader]
            if target == d:
                tail = max(tail, after)
                continue
            if not timing.sends[edge]:
                continue
            shared = p.edge_ends[edge, 2]
            if shared >= 0:
                for other in range(p.consumer_offsets[shared], p.consumer_offsets[shared + 1]):
                    reader = p.consumers[other]
                    if device[reader] == target:
                        after = max(after, p.op_time[reader, target] + op_tail[reader])
            pair = d * devices + target
            for k in range(p.channel_offsets[pair], p.channel_offsets[pair + 1]):
                after = max(after, channel_next[p.channels[k]])
            after += (
                p.link_latency[d, target] + p.edge_bytes[edge] * p.link_seconds_per_byte[d, target]
            )
            for k in range(p.channel_offsets[pair], p.channel_offsets[pair + 1]):
                channel_next[p.channels[k]] = after
            tail = max(tail, after)
        op_tail[op] = tail
        device_next[d] = p.op_time[op, d] + tail
        if rank % CHECKPOINT == 0:
            copy_into(timing.device_after[rank // CHECKPOINT], device_next)
            copy_into(timing.channel_after[rank // CHECKPOINT], channel_next)
