"""The time per input of a pipeline, kept up to date while units move from device to device.

What `simulate.throughput` works out afresh (that is the definition) is kept here in a `State`
that a move of one unit changes in place: it visits the nets the unit touches and no others.
Passes are 0 and 1; a PipeDream schedule has all in pass 0 (see `planners.throughput.nets`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from placewright.kernels.common.rows import copy_into
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.kernels.throughput.net_costs import (
    combined,
    direct_seconds,
    host_seconds,
    random_neighbour,
    reads_forward,
)

COMPUTE, INCOMING, OUTGOING = 0, 1, 2  # in State.parts
ANY, FORWARD = 0, 1  # in State.present
NEIGHBOUR_SHARE = 0.6  # of the moves, to the device of a unit that shares a net
OVERFLOW_PRICE = 4.0  # in values, for as much too much as a device has memory
ROUNDING = 1e-12
PAIR_SHARE = 0.4  # of the moves push another unit on to a third device, or back
TRIES = 12  # to find one at the rim of its device


class MaxLoad(NamedTuple):
    """Units, nets and machine; CSR pairs are `…_offsets` with what they index."""

    time: Any  # [way, unit, device] seconds
    allowed: Any  # [unit, device]
    memory: Any  # [unit] bytes
    net_source: Any  # [net] unit
    net_way: Any  # [net] pass of the producer
    net_count: Any  # [net] tensors
    net_bytes: Any  # [net]
    reader_offsets: Any
    readers: Any  # units
    reader_forward: Any  # whether an op of the forward pass reads
    net_offsets: Any  # [unit]
    nets: Any  # the nets that a unit makes or reads
    link_latency: Any
    link_seconds_per_byte: Any
    host_latency: Any
    host_seconds_per_byte: Any
    through_host: bool
    load: int


class State(NamedTuple):
    """Where every unit is, and what follows from it."""

    unit_device: Any
    parts: Any  # [part, way, device] seconds
    present: Any  # [net, device, ANY or FORWARD] readers on the device
    free: Any  # [device] bytes; negative where too much is on the device
    capacity: Any  # [device] bytes
    best: Any  # unit_device of the best value seen
    best_value: Any  # [1]


def new_state(p: MaxLoad, device_memory: Any, unit_device: Any) -> State:
    """The state of a placement `unit_device[unit]`, filled."""
    devices = len(device_memory)
    state = State(
        np.array(unit_device, dtype=np.int32),
        np.zeros((3, 2, devices)),
        np.zeros((len(p.net_source), devices, 2), dtype=np.int32),
        np.array(device_memory, dtype=np.float64),
        np.array(device_memory, dtype=np.float64),
        np.array(unit_device, dtype=np.int32),
        np.full(1, np.inf),
    )
    refill(p, state)
    if overflow(state) == 0.0:
        state.best_value[0] = value(p, state)
    return state


@kernel
def refill(p, state):
    """All anew from `unit_device`: rounding errors do not add up."""
    state.parts[:] = 0.0
    copy_into(state.free, state.capacity)
    state.present[:] = 0
    for unit in range(len(state.unit_device)):
        device = state.unit_device[unit]
        state.free[device] -= p.memory[unit]
        for way in range(2):
            state.parts[COMPUTE, way, device] += p.time[way, unit, device]
    for net in range(len(p.net_source)):
        for k in range(p.reader_offsets[net], p.reader_offsets[net + 1]):
            device = state.unit_device[p.readers[k]]
            state.present[net, device, ANY] += 1
            state.present[net, device, FORWARD] += p.reader_forward[k]
        _send(p, state, net, 1.0)


@inner
def _send(p, state, net, sign):
    """Add (sign 1) or take away (-1) what the net costs where its units are now."""
    source = state.unit_device[p.net_source[net]]
    out_way = p.net_way[net]
    sent = False
    for device in range(state.parts.shape[2]):
        if device == source or state.present[net, device, ANY] == 0:
            continue
        sent = True
        in_way = 0 if state.present[net, device, FORWARD] > 0 else 1
        if p.through_host:
            seconds = host_seconds(p, net, device, 1)
        else:
            seconds = direct_seconds(p, net, source, device)
            state.parts[OUTGOING, out_way, source] += sign * seconds
        state.parts[INCOMING, in_way, device] += sign * seconds
    if sent and p.through_host:
        state.parts[OUTGOING, out_way, source] += sign * host_seconds(p, net, source, 0)


@inlined
def move(p, state, unit, target):
    """Put `unit` on the device `target`, allowed or not, room or not."""
    _move(p, state, np.int64(unit), np.int32(target))  # compiled once, whatever integers come


@inner
def _move(p, state, unit, target):
    origin = state.unit_device[unit]
    first, last = p.net_offsets[unit], p.net_offsets[unit + 1]
    for k in range(first, last):
        _send(p, state, p.nets[k], -1.0)
    state.unit_device[unit] = target
    for k in range(first, last):
        net = p.nets[k]
        if p.net_source[net] != unit:
            forward = np.int32(reads_forward(p, net, unit))
            state.present[net, origin, ANY] -= 1
            state.present[net, target, ANY] += 1
            state.present[net, origin, FORWARD] -= forward
            state.present[net, target, FORWARD] += forward
        _send(p, state, net, 1.0)
    for way in range(2):
        state.parts[COMPUTE, way, origin] -= p.time[way, unit, origin]
        state.parts[COMPUTE, way, target] += p.time[way, unit, target]
    state.free[origin] += p.memory[unit]
    state.free[target] -= p.memory[unit]


@kernel
def load(p, state, way, device):
    """Busy seconds of a device in a pass, under the option `load`."""
    return combined(
        p.load,
        state.parts[COMPUTE, way, device],
        state.parts[INCOMING, way, device],
        state.parts[OUTGOING, way, device],
    )


@kernel
def value(p, state):
    """Seconds per input: the largest load of each pass, added up (pass 1 is idle but in GPipe)."""
    total = 0.0
    for way in range(2):
        largest = 0.0
        for device in range(state.parts.shape[2]):
            largest = max(largest, load(p, state, way, device))
        total += largest
    return total


@kernel
def overflow(state):
    """Bytes that are too many, as shares of their device's memory; 0 where all fits."""
    total = 0.0
    for device in range(len(state.free)):
        if state.free[device] < -ROUNDING * state.capacity[device]:
            total -= state.free[device] / max(state.capacity[device], 1.0)
    return total


@kernel
def energy(p, state, scale, squarings):
    """A smooth stand-in for `value`: the 2^squarings-norm of the loads, which sees them all.

    What does not fit costs: a search may pass through placements that overflow.
    """
    total = scale * OVERFLOW_PRICE * overflow(state)
    for way in range(2):
        powers = 0.0
        for device in range(state.parts.shape[2]):
            share = max(load(p, state, way, device), 0.0) / scale
            for _ in range(squarings):
                share *= share
            powers += share
        for _ in range(squarings):
            powers = math.sqrt(powers)
        total += powers * scale
    return total


@inner
def _pushed_out(p, state, movable, unit, device, rng):
    """Another unit on `device` and the device of one of its neighbours to push it to, or -1s."""
    for _ in range(TRIES):
        other = movable[int(rng.random() * len(movable))]
        if state.unit_device[other] == device and other != unit:
            onward = state.unit_device[random_neighbour(p, p.net_offsets, p.nets, other, rng)]
            if onward != device and p.allowed[other, onward]:
                return np.int32(other), np.int32(onward)
    return np.int32(-1), np.int32(-1)


@kernel(allocates=True)
def anneal(p, state, movable, rng, steps, scale, first, last, squarings):
    """Simulated annealing by moves of one unit, or of one that pushes another on.

    The best that fits goes to `state.best`; `scale` is about the value, in seconds.

    The temperature falls geometrically from `first` to `last` (seconds) over the steps. A worse
    energy by Δ is taken with probability exp(-Δ / temperature). Ends on the last placement, not
    on the best.
    """
    devices = state.parts.shape[2]
    current = energy(p, state, scale, squarings)
    cooling = (last / first) ** (1.0 / max(steps, 1))
    temperature = first
    saved = np.empty_like(state.parts)
    for _ in range(steps):
        temperature *= cooling
        unit = movable[int(rng.random() * len(movable))]
        origin = state.unit_device[unit]
        if rng.random() < NEIGHBOUR_SHARE:
            target = state.unit_device[random_neighbour(p, p.net_offsets, p.nets, unit, rng)]
        else:
            target = np.int32(rng.random() * devices)
        if target == origin or not p.allowed[unit, target]:
            continue
        other, onward = np.int32(-1), np.int32(-1)
        if rng.random() < PAIR_SHARE:
            other, onward = _pushed_out(p, state, movable, unit, target, rng)
        saved[:] = state.parts
        move(p, state, unit, target)
        if other >= 0:
            move(p, state, other, onward)
        then = energy(p, state, scale, squarings)
        if then <= current or rng.random() < math.exp((current - then) / temperature):
            current = then
            found = value(p, state)
            if found < state.best_value[0] * (1.0 - ROUNDING) and overflow(state) == 0.0:
                state.best_value[0] = found
                copy_into(state.best, state.unit_device)
        else:
            if other >= 0:
                move(p, state, other, target)
            move(p, state, unit, origin)
            state.parts[:] = saved
