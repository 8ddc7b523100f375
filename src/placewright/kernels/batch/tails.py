"""How long the way is from each batch to the end of everything (tails, as in job shops)."""

from __future__ import annotations

from placewright.kernels.batch.transfers import send_backwards
from placewright.kernels.common.arrays import transfer_time
from placewright.kernels.common.rows import copy_into, equal_rows
from placewright.kernels.compiled import kernel


@kernel
def find_tails(p, b, rows, order, rank, first, last, s):
    """Find ``s.tail[op, chunk]`` anew, seconds from the start of the chunk's batch to the end.

    Tails of ops behind place `last` are right, and those before `first` if what they read is:
    from where a snapshot is met again before both, they are as they were.
    """
    op_unit, producers, time, kind = b.op_unit, b.producer, b.time, b.kind
    together, input_offsets, tail = b.together, p.input_offsets, s.tail
    output_offsets, outputs = p.output_offsets, p.outputs
    consumer_offsets, consumers = p.consumer_offsets, p.consumers
    links = p.link_latency, p.link_seconds_per_byte, p.channel_offsets, p.channels
    moving = s.channel_free, s.moved, s.there, s.pairs, s.seen, s.number
    by_tensor, tensor_bytes = p.by_tensor, p.tensor_bytes
    device_next, after, count, devices = s.device_free, s.ready, s.count, s.devices
    chunks, stride = rows.shape[1], s.stride
    lowest = first
    number = last // stride + 1
    copy_into(device_next, s.device_after[number])
    copy_into(s.channel_free, s.channel_after[number])
    for place in range(min(number * stride, len(order)) - 1, -1, -1):
        op = order[place]
        unit, used = op_unit[op], 0
        for c in range(chunks):
            d = rows[unit, c]
            if count[d] == 0:
                devices[used] = d
                after[d] = device_next[d]
                used += 1
            count[d] += 1
        for k in range(output_offsets[op + 1] - 1, output_offsets[op] - 1, -1):
            tensor, moves = outputs[k], False
            first_edge, last_edge = consumer_offsets[tensor], consumer_offsets[tensor + 1]
            for edge in range(first_edge, last_edge):
                reader = consumers[edge]
                for c in range(chunks):
                    source, target = rows[unit, c], rows[op_unit[reader], c]
                    if source == target:
                        after[source] = max(after[source], tail[reader, c])
                    elif together:
                        moves = True
                    else:
                        way = transfer_time(p, tensor, source, target) + tail[reader, c]
                        after[source] = max(after[source], way)
            if moves:
                step = last_edge - first_edge if by_tensor else 1
                for edge in range(last_edge - step, first_edge - 1, -step):
                    send_backwards(
                        links, tensor_bytes[tensor], b.chunk, rows, unit, op_unit, consumers,
                        edge, edge + step, tail, moving, after,
                    )  # fmt: skip
        for i in range(used):
            d = devices[i]
            after[d] += time[op, kind[d], count[d]]
            device_next[d] = after[d]
            count[d] = 0
        differs = False
        for c in range(chunks):
            way = after[rows[unit, c]]
            differs |= way != tail[op, c]
            tail[op, c] = way
        if differs:
            for k in range(input_offsets[op], input_offsets[op + 1]):
                lowest = min(lowest, rank[producers[k]])
        if place % stride == 0:
            number = place // stride
            if (
                place <= lowest
                and equal_rows(device_next, s.device_after[number])
                and equal_rows(s.channel_free, s.channel_after[number])
            ):
                return
            copy_into(s.device_after[number], device_next)
            copy_into(s.channel_after[number], s.channel_free)
