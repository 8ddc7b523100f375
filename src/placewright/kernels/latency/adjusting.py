"""Adjusting Placement (Celeritas Alg. 2): stay on the previous op's device unless leaving pays."""

from __future__ import annotations

import numpy as np

from placewright.kernels.common.arrays import NOT_SENT, transfer_time
from placewright.kernels.common.gaps import earliest, occupy, with_capacity
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.kernels.latency.insertion import UNPLACED


@inlined
def _meeting(gap_start, gap_end, count, busy, first, last, ready, duration):
    """Earliest start ≥ `ready` at which all of ``busy[first:last]`` are idle for `duration`."""
    start = ready
    moved = True
    while moved:
        moved = False
        for k in range(first, last):
            resource = busy[k]
            fits = earliest(
                gap_start[resource], gap_end[resource], count[resource], start, duration
            )
            if fits > start:
                start = fits
                moved = True
    return start


@inner
def _finish_on(
    p, busy_offsets, busy, gap_start, gap_end, count, op, d, op_device, op_finish, arrival
):
    """When `op` would finish on device `d`, its transfers taken one after the other (eq. 7)."""
    device_count = p.op_time.shape[1]
    ready = 0.0
    sending = 0.0
    for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
        edge = p.inputs[k]
        source, tensor = op_device[p.edge_producer[edge]], p.edge_tensor[edge]
        there = op_finish[p.edge_producer[edge]]
        if source != d:
            if p.by_tensor and arrival[tensor, d] != NOT_SENT:
                there = arrival[tensor, d]
            else:
                pair = source * device_count + d
                first, last = busy_offsets[pair], busy_offsets[pair + 1]
                duration = transfer_time(p, tensor, source, d)
                if last > first:
                    there = _meeting(
                        gap_start, gap_end, count, busy, first, last, max(there, sending), duration
                    )
                    sending = there + duration
                there += duration
        ready = max(ready, there)
    time = p.op_time[op, d]
    return time + earliest(gap_start[d], gap_end[d], count[d], ready, time)


@inlined
def _back_cost(p, op, away, home):
    """The longest transfer of what `op` produces from `away` back to `home` (eq. 8)."""
    longest = 0.0
    for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
        tensor = p.outputs[k]
        if p.consumer_offsets[tensor + 1] > p.consumer_offsets[tensor] and away != home:
            longest = max(longest, transfer_time(p, tensor, away, home))
    return longest


@kernel(allocates=True)
def adjusting_schedule(
    p, busy_offsets, busy, resource_count, order, op_unit, unit_device, unit_memory, unit_allowed,
    free_memory, previous, op_start, op_finish, edge_start, edge_finish,
):  # fmt: skip
    """Place and time the ops in `order`, a topological one.

    An op goes to the device of the op before it (`previous` for the first), unless it would
    finish earlier elsewhere by more than it takes to send its results back; then it goes where
    it finishes first (eq. 9, with finish times, so that slower devices count as such). A device
    that is not allowed or has no room does not count. An op whose unit has a device stays there.

    Resource r < devices is that device; a transfer from a to b takes the resources
    ``busy[busy_offsets[k]:busy_offsets[k + 1]]``, k = a · devices + b, for as long as it lasts.
    Ops and transfers fill gaps.

    Writes `unit_device`, `free_memory`, and the times (see `timing.time_sequence`). Returns -1,
    or the op for which no device had memory: then the outputs are partial.
    """
    op_count, device_count = p.op_time.shape
    gap_start = np.zeros((resource_count, 16))
    gap_end = np.full((resource_count, 16), np.inf)
    count = np.ones(resource_count, dtype=np.int64)
    arrival = np.full((len(p.tensor_bytes) if p.by_tensor else 0, device_count), NOT_SENT)
    op_device = np.empty(op_count, dtype=np.int32)
    edge_start[:] = NOT_SENT
    edge_finish[:] = NOT_SENT
    for op in order:
        unit = op_unit[op]
        chosen = unit_device[unit]
        if chosen == UNPLACED:
            first_finish = np.inf
            stay_finish = np.inf
            for d in range(device_count):
                if not unit_allowed[unit, d] or unit_memory[unit] > free_memory[d]:
                    continue
                finish = _finish_on(
                    p, busy_offsets, busy, gap_start, gap_end, count, op, d, op_device, op_finish,
                    arrival,
                )  # fmt: skip
                if finish < first_finish:
                    first_finish = finish
                    chosen = d
                if d == previous:
                    stay_finish = finish
            if chosen == UNPLACED:
                return op
            if stay_finish - first_finish <= _back_cost(p, op, chosen, previous):
                chosen = previous
            unit_device[unit] = chosen
            free_memory[chosen] -= unit_memory[unit]
        op_device[op] = previous = chosen

        needed = p.input_offsets[op + 1] - p.input_offsets[op] + 1
        gap_start, gap_end = with_capacity(gap_start, gap_end, count, needed)
        ready = 0.0
        for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
            edge = p.inputs[k]
            source, tensor = op_device[p.edge_producer[edge]], p.edge_tensor[edge]
            there = op_finish[p.edge_producer[edge]]
            if source != chosen:
                if p.by_tensor and arrival[tensor, chosen] != NOT_SENT:
                    there = arrival[tensor, chosen]
                else:
                    pair = source * device_count + chosen
                    first, last = busy_offsets[pair], busy_offsets[pair + 1]
                    duration = transfer_time(p, tensor, source, chosen)
                    start = _meeting(gap_start, gap_end, count, busy, first, last, there, duration)
                    there = start + duration
                    for b in range(first, last):
                        occupy(gap_start, gap_end, count, busy[b], start, there)
                    edge_start[edge] = start
                    if p.by_tensor:
                        arrival[tensor, chosen] = there
                edge_finish[edge] = there
            ready = max(ready, there)
        time = p.op_time[op, chosen]
        start = earliest(gap_start[chosen], gap_end[chosen], count[chosen], ready, time)
        occupy(gap_start, gap_end, count, chosen, start, start + time)
        op_start[op] = start
        op_finish[op] = start + time
    return -1
