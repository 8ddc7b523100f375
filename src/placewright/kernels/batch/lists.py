"""List scheduling of batches: ops one after another, each split so that it finishes first."""

from __future__ import annotations

import numpy as np

from placewright.kernels.batch.transfers import book, count_pair
from placewright.kernels.common.arrays import NOT_SENT, transfer_time
from placewright.kernels.common.gaps import earliest, occupy, with_capacity
from placewright.kernels.compiled import inner, kernel

UNPLACED = -1


@kernel(allocates=True)
def list_batches(
    p, b, order, rows, free, split_offsets, splits, unit_kind, insertion, starts, finishes
):
    """Split and time the ops in `order`, a topological one; DiviML's bHEFT and bGreedy (§V-A).

    An op whose unit has no row yet (``rows[unit, 0]`` is ``UNPLACED``) is split in each of the
    ways ``splits[split_offsets[k]:split_offsets[k + 1]]`` (chunks per device; k the unit's
    kind) for which there is memory; the one that finishes first is taken, of equal ones the
    first. Chunks go where most of their data is (`_fill`). A device beyond the first is used
    only while the units without a row could still fit what is free in all.

    With `insertion` batches fill gaps on their devices; without, they append. Transfers append
    on their channels; with transfer unit ``tensor`` what was sent for one op serves later ones.

    Writes `rows`, `free` and ``starts[op, device]``, `finishes`. Returns -1, or the op that
    fits nowhere: then the outputs are partial.
    """
    devices, chunks = len(free), rows.shape[1]
    gap_start, gap_end = np.zeros((devices, 16)), np.full((devices, 16), np.inf)
    gap_count = np.ones(devices, dtype=np.int64)
    channel_free = np.zeros(p.channel_count)
    tentative = np.zeros(p.channel_count)
    kept = b.together and p.by_tensor
    arrived = np.full((len(p.tensor_bytes) if kept else 0, devices, chunks), NOT_SENT)
    waiting = 0.0
    for unit in range(rows.shape[0]):
        if rows[unit, 0] == UNPLACED:
            waiting += b.unit_memory[unit]
    row, best_row = np.empty(chunks, dtype=np.int32), np.empty(chunks, dtype=np.int32)
    left = np.empty(devices, dtype=np.int64)
    ready, there = np.empty(devices), np.empty((chunks, devices))
    moved = np.zeros(devices * devices, dtype=np.int64)
    between = np.empty(chunks, dtype=np.int64)  # pairs of devices
    for op in order:
        unit = b.op_unit[op]
        gap_start, gap_end = with_capacity(gap_start, gap_end, gap_count, 1)
        if not b.together:
            _arrivals(p, b, rows, op, finishes, there)
        if rows[unit, 0] == UNPLACED:
            pairs = _closest_first(p, b, rows, op, arrived)
            best = np.inf
            for k in range(split_offsets[unit_kind[unit]], split_offsets[unit_kind[unit] + 1]):
                if not _fits(splits[k], b.unit_memory[unit], waiting, free):
                    continue
                left[:] = splits[k]
                _fill(pairs, left, row)
                tentative[:] = channel_free
                _ready(
                    p, b, rows, op, row, finishes, there, arrived, tentative, False, ready, moved,
                    between,
                )  # fmt: skip
                last = 0.0
                for d in range(devices):
                    if splits[k, d] > 0:
                        time = b.time[op, b.kind[d], splits[k, d]]
                        start = _start(gap_start, gap_end, gap_count, d, ready[d], time, insertion)
                        last = max(last, start + time)
                if last < best:
                    best = last
                    best_row[:] = row
            if best == np.inf:
                return op
            rows[unit] = best_row
            waiting -= b.unit_memory[unit]
            _count(rows, unit, left)
            for d in range(devices):
                if left[d] > 0:
                    free[d] -= b.unit_memory[unit]
        _ready(
            p, b, rows, op, rows[unit], finishes, there, arrived, channel_free, True, ready, moved,
            between,
        )  # fmt: skip
        _count(rows, unit, left)
        for d in range(devices):
            if left[d] > 0:
                time = b.time[op, b.kind[d], left[d]]
                start = _start(gap_start, gap_end, gap_count, d, ready[d], time, insertion)
                occupy(gap_start, gap_end, gap_count, d, start, start + time)
                starts[op, d] = start
                finishes[op, d] = start + time
    return -1


@inner
def _start(gap_start, gap_end, gap_count, device, ready, time, insertion):
    if insertion:
        return earliest(gap_start[device], gap_end[device], gap_count[device], ready, time)
    return max(ready, gap_start[device, gap_count[device] - 1])


@inner
def _count(rows, unit, count):
    count[:] = 0
    for c in range(rows.shape[1]):
        count[rows[unit, c]] += 1


@inner
def _fits(split, memory, waiting, free):
    """Each device of the split has memory, and copies beyond the first leave it to the others."""
    copies = 0
    total = 0.0
    for d in range(len(free)):
        total += free[d]
        if split[d] > 0:
            copies += 1
            if memory > free[d]:
                return False
    return copies == 1 or (copies - 1) * memory + waiting <= total


@inner
def _arrivals(p, b, rows, op, finishes, there):
    """``there[chunk, device]``: when the chunk's data is on the device, if nothing contends."""
    there[:] = 0.0
    for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
        producer, tensor = b.producer[k], p.edge_tensor[p.inputs[k]]
        made = b.op_unit[producer]
        for c in range(there.shape[0]):
            a = rows[made, c]
            for d in range(there.shape[1]):
                ends = finishes[producer, a] + transfer_time(p, tensor, a, d)
                there[c, d] = max(there[c, d], ends)


@inner(allocates=True)
def _closest_first(p, b, rows, op, arrived):
    """Pairs ``chunk · devices + device`` by the seconds it takes to bring the chunk's data."""
    devices, chunks = p.link_latency.shape[0], rows.shape[1]
    seconds = np.zeros(chunks * devices)
    for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
        made, tensor = b.op_unit[b.producer[k]], p.edge_tensor[p.inputs[k]]
        for c in range(chunks):
            a = rows[made, c]
            for d in range(devices):
                if a != d and not (len(arrived) and arrived[tensor, d, c] != NOT_SENT):
                    seconds[c * devices + d] += transfer_time(p, tensor, a, d)
    return np.argsort(seconds, kind="mergesort")


@inner
def _fill(pairs, left, row):
    """Give each chunk a device: of all pairs the first whose device still wants chunks."""
    row[:] = UNPLACED
    devices = len(left)
    for pair in pairs:
        c, d = pair // devices, pair % devices
        if row[c] == UNPLACED and left[d] > 0:
            row[c] = d
            left[d] -= 1


@inner
def _ready(
    p, b, rows, op, row, finishes, there, arrived, channel_free, booked, ready, moved, between
):
    """``ready[device]``: when the op's batch there has all its data, with chunks as in `row`.

    Where transfers contend they are taken on `channel_free`, and noted in `arrived` if `booked`.
    Lent are `moved`, zero for each pair of devices, and `between`, a place for each chunk.
    """
    ready[:] = 0.0
    chunks = len(row)
    if not b.together:
        for c in range(chunks):
            ready[row[c]] = max(ready[row[c]], there[c, row[c]])
        return
    devices = len(ready)
    links = p.link_latency, p.link_seconds_per_byte, p.channel_offsets, p.channels
    for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
        producer, tensor = b.producer[k], p.edge_tensor[p.inputs[k]]
        made = b.op_unit[producer]
        used = 0
        for c in range(chunks):
            a, d = rows[made, c], row[c]
            if a == d:
                ready[d] = max(ready[d], finishes[producer, a])
            elif len(arrived) and arrived[tensor, d, c] != NOT_SENT:
                ready[d] = max(ready[d], arrived[tensor, d, c])
            else:
                used = count_pair(np.int64(a) * devices + d, moved, between, used)
        for i in range(used):
            a, d = between[i] // devices, between[i] % devices
            nbytes = p.tensor_bytes[tensor] * (moved[between[i]] * b.chunk)
            finish = book(links, a, d, nbytes, finishes[producer, a], channel_free)
            moved[between[i]] = 0
            ready[d] = max(ready[d], finish)
            if booked and len(arrived):
                for c in range(chunks):
                    if rows[made, c] == a and row[c] == d and arrived[tensor, d, c] == NOT_SENT:
                        arrived[tensor, d, c] = finish
