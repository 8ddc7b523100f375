"""What a contiguous stage costs: the arrays that say so, and the rule for its transfers.

A *kind of stage* is what a stage may run on: one device of a class, or several as replicas. Its
load is given by *rows* that must each stay below a limit: first `time_rows` rows of seconds, then
memory and the number of nodes the kind cannot run. A row is the sum of what the stage's nodes
add to it and of what transfers add.

Transfers are counted in *groups* (in or out, pass, towards lower or higher stages), some of which
a problem need not keep apart. How a group's tensors and bytes turn into seconds is a kind's
*variant*: where links differ, it depends on which classes of devices the lower and the higher
stages may be on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.graph import Floats, Wide
from placewright.kernels.compiled import inner, kernel

OUT, IN = 0, 1
LOW, HIGH = 0, 1
UNPLACED = -1


class Nets(NamedTuple):
    """The nets of a `ContractedGraph`, and those of each node (CSR: it produces or reads them).

    `reader_ways` of each reader: 1 where an op of pass 0 reads, else 2; `node_ways` beside
    `node_nets` the same, 0 for the producer.
    """

    producer: Wide
    way: Wide
    tensors: Floats
    bytes: Floats
    offsets: Wide
    readers: Wide
    reader_ways: Wide
    node_offsets: Wide
    node_nets: Wide
    node_ways: Wide


class Costs(NamedTuple):
    """How stages are charged.

    - `added[node, kind, row]`; `time_rows` of the rows have transfers too;
    - `group[bit]` of the bits that `charges` gives; `once`: a stage pays once for a tensor that
      both lower and higher stages read (host memory);
    - `coefficient[variant, row, group]`: seconds per tensor and per byte;
    - moves, from states with few devices left to those with many: `move_kind`, `move_variant`,
      `move_lead` (devices of the leading class), and the state of the other classes `move_before`,
      `move_after` (see `stages.py`).
    """

    added: Floats
    time_rows: int
    group: Wide
    once: bool
    coefficient: Floats
    move_kind: Wide
    move_variant: Wide
    move_lead: Wide
    move_before: Wide
    move_after: Wide


@kernel
def charges(way, once, produced, low_reads, high_reads, reads, forward_reads, low):
    """What a net means for one stage: bit ``4 · (out or in) + 2 · pass + (low or high)`` each.

    `produced`: the stage holds the producer, of pass `way`; then `low_reads`, `high_reads`: lower
    or higher stages read the net. Otherwise `reads`: the stage reads it, `forward_reads` with a
    forward op, and `low` says that the producer is on a lower stage.
    """
    if produced:
        bits = 0
        if low_reads:
            bits = 1 << (2 * way + LOW)
        if high_reads and not (low_reads and once):
            bits |= 1 << (2 * way + HIGH)
        return bits
    if reads:
        return 1 << (4 * IN + (0 if forward_reads else 2) + (LOW if low else HIGH))
    return 0


class Chain(NamedTuple):
    """What the stages of a whole split pay each other: `between[out or in, kind, other kind]`.

    Seconds per tensor and per byte, of which a stage of the first kind pays its share; row
    `row_of[out or in, way, row]` says which time rows they count in. ``least`` is what it pays
    at least, whatever the other kind.
    """

    between: Floats
    least: Floats
    row_of: Floats


@kernel(allocates=True)
def chain_rows(nets, costs, chain, node_stage, stage_kind, count):
    """`rows[stage, row]`: what each of `count` stages is charged, memory and misfits included.

    `node_stage[node]` may be `UNPLACED`; what is unplaced is taken to be on one other stage
    each time, on whatever kind makes that cheapest.
    """
    rows = np.zeros((count, costs.added.shape[2]))
    for node in range(len(node_stage)):
        stage = node_stage[node]
        if stage != UNPLACED:
            for row in range(rows.shape[1]):
                rows[stage, row] += costs.added[node, stage_kind[stage], row]
    reads = np.zeros(count, dtype=np.int64)
    touched = np.empty(count, dtype=np.int64)
    for net in range(len(nets.producer)):
        home = node_stage[nets.producer[net]]
        size = 0
        unplaced_reads = False
        for k in range(nets.offsets[net], nets.offsets[net + 1]):
            stage = node_stage[nets.readers[k]]
            if stage == UNPLACED:
                unplaced_reads = True
            elif stage != home:
                if reads[stage] == 0:
                    touched[size] = stage
                    size += 1
                reads[stage] |= nets.reader_ways[k]
        paid = False
        for i in range(size):
            stage = touched[i]
            way = 0 if reads[stage] & 1 else 1
            reads[stage] = 0
            _pay(nets, chain, rows, net, IN, way, stage_kind, stage, home)
            if home != UNPLACED and not (costs.once and paid):
                _pay(nets, chain, rows, net, OUT, nets.way[net], stage_kind, home, stage)
                paid = True
        if home != UNPLACED and unplaced_reads and not (costs.once and paid):
            _pay(nets, chain, rows, net, OUT, nets.way[net], stage_kind, home, UNPLACED)
    return rows


@inner
def _pay(nets, chain, rows, net, direction, way, stage_kind, stage, other):
    kind = stage_kind[stage]
    if other == UNPLACED:
        per_tensor = chain.least[direction, kind, 0]
        per_byte = chain.least[direction, kind, 1]
    else:
        per_tensor = chain.between[direction, kind, stage_kind[other], 0]
        per_byte = chain.between[direction, kind, stage_kind[other], 1]
    seconds = per_tensor * nets.tensors[net] + per_byte * nets.bytes[net]
    for row in range(chain.row_of.shape[2]):
        rows[stage, row] += seconds * chain.row_of[direction, way, row]


@kernel(allocates=True)
def adjacent_nets(node_count, producer, offsets, readers, reader_ways):
    """CSR `(offsets[node], nets, ways)`: the nets a node produces (way 0) or reads."""
    starts = np.zeros(node_count + 1, dtype=np.int64)
    for net in range(len(producer)):
        starts[producer[net] + 1] += 1
        for k in range(offsets[net], offsets[net + 1]):
            starts[readers[k] + 1] += 1
    for node in range(node_count):
        starts[node + 1] += starts[node]
    place = starts[:-1].copy()
    nets = np.empty(starts[-1], dtype=np.int64)
    ways = np.zeros(starts[-1], dtype=np.int64)
    for net in range(len(producer)):
        nets[place[producer[net]]] = net
        place[producer[net]] += 1
        for k in range(offsets[net], offsets[net + 1]):
            nets[place[readers[k]]] = net
            ways[place[readers[k]]] = reader_ways[k]
            place[readers[k]] += 1
    return starts, nets, ways
