"""Changes to a string of device numbers and to an order of ops, and how to take them back.

What `kernels.latency.search` walks through. The order is kept as blocks: an op followed by the
edges it produces, so that a transfer is sent right after its producer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.compiled import inlined, inner, kernel

NOTHING, MOVED, SWAPPED = 0, 1, 2  # in Scratch.reordered

# Annealing's changes of devices, each up to its share of the draws, and the mean lengths moved.
ANYWHERE = 0.35  # one unit to any device
BESIDE = 0.6  # one unit to the device of an op it exchanges a tensor with
RUN = 0.75  # neighbours in the breadth-first order to one device
PATH = 0.9  # an op, a consumer of it, a consumer of that, …, to one device
# beyond: two units change places
MEAN_RUN = 8.0
MEAN_SHIFT = 10.0
SWAP_SHARE = 0.1  # of the changes of order: two transfers of one op, rather than a block


class Space(NamedTuple):
    """What a search may do. Only `movable` units, those with a choice of device, are touched."""

    unit_offsets: Wide  # CSR [unit] → its ops in unit_ops
    unit_ops: Ints
    op_unit: Ints  # [op]
    unit_memory: Floats  # [unit] bytes
    allowed: Flags  # [unit, device]
    movable: Ints  # units, by the breadth-first rank of their first op
    block_length: Wide  # [op] items in its block: itself and the edges it produces


class State(NamedTuple):
    """Where a search is: written by the kernels."""

    device: Ints  # [op]
    unit_device: Ints  # [unit]
    free: Floats  # [device] bytes
    sequence: Ints  # blocks in the order op_at
    op_at: Ints  # [rank]
    op_rank: Ints  # [op]
    block_start: Wide  # [rank] position of the block in sequence
    value: Floats  # [CURRENT], [BEST] seconds
    best_unit_device: Ints
    best_sequence: Ints


class Scratch(NamedTuple):
    """Arrays that `time_sequence` borrows, and what is needed to take a mutation back."""

    op_ready: Floats
    op_finish: Floats
    edge_finish: Floats
    device_free: Floats
    channel_free: Floats
    nothing: Floats
    block: Ints  # one block while it is moved
    undo_unit: Ints
    undo_device: Ints
    changed: Flags  # [unit] by the change that is being made
    reordered: Wide  # what was done to the order, from, to


@kernel
def below(rng, count):
    """A uniform integer in 0 … count - 1."""
    return int(rng.random() * count)


@kernel
def geometric(rng, mean):
    """A length of at least 1; long ones are exponentially rare."""
    return 1 + int(-math.log(1.0 - rng.random()) * mean)


@kernel
def assign(space, state, unit, device):
    """Put `unit` on `device`, whether it fits or not."""
    memory = space.unit_memory[unit]
    state.free[state.unit_device[unit]] += memory
    state.free[device] -= memory
    state.unit_device[unit] = device
    for k in range(space.unit_offsets[unit], space.unit_offsets[unit + 1]):
        state.device[space.unit_ops[k]] = device


@kernel
def assign_all(space, state, unit_device):
    """Put every movable unit where `unit_device` says."""
    for unit in space.movable:
        assign(space, state, unit, unit_device[unit])


@inlined
def mutate(space, state, scratch, count, unit, device):
    """Note where `unit` was, as change number `count`, and put it on `device` if it may go there.

    Returns the number of changes.
    """
    # Compiled once, whatever integers come.
    return _mutate(space, state, scratch, np.int64(count), np.int32(unit), np.int32(device))


@inner
def _mutate(space, state, scratch, count, unit, device):
    if state.unit_device[unit] == device or not space.allowed[unit, device]:
        return count
    scratch.undo_unit[count] = unit
    scratch.undo_device[count] = state.unit_device[unit]
    assign(space, state, unit, device)
    return count + 1


@kernel
def take_back(space, state, scratch, count):
    for k in range(count - 1, -1, -1):
        assign(space, state, scratch.undo_unit[k], scratch.undo_device[k])


@kernel
def fits(state, scratch, count):
    """No device that one of the changes went to overflows."""
    within = True
    for k in range(count):
        within &= state.free[state.unit_device[scratch.undo_unit[k]]] >= 0.0
    return within


# -- devices ---------------------------------------------------------------------------------


@inner
def reassign(p, space, state, scratch, rng):
    """Give a few units other devices; returns the number of changes."""
    kind = rng.random()
    place = below(rng, len(space.movable))
    unit = space.movable[place]
    if kind < ANYWHERE:
        device = below(rng, len(state.free))
        return mutate(space, state, scratch, 0, unit, device)
    if kind < BESIDE:
        device = _device_beside(p, space, state, rng, unit)
        return mutate(space, state, scratch, 0, unit, device)
    if kind < RUN:
        device = below(rng, len(state.free))
        count = 0
        for k in range(place, min(place + geometric(rng, MEAN_RUN), len(space.movable))):
            count = mutate(space, state, scratch, count, space.movable[k], device)
        return count
    if kind < PATH:
        return _reassign_path(p, space, state, scratch, rng, unit)
    other = space.movable[below(rng, len(space.movable))]
    one_device, other_device = state.unit_device[unit], state.unit_device[other]
    if not (space.allowed[unit, other_device] and space.allowed[other, one_device]):
        return 0
    count = mutate(space, state, scratch, 0, unit, other_device)
    return mutate(space, state, scratch, count, other, one_device)


@inner
def _reassign_path(p, space, state, scratch, rng, unit):
    """The units along a random path from a random op of `unit`, to one device."""
    device = below(rng, len(state.free))
    op = random_op(space, rng, unit)
    count = 0
    for _ in range(geometric(rng, MEAN_RUN)):
        count = mutate(space, state, scratch, count, space.op_unit[op], device)
        op = random_reader(p, rng, op)
    return count


@inner
def _device_beside(p, space, state, rng, unit):
    """The device of a random producer or consumer of a random op of the unit."""
    op = random_op(space, rng, unit)
    inputs = p.input_offsets[op + 1] - p.input_offsets[op]
    outputs = p.output_offsets[op + 1] - p.output_offsets[op]
    if below(rng, inputs + outputs) < inputs:
        edge = p.inputs[p.input_offsets[op] + below(rng, inputs)]
        return state.device[p.edge_producer[edge]]
    return state.device[random_reader(p, rng, op)]


@inner
def random_op(space, rng, unit):
    first, last = space.unit_offsets[unit], space.unit_offsets[unit + 1]
    return space.unit_ops[first + below(rng, last - first)]


@inner
def random_reader(p, rng, op):
    """A consumer of a tensor of the op; the op itself if there is none."""
    outputs = p.output_offsets[op + 1] - p.output_offsets[op]
    if outputs == 0:
        return op
    tensor = p.outputs[p.output_offsets[op] + below(rng, outputs)]
    readers = p.consumer_offsets[tensor + 1] - p.consumer_offsets[tensor]
    if readers == 0:
        return op
    return p.consumers[p.consumer_offsets[tensor] + below(rng, readers)]


@inner
def other_device(space, state, rng, unit):
    """A random device among those allowed, without the one the unit is on."""
    here = state.unit_device[unit]
    choices = 0
    for d in range(len(state.free)):
        if d != here and space.allowed[unit, d]:
            choices += 1
    k = below(rng, choices)
    for d in range(len(state.free)):
        if d != here and space.allowed[unit, d]:
            if k == 0:
                return d
            k -= 1
    return here


# -- order -----------------------------------------------------------------------------------


@inner
def reorder(p, space, state, scratch, rng):
    """Move the block of one op, as far as its producers and consumers let it, or swap two edges."""
    op = below(rng, len(state.op_rank))
    rank = state.op_rank[op]
    if rng.random() < SWAP_SHARE:
        edges = space.block_length[op] - 1
        if edges < 2:
            return
        start = state.block_start[rank] + 1
        one, other = start + below(rng, edges), start + below(rng, edges)
        if one != other:
            _swap(state, one, other)
            note(scratch, SWAPPED, one, other)
        return
    earliest, latest = span(p, state, op)
    shift = geometric(rng, MEAN_SHIFT)
    target = rank + shift if rng.random() < 0.5 else rank - shift
    target = min(max(target, earliest), latest)
    if target != rank:
        move_block(space, state, scratch, rank, target)
        note(scratch, MOVED, rank, target)


@inner
def note(scratch, what, source, target):
    scratch.reordered[0] = what
    scratch.reordered[1] = source
    scratch.reordered[2] = target


@inner
def restore_order(space, state, scratch):
    what, source, target = scratch.reordered[0], scratch.reordered[1], scratch.reordered[2]
    if what == SWAPPED:
        _swap(state, source, target)
    elif what == MOVED:
        move_block(space, state, scratch, target, source)


@inner
def _swap(state, one, other):
    kept = state.sequence[one]
    state.sequence[one] = state.sequence[other]
    state.sequence[other] = kept


@kernel
def span(p, state, op):
    """The first and last rank that are after all producers and before all consumers of `op`."""
    earliest, latest = 0, len(state.op_at) - 1
    for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
        earliest = max(earliest, state.op_rank[p.edge_producer[p.inputs[k]]] + 1)
    for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
        tensor = p.outputs[k]
        for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
            latest = min(latest, state.op_rank[p.consumers[edge]] - 1)
    return earliest, latest


@kernel
def move_block(space, state, scratch, source, target):
    """Take the op of rank `source` with its edges out of the order and put it in at `target`."""
    op = state.op_at[source]
    length = space.block_length[op]
    start = state.block_start[source]
    for k in range(length):
        scratch.block[k] = state.sequence[start + k]
    if source < target:  # those between come forward
        for rank in range(source, target):
            start = _copy_block(space, state, rank + 1, rank, start)
    else:  # those between go back, the last one first
        end = start + length
        for rank in range(source, target, -1):
            end -= space.block_length[state.op_at[rank - 1]]
            _copy_block(space, state, rank - 1, rank, end)
        start = end - length
    state.op_at[target] = op
    state.op_rank[op] = target
    state.block_start[target] = start
    for k in range(length):
        state.sequence[start + k] = scratch.block[k]


@inner
def _copy_block(space, state, source, target, start):
    """The block of rank `source` becomes that of rank `target`, at `start`; returns its end."""
    op = state.op_at[source]
    length = space.block_length[op]
    old = state.block_start[source]
    if start < old:
        for k in range(length):
            state.sequence[start + k] = state.sequence[old + k]
    else:
        for k in range(length - 1, -1, -1):
            state.sequence[start + k] = state.sequence[old + k]
    state.op_at[target] = op
    state.op_rank[op] = target
    state.block_start[target] = start
    return start + length
