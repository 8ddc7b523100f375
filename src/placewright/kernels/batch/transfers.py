"""Transfers of batches: one for all inputs that a tensor takes from one device to another."""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import inlined


@inlined
def send(
    links, input_bytes, chunk, rows, unit, op_unit, consumers, first, last, ready, moving, arrival
):
    """Send a tensor of a unit's op to the readers of edges first … last - 1; into `arrival`.

    Of each input `input_bytes`; its batch on a device ends when that is `ready`. Transfers follow
    one another by source and target.
    """
    channel_free, moved, there, pairs, seen, number = moving
    devices, used = len(ready), 0
    for c in range(rows.shape[1]):
        source = rows[unit, c]
        number[0] += 1
        for edge in range(first, last):
            target = rows[op_unit[consumers[edge]], c]
            if target != source and seen[target] != number[0]:
                seen[target] = number[0]
                used = count_pair(np.int64(source) * devices + target, moved, pairs, used)
    for i in range(used):
        pair = pairs[i]
        source = pair // devices
        target = pair - source * devices
        nbytes = input_bytes * (moved[pair] * chunk)
        there[pair] = book(links, source, target, nbytes, ready[source], channel_free)
        moved[pair] = 0
    for edge in range(first, last):
        reader = op_unit[consumers[edge]]
        for c in range(rows.shape[1]):
            source, target = rows[unit, c], rows[reader, c]
            if source != target:
                arrival[edge, c] = there[np.int64(source) * devices + target]


@inlined
def send_backwards(
    links, input_bytes, chunk, rows, unit, op_unit, consumers, first, last, tail, moving, after
):
    """What `send` does, from the end: ``after[source]`` at least the way through its transfers.

    ``tail[op, chunk]`` is the way from the start of the chunk's batch to the end of everything,
    and the first of `moving` that from the start of a channel's next transfer.
    """
    channel_after, moved, way, pairs, seen, number = moving
    devices, used = len(after), 0
    for c in range(rows.shape[1]):
        source = rows[unit, c]
        number[0] += 1
        for edge in range(first, last):
            reader = consumers[edge]
            target = rows[op_unit[reader], c]
            if target == source:
                continue
            pair = np.int64(source) * devices + target
            if seen[target] != number[0]:
                seen[target] = number[0]
                if moved[pair] == 0:
                    way[pair] = 0.0
                used = count_pair(pair, moved, pairs, used)
            way[pair] = max(way[pair], tail[reader, c])
    for i in range(used - 1, -1, -1):
        pair = pairs[i]
        source = pair // devices
        target = pair - source * devices
        nbytes = input_bytes * (moved[pair] * chunk)
        moved[pair] = 0
        seconds = book(links, source, target, nbytes, way[pair], channel_after)
        after[source] = max(after[source], seconds)


@inlined
def book(links, source, target, nbytes, ready, channel_free):
    """Book the channels of one transfer, as soon as it is ready and they are free; when it ends.

    From the end of everything backwards it is the same: the way from its start takes the place of
    when it ends.
    """
    latency, per_byte, channel_offsets, channels = links
    pair = np.int64(source) * latency.shape[0] + target
    first, last = channel_offsets[pair], channel_offsets[pair + 1]
    start = ready
    for k in range(first, last):
        start = max(start, channel_free[channels[k]])
    finish = start + (latency[source, target] + nbytes * per_byte[source, target])
    for k in range(first, last):
        channel_free[channels[k]] = finish
    return finish


@inlined
def count_pair(pair, moved, pairs, used):
    """One chunk more that moves between two devices; the `used` pairs that any moves between rise.

    Returns how many these are now.
    """
    moved[pair] += 1
    if moved[pair] > 1:
        return used
    i = used
    while i > 0 and pairs[i - 1] > pair:
        pairs[i] = pairs[i - 1]
        i -= 1
    pairs[i] = pair
    return used + 1
