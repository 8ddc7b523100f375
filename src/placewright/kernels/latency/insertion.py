"""List scheduling into gaps: the engine of HEFT, greedy, and of timing a bare placement."""

from __future__ import annotations

import numpy as np

from placewright.kernels.common.arrays import NOT_SENT, transfer_time
from placewright.kernels.common.gaps import earliest, occupy, with_capacity
from placewright.kernels.compiled import inlined, kernel

UNPLACED = -1


@inlined
def _send_start(p, gap_start, gap_end, count, device_count, pair, ready, duration):
    """Earliest start ≥ `ready` at which every channel of `pair` is idle for `duration`."""
    start = ready
    moved = True
    while moved:
        moved = False
        for k in range(p.channel_offsets[pair], p.channel_offsets[pair + 1]):
            resource = device_count + p.channels[k]
            fits = earliest(
                gap_start[resource], gap_end[resource], count[resource], start, duration
            )
            if fits > start:
                start = fits
                moved = True
    return start


@kernel(allocates=True)
def insertion_schedule(
    p, order, op_unit, unit_device, unit_memory, unit_allowed, free_memory, insertion,
    op_start, op_finish, edge_start, edge_finish,
):  # fmt: skip
    """Place and time the ops in `order`, each on the device where it finishes first.

    An op whose unit has a device already (`unit_device[unit]` ≥ 0 at the call, or set when an
    earlier op of the unit was placed) stays there; otherwise every device counts that is
    allowed and has the memory. Candidates are compared with the transfers of the op's own
    inputs taken one after the other; the chosen ones are then booked exactly. With
    `insertion`, ops and transfers fill gaps left by earlier ones; without, they append.

    Writes `unit_device`, `free_memory`, and the times (see `timing.time_sequence`). Returns -1,
    or the op for which no device had memory: then the outputs are partial.
    """
    device_count = p.op_time.shape[1]
    resource_count = device_count + p.channel_count
    gap_start = np.zeros((resource_count, 16))
    gap_end = np.full((resource_count, 16), np.inf)
    count = np.ones(resource_count, dtype=np.int64)
    arrival = np.full((len(p.tensor_bytes) if p.by_tensor else 0, device_count), NOT_SENT)
    edge_start[:] = NOT_SENT
    edge_finish[:] = NOT_SENT

    for op in order:
        unit = op_unit[op]
        first, last = p.input_offsets[op], p.input_offsets[op + 1]
        best = UNPLACED
        best_finish = np.inf
        fixed = unit_device[unit]
        for d in range(device_count):
            if fixed != UNPLACED:
                if d != fixed:
                    continue
            elif not unit_allowed[unit, d] or unit_memory[unit] > free_memory[d]:
                continue
            if fixed != UNPLACED:
                best = d
                break
            ready = 0.0
            sending = 0.0
            for k in range(first, last):
                edge = p.inputs[k]
                producer = p.edge_producer[edge]
                source = unit_device[op_unit[producer]]
                there = op_finish[producer]
                if source != d:
                    tensor = p.edge_tensor[edge]
                    if p.by_tensor and arrival[tensor, d] != NOT_SENT:
                        there = arrival[tensor, d]
                    else:
                        duration = transfer_time(p, tensor, source, d)
                        pair = source * device_count + d
                        if p.channel_offsets[pair + 1] > p.channel_offsets[pair]:
                            there = max(there, sending)
                            there = duration + _send_start(
                                p, gap_start, gap_end, count, device_count, pair, there, duration
                            )
                            sending = there
                        else:
                            there += duration
                ready = max(ready, there)
            time = p.op_time[op, d]
            if insertion:
                start = earliest(gap_start[d], gap_end[d], count[d], ready, time)
            else:
                start = max(ready, gap_start[d, count[d] - 1])
            if start + time < best_finish:
                best_finish = start + time
                best = d
        if best == UNPLACED:
            return op
        if fixed == UNPLACED:
            unit_device[unit] = best
            free_memory[best] -= unit_memory[unit]

        gap_start, gap_end = with_capacity(gap_start, gap_end, count, last - first + 1)
        ready = 0.0
        for k in range(first, last):
            edge = p.inputs[k]
            producer = p.edge_producer[edge]
            source = unit_device[op_unit[producer]]
            there = op_finish[producer]
            if source != best:
                tensor = p.edge_tensor[edge]
                if p.by_tensor and arrival[tensor, best] != NOT_SENT:
                    there = arrival[tensor, best]
                else:
                    duration = transfer_time(p, tensor, source, best)
                    pair = source * device_count + best
                    start = _send_start(
                        p, gap_start, gap_end, count, device_count, pair, there, duration
                    )
                    there = start + duration
                    for c in range(p.channel_offsets[pair], p.channel_offsets[pair + 1]):
                        occupy(
                            gap_start, gap_end, count, device_count + p.channels[c], start, there
                        )
                    edge_start[edge] = start
                    if p.by_tensor:
                        arrival[tensor, best] = there
                edge_finish[edge] = there
            ready = max(ready, there)
        time = p.op_time[op, best]
        if insertion:
            start = earliest(gap_start[best], gap_end[best], count[best], ready, time)
        else:
            start = max(ready, gap_start[best, count[best] - 1])
        occupy(gap_start, gap_end, count, best, start, start + time)
        op_start[op] = start
        op_finish[op] = start + time
    return -1
