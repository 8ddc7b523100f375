"""Cuts of a linear order over a row of devices: can every load stay within a limit?

Stages are runs of neighbours in an order of the nodes; they go to the devices of a row in turn,
of which any may be left out. A beam of positions is carried along the row: how far the first
devices can get. What a stage pays is exact where transfers cost the same wherever they come from
or go to; otherwise what was before is taken to be on the device before in the row, and what
follows on the next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.graph import Floats, Wide
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.throughput.arrays import (
    IN,
    OUT,
    combined,
    direct_seconds,
    host_seconds,
    reads_forward,
)
from placewright.kernels.throughput.stage_loads import charges

TOLERANCE = 1e-12  # of a device's memory
LOW, HIGH = 0, 1


class Line(NamedTuple):
    """The nodes in their order, and per net where its ends stand in it (see `_ends`).

    `inside[net]` (the stage's readers: 1 some, 2 forward ones) and `charged[net]` are of the stage
    at hand; `copies[net, 0 or 1]`: to how many of the lower and of the higher stages it is sent.
    """

    order: Wide
    home: Wide
    first: Wide
    last: Wide
    inside: Wide
    charged: Wide
    copies: Floats


class Beam(NamedTuple):
    """The positions kept at a device, best `score` first: `position`, and of which `parent`."""

    position: Wide
    parent: Wide
    size: Wide  # [1]
    score: Floats


class Place(NamedTuple):
    """A device, those before and after it in the row, and the limits of its stage."""

    device: int
    low: int
    high: int
    free: float  # bytes
    busy: float  # seconds that are set aside
    limit: float  # seconds


@kernel(allocates=True)
def cut_row(p, order, row, limit, width, score, copies, taken, busy):
    """`[node]` device of a split whose loads are at most `limit` seconds, all -1 if none is found.

    - `score[position]`: how much it is worth to have cut there; the `width` best positions are
      kept at each device (with as many as there are positions nothing is lost);
    - `copies`: see `Line`;
    - `taken[device]` bytes and `busy[device]` seconds are set aside. Nodes that are not in
      `order` do not count.
    """
    count, steps = len(order), len(row)
    device_of = np.full(len(p.memory), -1, dtype=np.int32)
    position = np.full(len(p.memory), -1, dtype=np.int64)
    for place in range(count):
        position[order[place]] = place
    home, first, last = _ends(p, position)
    inside = np.zeros(len(home), dtype=np.int64)
    charged = np.zeros(len(home), dtype=np.int64)
    line = Line(order, home, first, last, inside, charged, copies)
    reached = np.zeros((steps + 1, width), dtype=np.int64)
    origin = np.full((steps + 1, width), -1, dtype=np.int64)
    sizes = np.zeros((steps + 1, 1), dtype=np.int64)
    sizes[0] = 1
    compute, paid = np.zeros(2), np.zeros((2, 2, 2))
    for step in range(steps):
        device = row[step]
        free = p.device_memory[device] * (1.0 + TOLERANCE) - taken[device]
        here = Place(
            device, row[max(step - 1, 0)], row[min(step + 1, steps - 1)], free, busy[device], limit
        )
        beam = Beam(reached[step + 1], origin[step + 1], sizes[step + 1], score)
        for k in range(sizes[step, 0]):
            _keep(beam, reached[step, k], k)
            _stage(p, line, reached[step, k], here, k, beam, compute, paid)
        for k in range(sizes[step + 1, 0]):
            if reached[step + 1, k] == count:
                _walk_back(order, row, reached, origin, step + 1, k, device_of)
                return device_of
    return device_of


@inner
def _stage(p, line, start, at, parent, beam, compute, paid):
    """Keep every end of a stage from `start` on whose load is within the limit.

    `compute[way]` and ``paid[in or out, way, low or high]`` are lent.
    """
    kind, free = p.device_class[at.device], at.free
    compute[0], compute[1] = at.busy, 0.0
    for direction in range(2):
        for way in range(2):
            paid[direction, way, LOW] = paid[direction, way, HIGH] = 0.0
    end = start
    while end < len(line.order):
        node = line.order[end]
        end += 1
        free -= p.memory[node]
        if free < 0.0 or not p.allowed[node, kind]:
            break
        for way in range(p.ways):
            compute[way] += p.time[way, node, kind]
        _add_transfers(p, line, node, start, end, at, paid)
        load = least = 0.0
        for way in range(p.ways):
            load += combined(
                p.load, compute[way], paid[IN, way, LOW] + paid[IN, way, HIGH],
                paid[OUT, way, LOW] + paid[OUT, way, HIGH],
            )  # fmt: skip
            # What comes from or goes to lower stages only grows with the stage (in one pass).
            alone = p.ways == 1
            least += combined(
                p.load, compute[way], paid[IN, way, LOW] if alone else 0.0,
                paid[OUT, way, LOW] if alone else 0.0,
            )  # fmt: skip
        if least > at.limit:
            break
        if load <= at.limit:
            _keep(beam, end, parent)
    for place in range(start, end):
        node = line.order[place]
        for k in range(p.node_offsets[node], p.node_offsets[node + 1]):
            line.inside[p.node_nets[k]] = 0
            line.charged[p.node_nets[k]] = 0


# Called for every node: handing its tables over would take as long as the rest.
@inner(forceinline=True)
def _add_transfers(p, line, node, start, end, at, paid):
    """Bring up to date what the nets of the stage's last node cost it."""
    for k in range(p.node_offsets[node], p.node_offsets[node + 1]):
        net = p.node_nets[k]
        home = line.home[net]
        if home < 0:
            continue
        if p.net_source[net] != node:
            line.inside[net] |= 1 + 2 * int(reads_forward(p, net, node))
        bits = charges(
            p.net_way[net], p.through_host, start <= home < end, line.first[net] < start,
            line.last[net] >= end, line.inside[net] > 0, line.inside[net] > 1, home < start,
        )  # fmt: skip
        changed = bits ^ line.charged[net]
        line.charged[net] = bits
        for bit in range(8):
            if changed >> bit & 1:
                sign = 1.0 if bits >> bit & 1 else -1.0
                way, side = bit >> 1 & 1, bit & 1
                other = at.low if side == LOW else at.high
                if bit >> 2:
                    paid[IN, way, side] += sign * _received(p, net, at.device, other)
                else:
                    seconds = _sent(p, net, at.device, other)
                    paid[OUT, way, side] += sign * seconds * line.copies[net, side]


@inner
def _keep(beam, position, parent):
    """Enter a position among those kept, best scores first, each once."""
    reached, score, size = beam.position, beam.score, beam.size[0]
    place = size
    while place > 0 and score[reached[place - 1]] < score[position]:
        place -= 1
    for k in range(place - 1, -1, -1):
        if reached[k] == position:
            return
        if score[reached[k]] > score[position]:
            break
    for k in range(place, size):
        if reached[k] == position:
            return
    if place == len(reached):
        return
    for k in range(min(size, len(reached) - 1), place, -1):
        reached[k] = reached[k - 1]
        beam.parent[k] = beam.parent[k - 1]
    reached[place] = position
    beam.parent[place] = parent
    beam.size[0] = min(size + 1, len(reached))


@inner
def _walk_back(order, row, reached, origin, step, k, device_of):
    while step > 0:
        before = origin[step, k]
        for place in range(reached[step - 1, before], reached[step, k]):
            device_of[order[place]] = row[step - 1]
        step, k = step - 1, before


@inner
def _sent(p, net, device, other):
    if p.through_host:
        return host_seconds(p, net, device, 0)
    return direct_seconds(p, net, device, other)


@inner
def _received(p, net, device, other):
    if p.through_host:
        return host_seconds(p, net, device, 1)
    return direct_seconds(p, net, other, device)


@inner(allocates=True)
def _ends(p, position):
    """Per net, positions of its producer and of its first and last reader; -1 if not in the order.

    A net without a producer or without readers there is left out: its producer's is -1.
    """
    nets = len(p.net_source)
    home = np.empty(nets, dtype=np.int64)
    first = np.full(nets, len(position), dtype=np.int64)
    last = np.full(nets, -1, dtype=np.int64)
    for net in range(nets):
        home[net] = position[p.net_source[net]]
        for k in range(p.reader_offsets[net], p.reader_offsets[net + 1]):
            place = position[p.readers[k]]
            if place >= 0:
                first[net] = min(first[net], place)
                last[net] = max(last[net], place)
        if last[net] < 0:
            home[net] = -1
    return home, first, last


@kernel(allocates=True)
def crossing(p, order, latency, seconds_per_byte):
    """`[position]` seconds that the nets take which a cut before the position goes through."""
    position = np.full(len(p.memory), -1, dtype=np.int64)
    for place in range(len(order)):
        position[order[place]] = place
    home, first, last = _ends(p, position)
    total = np.zeros(len(order) + 2)
    for net in range(len(home)):
        if home[net] >= 0:
            seconds = p.net_count[net] * latency + p.net_bytes[net] * seconds_per_byte
            total[min(home[net], first[net]) + 1] += seconds
            total[max(home[net], last[net]) + 1] -= seconds
    return np.cumsum(total)[: len(order) + 1]


@kernel(allocates=True)
def copies_sent(p, node_stage):
    """`[net, 0 or 1]` to how many lower and higher stages each net is sent, 1 at the least."""
    copies = np.zeros((len(p.net_source), 2))
    seen = np.full(node_stage.max() + 1, -1, dtype=np.int64)
    for net in range(len(p.net_source)):
        home = node_stage[p.net_source[net]]
        for k in range(p.reader_offsets[net], p.reader_offsets[net + 1]):
            stage = node_stage[p.readers[k]]
            if stage != home and seen[stage] != net:
                seen[stage] = net
                copies[net, HIGH if stage > home else LOW] += 1.0
    return np.maximum(copies, 1.0)
