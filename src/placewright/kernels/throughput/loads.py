"""The loads of a pipeline's devices, kept up to date while pieces move; for any number of devices.

What `simulate.throughput` works out afresh (that is the definition) is kept here in `Loads`, which
a move of one piece changes in place. A net knows only the devices that read it, and the largest
load stands at the root of a tree over the devices: nothing here takes time or space in proportion
to nets × devices, and a move none in proportion to the devices.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.common.rows import copy_into
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.throughput.arrays import (
    combined,
    direct_seconds,
    host_seconds,
    reads_forward,
)

COMPUTE, INCOMING, OUTGOING = 0, 1, 2  # in Loads.parts
ANY, FORWARD = 0, 1  # in Loads.present
ROUNDING = 1e-12


class Loads(NamedTuple):
    """Where every piece is, and what follows from it."""

    piece_device: Ints
    parts: Floats  # [part, way, device] seconds
    load: Floats  # [way, device] seconds, as of the last `settle`
    used: Floats  # [device] bytes
    reader_device: Ints  # per net from reader_offsets[net] on, sizes[net]: a device that reads
    present: Ints  # beside it, ANY or FORWARD: how many pieces there read the net
    sizes: Ints  # [net]
    touched: Ints  # devices whose parts have changed since the last `settle`
    touched_count: Wide  # [1]
    is_touched: Flags  # [device]
    before: Floats  # [device, part, way] the parts of touched devices at the last `settle`
    tree: Ints  # [way, node]: the device of the largest load below; leaves from `leaves` on
    first_on: Ints  # [device] a piece there, or -1
    next_on: Ints  # [piece] the next one on its device, in a ring
    previous_on: Ints
    best: Ints  # piece_device of the best value seen
    best_value: Floats  # [1]


def loads_of(p: Any, piece_device: Any) -> Loads:
    """The loads of a placement `piece_device[piece]`; it need not fit."""
    devices, pieces = len(p.device_memory), len(p.memory)
    leaves = 1 << max(devices - 1, 0).bit_length()
    state = Loads(
        np.array(piece_device, dtype=np.int32),
        np.zeros((3, 2, devices)),
        np.zeros((2, devices)),
        np.zeros(devices),
        np.full(max(len(p.readers), 1), -1, dtype=np.int32),
        np.zeros((max(len(p.readers), 1), 2), dtype=np.int32),
        np.zeros(len(p.net_source), dtype=np.int32),
        np.zeros(devices, dtype=np.int32),
        np.zeros(1, dtype=np.int64),
        np.zeros(devices, dtype=np.bool_),
        np.zeros((devices, 3, 2)),
        np.full((2, 2 * leaves), -1, dtype=np.int32),
        np.full(devices, -1, dtype=np.int32),
        np.full(pieces, -1, dtype=np.int32),
        np.full(pieces, -1, dtype=np.int32),
        np.array(piece_device, dtype=np.int32),
        np.full(1, np.inf),
    )
    refill(p, state)
    if fits(p, state):
        state.best_value[0] = value(state)
    return state


@kernel
def refill(p, state):
    """All anew from `piece_device`: rounding errors do not add up."""
    state.parts[:] = 0.0
    state.used[:] = 0.0
    state.sizes[:] = 0
    state.first_on[:] = -1
    state.touched_count[0] = 0
    state.is_touched[:] = False
    for piece in range(len(state.piece_device)):
        device = state.piece_device[piece]
        state.used[device] += p.memory[piece]
        for way in range(p.ways):
            state.parts[COMPUTE, way, device] += p.time[way, piece, p.device_class[device]]
        _enter(state, piece, device)
    for net in range(len(p.net_source)):
        for k in range(p.reader_offsets[net], p.reader_offsets[net + 1]):
            device = state.piece_device[p.readers[k]]
            _count_reader(p, state, net, device, p.reader_forward[k], np.int64(1))
        _pay(p, state, net, 1.0)
    state.is_touched[:] = False
    state.touched_count[0] = 0
    leaves = state.tree.shape[1] // 2
    for way in range(2):
        for device in range(len(state.used)):
            state.load[way, device] = load_now(p, state, way, device)
            state.tree[way, leaves + device] = device
        for node in range(leaves - 1, 0, -1):
            _elect(state, way, node)


@kernel
def fits(p, state):
    """Whether every device allows its pieces and has room for them."""
    for piece in range(len(state.piece_device)):
        if not p.allowed[piece, p.device_class[state.piece_device[piece]]]:
            return False
    for device in range(len(state.used)):
        if state.used[device] > p.device_memory[device] * (1.0 + ROUNDING):
            return False
    return True


@kernel
def value(state):
    """Seconds per input: the largest load of each pass, added up (pass 1 is idle but in GPipe)."""
    total = 0.0
    for way in range(2):
        total += state.load[way, busiest(state, way)]
    return total


@inner
def busiest(state, way):
    """The device of the largest load."""
    return state.tree[way, 1]


@kernel
def move(p, state, piece, target):
    """Put `piece` on `target`, allowed or not, full or not; `settle` or `restore` comes next."""
    origin = state.piece_device[piece]
    _touch(state, origin)
    _touch(state, target)
    first, last = p.piece_offsets[piece], p.piece_offsets[piece + 1]
    for k in range(first, last):
        _pay(p, state, np.int64(p.piece_nets[k]), -1.0)
    state.piece_device[piece] = target
    for k in range(first, last):
        net = np.int64(p.piece_nets[k])  # as in `refill`: other integers would compile all again
        if p.net_source[net] != piece:
            forward = reads_forward(p, net, piece)
            _count_reader(p, state, net, origin, forward, np.int64(-1))
            _count_reader(p, state, net, target, forward, np.int64(1))
        _pay(p, state, net, 1.0)
    for way in range(p.ways):
        state.parts[COMPUTE, way, origin] -= p.time[way, piece, p.device_class[origin]]
        state.parts[COMPUTE, way, target] += p.time[way, piece, p.device_class[target]]
    state.used[origin] -= p.memory[piece]
    state.used[target] += p.memory[piece]
    _leave(state, piece, origin)
    _enter(state, piece, target)


@kernel
def settle(p, state):
    """The loads of touched devices, and the largest of all, after moves that are to stay."""
    for k in range(state.touched_count[0]):
        device = state.touched[k]
        state.is_touched[device] = False
        for way in range(p.ways):
            state.load[way, device] = load_now(p, state, way, device)
            node = (state.tree.shape[1] // 2 + device) // 2
            while node > 0:
                _elect(state, way, node)
                node //= 2
    state.touched_count[0] = 0


@kernel
def restore(state):
    """Seconds as they were at the last `settle`, after the moves since were made undone."""
    for k in range(state.touched_count[0]):
        device = state.touched[k]
        state.is_touched[device] = False
        for part in range(state.parts.shape[0]):
            copy_into(state.parts[part, :, device], state.before[device, part])
    state.touched_count[0] = 0


@inner
def load_now(p, state, way, device):
    """Busy seconds of a device in a pass, moves that are not settled yet included."""
    return combined(
        p.load,
        state.parts[COMPUTE, way, device],
        state.parts[INCOMING, way, device],
        state.parts[OUTGOING, way, device],
    )


@inner
def _touch(state, device):
    if not state.is_touched[device]:
        state.is_touched[device] = True
        for part in range(state.parts.shape[0]):
            copy_into(state.before[device, part], state.parts[part, :, device])
        state.touched[state.touched_count[0]] = device
        state.touched_count[0] += 1


@inner
def _pay(p, state, net, sign):
    """Add (sign 1) or take away (-1) what the net costs where its pieces are now."""
    source = state.piece_device[p.net_source[net]]
    out_way = p.net_way[net]
    sent = False
    first = p.reader_offsets[net]
    for k in range(first, first + state.sizes[net]):
        device = state.reader_device[k]
        if device == source:
            continue
        if not sent:
            _touch(state, source)
        _touch(state, device)
        sent = True
        in_way = 0 if state.present[k, FORWARD] > 0 else 1
        if p.through_host:
            seconds = host_seconds(p, net, device, 1)
        else:
            seconds = direct_seconds(p, net, source, device)
            state.parts[OUTGOING, out_way, source] += sign * seconds
        state.parts[INCOMING, in_way, device] += sign * seconds
    if sent and p.through_host:
        state.parts[OUTGOING, out_way, source] += sign * host_seconds(p, net, source, 0)


@inner
def _count_reader(p, state, net, device, forward, change):
    """One reader more (change 1) or less (-1) on the device."""
    first = p.reader_offsets[net]
    end = first + state.sizes[net]
    k = first
    while k < end and state.reader_device[k] != device:
        k += 1
    if k == end:
        state.reader_device[k] = device
        state.present[k] = 0
        state.sizes[net] += 1
    state.present[k, ANY] += change
    if forward:
        state.present[k, FORWARD] += change
    if state.present[k, ANY] == 0:
        state.reader_device[k] = state.reader_device[end - 1]
        copy_into(state.present[k], state.present[end - 1])
        state.sizes[net] -= 1


@inner
def _elect(state, way, node):
    one, two = state.tree[way, 2 * node], state.tree[way, 2 * node + 1]
    if two >= 0 and (one < 0 or state.load[way, two] > state.load[way, one]):
        one = two
    state.tree[way, node] = one


@inner
def _enter(state, piece, device):
    """Into the ring of the pieces on the device."""
    first = state.first_on[device]
    if first < 0:
        state.first_on[device] = piece
        state.next_on[piece] = state.previous_on[piece] = piece
        return
    before = state.previous_on[first]
    state.next_on[before] = state.previous_on[first] = piece
    state.previous_on[piece], state.next_on[piece] = before, first


@inner
def _leave(state, piece, device):
    after, before = state.next_on[piece], state.previous_on[piece]
    if after == piece:
        state.first_on[device] = -1
        return
    state.next_on[before], state.previous_on[after] = after, before
    if state.first_on[device] == piece:
        state.first_on[device] = after
