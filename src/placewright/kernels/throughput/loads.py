"""The loads of a pipeline's devices, kept up to date while nodes move; for any number of devices.

What `simulate.throughput` works out afresh (that is the definition) is kept here in `Loads`, which
a move of one node changes in place. A net knows only the devices that read it, and the largest
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
    """Where every node is, and what follows from it."""

    node_device: Ints
    parts: Floats  # [part, way, device] seconds
    load: Floats  # [way, device] seconds, as of the last `settle`
    used: Floats  # [device] bytes
    reader_device: Ints  # per net from reader_offsets[net] on, sizes[net]: a device that reads
    present: Ints  # beside it, ANY or FORWARD: how many nodes there read the net
    sizes: Ints  # [net]
    touched: Ints  # devices whose parts have changed since the last `settle`
    touched_count: Wide  # [1]
    is_touched: Flags  # [device]
    before: Floats  # [device, part, way] the parts of touched devices at the last `settle`
    tree: Ints  # [way, node]: the device of the largest load below; leaves from `leaves` on
    first_on: Ints  # [device] a node there, or -1
    next_on: Ints  # [node] the next one on its device, in a ring
    previous_on: Ints
    best: Ints  # node_device of the best value seen
    best_value: Floats  # [1]


def loads_of(p: Any, node_device: Any) -> Loads:
    """The loads of a placement `node_device[node]`; it need not fit."""
    devices, nodes = len(p.device_memory), len(p.memory)
    leaves = 1 << max(devices - 1, 0).bit_length()
    state = Loads(
        np.array(node_device, dtype=np.int32),
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
        np.full(nodes, -1, dtype=np.int32),
        np.full(nodes, -1, dtype=np.int32),
        np.array(node_device, dtype=np.int32),
        np.full(1, np.inf),
    )
    refill(p, state)
    if fits(p, state):
        state.best_value[0] = value(state)
    return state


@kernel
def refill(p, state):
    """All anew from `node_device`: rounding errors do not add up."""
    state.parts[:] = 0.0
    state.used[:] = 0.0
    state.sizes[:] = 0
    state.first_on[:] = -1
    state.touched_count[0] = 0
    state.is_touched[:] = False
    for node in range(len(state.node_device)):
        device = state.node_device[node]
        state.used[device] += p.memory[node]
        for way in range(p.ways):
            state.parts[COMPUTE, way, device] += p.time[way, node, p.device_class[device]]
        _enter(state, node, device)
    for net in range(len(p.net_source)):
        for k in range(p.reader_offsets[net], p.reader_offsets[net + 1]):
            device = state.node_device[p.readers[k]]
            _count_reader(p, state, net, device, p.reader_forward[k], np.int64(1))
        _pay(p, state, net, 1.0)
    state.is_touched[:] = False
    state.touched_count[0] = 0
    leaves = state.tree.shape[1] // 2
    for way in range(2):
        for device in range(len(state.used)):
            state.load[way, device] = load_now(p, state, way, device)
            state.tree[way, leaves + device] = device
        for match in range(leaves - 1, 0, -1):
            _elect(state, way, match)


@kernel
def fits(p, state):
    """Whether every device allows its nodes and has room for them."""
    for node in range(len(state.node_device)):
        if not p.allowed[node, p.device_class[state.node_device[node]]]:
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
def move(p, state, node, target):
    """Put `node` on `target`, allowed or not, full or not; `settle` or `restore` comes next."""
    origin = state.node_device[node]
    _touch(state, origin)
    _touch(state, target)
    first, last = p.node_offsets[node], p.node_offsets[node + 1]
    for k in range(first, last):
        _pay(p, state, np.int64(p.node_nets[k]), -1.0)
    state.node_device[node] = target
    for k in range(first, last):
        net = np.int64(p.node_nets[k])  # as in `refill`: other integers would compile all again
        if p.net_source[net] != node:
            forward = reads_forward(p, net, node)
            _count_reader(p, state, net, origin, forward, np.int64(-1))
            _count_reader(p, state, net, target, forward, np.int64(1))
        _pay(p, state, net, 1.0)
    for way in range(p.ways):
        state.parts[COMPUTE, way, origin] -= p.time[way, node, p.device_class[origin]]
        state.parts[COMPUTE, way, target] += p.time[way, node, p.device_class[target]]
    state.used[origin] -= p.memory[node]
    state.used[target] += p.memory[node]
    _leave(state, node, origin)
    _enter(state, node, target)


@kernel
def settle(p, state):
    """The loads of touched devices, and the largest of all, after moves that are to stay."""
    for k in range(state.touched_count[0]):
        device = state.touched[k]
        state.is_touched[device] = False
        for way in range(p.ways):
            state.load[way, device] = load_now(p, state, way, device)
            match = (state.tree.shape[1] // 2 + device) // 2
            while match > 0:
                _elect(state, way, match)
                match //= 2
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
    """Add (sign 1) or take away (-1) what the net costs where its nodes are now."""
    source = state.node_device[p.net_source[net]]
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
def _elect(state, way, match):
    one, two = state.tree[way, 2 * match], state.tree[way, 2 * match + 1]
    if two >= 0 and (one < 0 or state.load[way, two] > state.load[way, one]):
        one = two
    state.tree[way, match] = one


@inner
def _enter(state, node, device):
    """Into the ring of the nodes on the device."""
    first = state.first_on[device]
    if first < 0:
        state.first_on[device] = node
        state.next_on[node] = state.previous_on[node] = node
        return
    before = state.previous_on[first]
    state.next_on[before] = state.previous_on[first] = node
    state.previous_on[node], state.next_on[node] = before, first


@inner
def _leave(state, node, device):
    after, before = state.next_on[node], state.previous_on[node]
    if after == node:
        state.first_on[device] = -1
        return
    state.next_on[before], state.previous_on[after] = after, before
    if state.first_on[device] == node:
        state.first_on[device] = after
