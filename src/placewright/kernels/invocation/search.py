"""Annealing of slots on the true invocation latency, with moves that keep subgraphs contiguous.

A mutation takes an op, a slot to bring it to, and what must come along: the op's ancestors or
descendants in its own slot (on a CPU: those joined to it there), or all that lies between it and
the new slot; then the whole atom of each, or the rest of its unit where that is on another
device. Where that overfills a device, ops of it go elsewhere, with what must come along in turn.
What is infeasible all the same (memory, a circle) is never accepted.

Random numbers come from the caller's generator, one uniform draw at a time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from placewright.graph import Floats, Wide
from placewright.kernels.common.rows import copy_into
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.invocation.timing import evaluate

CURRENT, BEST = 0, 1  # in State.value
COLDEST = 1e-300  # seconds; a temperature that still divides
ALONE, UPSTREAM, DOWNSTREAM, BETWEEN = 0, 1, 2, 3
SHARE_OF_EXCHANGES = 0.02
SHARE_TO_NEIGHBOUR = 0.6
SHARE_TO_CPU = 0.15
SHARE_OF_WHOLE_ATOMS = 0.7
MOST_EJECTIONS = 6  # ops that are sent away from full devices, with what comes along
MOST_DRAWN = 24  # ops, to find one that is on the full device
SHARE_BACK = 0.4  # of what is sent away, to where the change came from; the rest to a neighbour


class State(NamedTuple):
    op_slot: Wide
    best_slot: Wide
    used: Floats  # [device] bytes
    value: Floats  # seconds: of op_slot, of best_slot


class Space(NamedTuple):
    cpus: Wide
    accelerators: Wide
    movable: Wide  # ops whose unit has more than one device to be on


class Scratch(NamedTuple):
    moved: Wide  # ops, in the order in which they were found; one may be there several times
    old_slot: Wide  # [place in moved]
    mark: Wide  # [op] the last search that found it
    mark_back: Wide  # [op] the last search from the other end that found it
    queue: Wide
    searches: Wide  # [0] number of searches so far


@kernel
def settle(net, state, work):
    """Take the slots as they are, and count their memory."""
    per_device = 2 * net.subgraphs
    state.used[:] = 0.0
    for op in range(len(state.op_slot)):
        state.used[state.op_slot[op] // per_device] += net.op_memory[op]
    value = evaluate(net, state.op_slot, work)
    for device in range(len(state.used)):
        if state.used[device] > net.device_memory[device]:
            value = math.inf
    _keep(state, value)


@kernel
def anneal(net, atoms, space, state, work, scratch, rng, evaluations, temperature, cooling):
    """Simulated annealing; returns the temperature it ends with, for the next call.

    Before each mutation the temperature (seconds) is multiplied by `cooling`. A mutation that
    changes nothing or overflows a memory counts as an evaluation too.
    """
    for _ in range(evaluations):
        temperature = max(temperature * cooling, COLDEST)
        count = _mutate(net, atoms, space, state, scratch, rng)
        if count == 0:
            continue
        count = make_room(net, atoms, space, state, scratch, rng, count)
        if _fits(net, state, scratch, count):
            value = evaluate(net, state.op_slot, work)
            worse = value - state.value[CURRENT]
            if state.value[CURRENT] == math.inf:  # anything that fits the memory is as good
                _keep(state, value)
                continue
            if worse <= 0.0 or rng.random() < math.exp(-worse / temperature):
                _keep(state, value)
                continue
        _take_back(net, state, scratch, count)
    return temperature


@inner
def _keep(state, value):
    state.value[CURRENT] = value
    if value < state.value[BEST]:
        state.value[BEST] = value
        copy_into(state.best_slot, state.op_slot)


@inner
def _fits(net, state, scratch, count):
    """Whether all moved ops may be where they are now and no memory overflows."""
    per_device = 2 * net.subgraphs
    for i in range(count):
        op = scratch.moved[i]
        device = state.op_slot[op] // per_device
        if not net.unit_allowed[net.op_unit[op], device]:
            return False
        if state.used[device] > net.device_memory[device]:
            return False
    return True


@inner
def _take_back(net, state, scratch, count):
    """Every moved op back to where it was, the last one first: an op may have moved twice."""
    for i in range(count - 1, -1, -1):
        _put(net, state, scratch.moved[i], scratch.old_slot[i])


@inner
def _put(net, state, op, slot):
    per_device = 2 * net.subgraphs
    state.used[state.op_slot[op] // per_device] -= net.op_memory[op]
    state.used[slot // per_device] += net.op_memory[op]
    state.op_slot[op] = slot


@inner
def _below(rng, count):
    return int(rng.random() * count)


# -- mutations -------------------------------------------------------------------------------


@inner
def _mutate(net, atoms, space, state, scratch, rng):
    """Move some ops; how many, listed in `scratch`."""
    if len(space.movable) == 0:
        return 0
    if rng.random() < SHARE_OF_EXCHANGES:
        return _exchange(net, space, state, scratch, rng)
    op = space.movable[_below(rng, len(space.movable))]
    slot, how = _target(net, space, state, rng, op)
    if slot == state.op_slot[op]:
        return 0
    whole = rng.random() < SHARE_OF_WHOLE_ATOMS
    return _bring(net, atoms, state, scratch, np.int64(0), op, slot, how, whole)


@inner
def _bring(net, atoms, state, scratch, first, op, slot, how, whole):
    """Move the op to a slot with what comes along, listed from place `first` on; where they end."""
    scratch.searches[0] += 1
    count = _closure(net, state, scratch, first, op, slot, how)
    count = _complete(net, atoms, state, scratch, first, slot, count, whole)
    for i in range(first, count):
        other = scratch.moved[i]
        scratch.old_slot[i] = state.op_slot[other]
        _put(net, state, other, _same_number(net, slot, other))
    return count


@inner
def _same_number(net, slot, op):
    """The slot of the op's own way with the number that `slot` has."""
    device = slot // (2 * net.subgraphs)
    number = slot % net.subgraphs
    return (2 * device + net.op_way[op]) * net.subgraphs + number


@inner
def _target(net, space, state, rng, op):
    """A slot to bring the op to, and what is to come along."""
    draw = rng.random()
    how = _below(rng, 4)
    if draw < SHARE_TO_NEIGHBOUR:
        return _neighbour_slot(net, state, rng, op)
    if draw < SHARE_TO_NEIGHBOUR + SHARE_TO_CPU and len(space.cpus) > 0:
        device = space.cpus[_below(rng, len(space.cpus))]
        return _same_number(net, device * 2 * net.subgraphs, op), how
    if len(space.accelerators) == 0:
        return state.op_slot[op], ALONE
    device = space.accelerators[_below(rng, len(space.accelerators))]
    slot = device * 2 * net.subgraphs + _below(rng, net.subgraphs)
    return _same_number(net, slot, op), how


@inner
def _neighbour_slot(net, state, rng, op):
    """The slot of a producer or a consumer of the op, with what must come along from there."""
    inputs = net.input_offsets[op + 1] - net.input_offsets[op]
    outputs = net.output_offsets[op + 1] - net.output_offsets[op]
    if inputs + outputs == 0:
        return state.op_slot[op], ALONE
    pick = _below(rng, inputs + outputs)
    how = BETWEEN if rng.random() < 0.2 else ALONE
    if pick < inputs:
        other = net.tensor_producer[net.input_tensors[net.input_offsets[op] + pick]]
        if rng.random() < 0.7:
            how = UPSTREAM
    else:
        tensor = net.outputs[net.output_offsets[op] + pick - inputs]
        first, last = net.consumer_offsets[tensor], net.consumer_offsets[tensor + 1]
        if first == last:
            return state.op_slot[op], ALONE
        other = net.consumers[first + _below(rng, last - first)]
        if rng.random() < 0.7:
            how = DOWNSTREAM
    slot = state.op_slot[other]
    if net.op_way[other] != net.op_way[op]:
        slot = _same_number(net, slot, op)
    return slot, how


@inner
def _closure(net, state, scratch, first, op, slot, how):
    """List the op and what comes along from place `first` on; where they end."""
    search = scratch.searches[0]
    scratch.moved[first] = op
    scratch.mark[op] = search
    count = first + 1
    if how in (UPSTREAM, DOWNSTREAM):
        at = first
        while at < count:
            count = _spread(net, state, scratch, scratch.moved[at], op, count, how)
            at += 1
    elif how == BETWEEN:
        count = _between(net, state, scratch, count, op, slot)
    return count


@inner
def _spread(net, state, scratch, op, origin, count, how):
    """Add the op's producers or consumers in the slot of `origin` that are not listed yet."""
    search = scratch.searches[0]
    home = state.op_slot[origin]
    if how == UPSTREAM:
        for i in range(net.input_offsets[op], net.input_offsets[op + 1]):
            other = net.tensor_producer[net.input_tensors[i]]
            if state.op_slot[other] == home and scratch.mark[other] != search:
                scratch.mark[other] = search
                scratch.moved[count] = other
                count += 1
        return count
    for i in range(net.output_offsets[op], net.output_offsets[op + 1]):
        tensor = net.outputs[i]
        for j in range(net.consumer_offsets[tensor], net.consumer_offsets[tensor + 1]):
            other = net.consumers[j]
            if state.op_slot[other] == home and scratch.mark[other] != search:
                scratch.mark[other] = search
                scratch.moved[count] = other
                count += 1
    return count


@inner
def _between(net, state, scratch, count, op, slot):
    """List all on a path from the slot to the op, or from it to the slot, from `count` on."""
    search = scratch.searches[0]
    for way in (UPSTREAM, DOWNSTREAM):
        reached = _reach(net, scratch, op, way)
        # The queue holds what was reached in breadth-first order; walk it from the far end and
        # keep what leads on to the slot or to something kept.
        for at in range(reached - 1, 0, -1):
            other = scratch.queue[at]
            if state.op_slot[other] == slot or scratch.mark[other] == search:
                continue
            if _touches(net, state, scratch, other, slot, way):
                scratch.mark[other] = search
                scratch.moved[count] = other
                count += 1
    return count


@inner
def _reach(net, scratch, op, way):
    """Fill the queue with the op and all upstream or downstream of it; how many."""
    scratch.searches[1] += 1
    search = scratch.searches[1]
    scratch.queue[0] = op
    scratch.mark_back[op] = search
    size, at = 1, 0
    while at < size:
        op = scratch.queue[at]
        at += 1
        if way == UPSTREAM:
            for i in range(net.input_offsets[op], net.input_offsets[op + 1]):
                other = net.tensor_producer[net.input_tensors[i]]
                if scratch.mark_back[other] != search:
                    scratch.mark_back[other] = search
                    scratch.queue[size] = other
                    size += 1
            continue
        for i in range(net.output_offsets[op], net.output_offsets[op + 1]):
            tensor = net.outputs[i]
            for j in range(net.consumer_offsets[tensor], net.consumer_offsets[tensor + 1]):
                other = net.consumers[j]
                if scratch.mark_back[other] != search:
                    scratch.mark_back[other] = search
                    scratch.queue[size] = other
                    size += 1
    return size


@inner
def _touches(net, state, scratch, op, slot, way):
    """Whether the op's next ones that way are in the slot, or listed."""
    search = scratch.searches[0]
    if way == UPSTREAM:
        for i in range(net.input_offsets[op], net.input_offsets[op + 1]):
            other = net.tensor_producer[net.input_tensors[i]]
            if state.op_slot[other] == slot or scratch.mark[other] == search:
                return True
        return False
    for i in range(net.output_offsets[op], net.output_offsets[op + 1]):
        tensor = net.outputs[i]
        for j in range(net.consumer_offsets[tensor], net.consumer_offsets[tensor + 1]):
            other = net.consumers[j]
            if state.op_slot[other] == slot or scratch.mark[other] == search:
                return True
    return False


@inner
def _complete(net, atoms, state, scratch, first, slot, count, whole):
    """Add what cannot stay behind: whole atoms, or units whose rest is on another device."""
    per_device = 2 * net.subgraphs
    search = scratch.searches[0]
    device = slot // per_device
    at = first
    while at < count:
        op = scratch.moved[at]
        at += 1
        if whole:
            atom = atoms.of_op[op]
            for i in range(atoms.offsets[atom], atoms.offsets[atom + 1]):
                other = atoms.ops[i]
                if scratch.mark[other] != search and state.op_slot[other] // per_device != device:
                    scratch.mark[other] = search
                    scratch.moved[count] = other
                    count += 1
            continue
        unit = net.op_unit[op]
        for i in range(net.unit_offsets[unit], net.unit_offsets[unit + 1]):
            other = net.unit_ops[i]
            if scratch.mark[other] != search and state.op_slot[other] // per_device != device:
                scratch.mark[other] = search
                scratch.moved[count] = other
                count += 1
    return count


# -- room ------------------------------------------------------------------------------------


@kernel
def make_room(net, atoms, space, state, scratch, rng, count):
    """Send ops away from devices that `count` moves overfilled; how many moves there are then.

    Each goes with what must come along; one that has been moved stays where it is now, unless it
    has to come along.
    """
    device = _overfull(net, state, scratch, count)
    if device < 0:
        return count
    scratch.searches[0] += 1
    before = scratch.searches[0]  # what is marked from here on has been moved
    for i in range(count):
        scratch.mark[scratch.moved[i]] = before
    for _ in range(MOST_EJECTIONS):
        op = _one_on(net, space, state, scratch, rng, device, before)
        if op < 0:
            break
        slot, how = _neighbour_slot(net, state, rng, op)
        if rng.random() < SHARE_BACK:
            slot = scratch.old_slot[_below(rng, count)]
            slot = _same_number(net, slot, op)
        if slot // (2 * net.subgraphs) != device:
            count = _bring(net, atoms, state, scratch, count, op, slot, how, False)
        device = _overfull(net, state, scratch, count)
        if device < 0 or count + len(state.op_slot) > len(scratch.moved):
            break
    return count


@inner
def _overfull(net, state, scratch, count):
    """A device that a moved op is on and that overflows; -1 if there is none."""
    for i in range(count):
        device = state.op_slot[scratch.moved[i]] // (2 * net.subgraphs)
        if state.used[device] > net.device_memory[device]:
            return device
    return np.int64(-1)


@inner
def _one_on(net, space, state, scratch, rng, device, before):
    """A random movable op on the device that has not been moved, if one is soon drawn; or -1."""
    for _ in range(MOST_DRAWN):
        op = space.movable[_below(rng, len(space.movable))]
        if state.op_slot[op] // (2 * net.subgraphs) == device and scratch.mark[op] < before:
            return op
    return np.int64(-1)


@inner
def _exchange(net, space, state, scratch, rng):
    """Give two accelerators each other's ops, or two slots of one accelerator."""
    if len(space.accelerators) == 0:
        return 0
    per_device = 2 * net.subgraphs
    one = space.accelerators[_below(rng, len(space.accelerators))]
    two = space.accelerators[_below(rng, len(space.accelerators))]
    first = second = 0
    if net.subgraphs > 1 and rng.random() < 0.5:
        two = one
        first, second = _below(rng, net.subgraphs), _below(rng, net.subgraphs)
    if one == two and first == second:
        return 0
    count = 0
    for op in range(len(state.op_slot)):
        slot = state.op_slot[op]
        device, number = slot // per_device, slot % net.subgraphs
        target = -1
        if one != two and device in (one, two):
            target = (two if device == one else one) * per_device + slot % per_device
        elif one == two and device == one and number in (first, second):
            target = slot - number + (second if number == first else first)
        if target >= 0:
            scratch.moved[count] = op
            scratch.old_slot[count] = slot
            count += 1
            _put(net, state, op, target)
    return count
