"""Annealing that changes what the makespan hangs on: ops without slack, and what they wait for.

A change is estimated from the blocks it touches (`multilevel_timing.window`); changes far from
each other are made one after another, and only then everything is timed. On 50,000 ops that is
some 30,000 changes a second, where timing everything for each allows 400.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from placewright.graph import Ints, Wide
from placewright.kernels.common.rows import copy_into
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.latency.ejection import make_room
from placewright.kernels.latency.moves import (
    MOVED,
    NOTHING,
    SWAPPED,
    assign,
    below,
    fits,
    geometric,
    move_block,
    mutate,
    note,
    reassign,
    reorder,
    restore_order,
    span,
    take_back,
)
from placewright.kernels.latency.multilevel_timing import CHECKPOINT, restore, settle, window

CURRENT, BEST, SETTLED = 0, 1, 2  # in State.value
INDIFFERENT = 1e-9  # of the makespan: a change of less is none
NEUTRAL_SHARE = 0.1  # of the changes that change nothing are made
# Everything is timed again after so many evaluations, or after about as many as take as long as
# that, or once so many changes are made that few blocks are left to change.
LEAST_BETWEEN = 32
RANKS_PER_EVALUATION = 25
RANKS_PER_CHANGE = 150
TOO_MUCH = 20.0  # temperatures above the best: what changes together may come out worse by

# What is changed, each up to its share of the draws.
CRITICAL_DEVICE = 0.45  # a run of critical ops, with their clusters, goes to another device
CRITICAL_ORDER = 0.8  # a critical op goes before what it waits for, or some way
ANY_DEVICE = 0.95  # as in `mutations.reassign`
# beyond: any op some way, as in `mutations.reorder`
MEAN_RUN = 4.0
MEAN_SHIFT = 12.0
WHOLE_SHARE = 0.3  # of the runs take all of a cluster along, not only what is on the same device


class Clusters(NamedTuple):
    """Units that belong together, on several scales."""

    cluster_of: Ints  # [scale, unit]; clusters of all scales are numbered together
    offsets: Wide  # CSR [cluster] → units
    units: Ints


@kernel
def improve(p, space, clusters, state, scratch, timing, rng, evaluations, temperature):
    """Annealing at one `temperature` (seconds) from the current order, for which `timing` is right.

    A change for the worse by Δ is made with probability exp(-Δ / temperature), of those that
    change nothing only a few. Changes are estimated, and made as long as they are far enough from
    each other; then everything is timed. One that comes to nothing or overflows a memory counts
    as an evaluation too.
    """
    n = len(state.op_at)
    every = max(LEAST_BETWEEN, n // RANKS_PER_EVALUATION)
    first, pending, since = n, 0, 0
    for _ in range(evaluations):
        since += 1
        if pending > 0 and (since >= every or pending * RANKS_PER_CHANGE > n):
            _settle(p, space, state, timing, first, temperature)
            first, pending, since = n, 0, 0
        scratch.reordered[0] = NOTHING
        count = _propose(p, space, clusters, state, scratch, timing, rng)
        if count == 0 and scratch.reordered[0] == NOTHING:
            continue
        count = make_room(space, state, scratch, rng, count)
        if fits(state, scratch, count):
            ranks = _touched(p, space, state, scratch, timing, count)
            more = _estimate(p, space, state, timing, ranks)
            better = more < -INDIFFERENT * state.value[SETTLED]
            if better or (
                more <= -temperature * math.log(1.0 - rng.random())
                and (more > INDIFFERENT * state.value[SETTLED] or rng.random() < NEUTRAL_SHARE)
            ):
                state.value[CURRENT] += more
                _mark(timing, ranks)
                first = min(first, timing.touched[0])
                pending += 1
                continue
        take_back(space, state, scratch, count)
        restore_order(space, state, scratch)
    if pending > 0:
        _settle(p, space, state, timing, first, temperature)


@inner
def _settle(p, space, state, timing, first, temperature):
    """Time everything; back to the best if the changes together come out far worse than it."""
    timing.changed[:] = False
    value = settle(p, space, state, timing, first)
    if value > state.value[BEST] * (1.0 + INDIFFERENT) + TOO_MUCH * temperature:
        return_to_best(space, state)
        value = settle(p, space, state, timing, np.int64(0))  # of a literal: compiled once more
    keep(state, value)


@kernel
def return_to_best(space, state):
    """Devices and order are those of the best; they still have to be timed."""
    for unit in space.movable:
        if state.unit_device[unit] != state.best_unit_device[unit]:
            assign(space, state, unit, state.best_unit_device[unit])
    copy_into(state.sequence, state.best_sequence)
    place = 0
    for rank in range(len(state.op_at)):
        op = state.sequence[place]
        state.op_at[rank] = op
        state.op_rank[op] = rank
        state.block_start[rank] = place
        place += space.block_length[op]


@inner
def _estimate(p, space, state, timing, ranks):
    """Seconds that changing the blocks at the touched ranks adds to the makespan, or `inf`.

    Blocks far from each other are looked at apart, and what each change adds is added up. `inf`
    if others nearby have been changed since everything was timed.
    """
    settled = state.value[SETTLED]
    k = 0
    while k < ranks:
        end = _window_end(timing, ranks, k)
        for checkpoint in range(
            timing.touched[k] // CHECKPOINT, timing.touched[end - 1] // CHECKPOINT + 1
        ):
            if timing.changed[checkpoint]:
                return np.inf
        k = end
    more = 0.0
    k = 0
    while k < ranks:
        end = _window_end(timing, ranks, k)
        value = window(p, space, state, timing, timing.touched[k], timing.touched[end - 1])
        more += value - settled
        k = end
    k = 0
    while k < ranks:
        end = _window_end(timing, ranks, k)
        restore(space, state, timing, timing.touched[k], timing.touched[end - 1])
        k = end
    return more


@inner
def _window_end(timing, ranks, k):
    """Behind the last of the touched ranks that are near those from position `k` on."""
    k += 1
    while k < ranks and timing.touched[k] // CHECKPOINT <= timing.touched[k - 1] // CHECKPOINT + 1:
        k += 1
    return k


@inner
def _mark(timing, ranks):
    for k in range(ranks):
        timing.changed[timing.touched[k] // CHECKPOINT] = True


@kernel
def keep(state, value):
    """Take the current devices and order, whose value is `value`, and perhaps for the best."""
    state.value[CURRENT] = state.value[SETTLED] = value
    if value < state.value[BEST]:
        state.value[BEST] = value
        copy_into(state.best_unit_device, state.unit_device)
        copy_into(state.best_sequence, state.sequence)


@inner
def _touch(timing, ranks, rank):
    if timing.is_touched[rank]:
        return ranks
    timing.is_touched[rank] = True
    timing.touched[ranks] = rank
    return ranks + 1


@inner(allocates=True)  # sorting does
def _touched(p, space, state, scratch, timing, count):
    """Writes the ranks whose blocks a change concerns, rising; returns how many."""
    ranks = 0
    for c in range(count):
        unit = scratch.undo_unit[c]
        for k in range(space.unit_offsets[unit], space.unit_offsets[unit + 1]):
            op = space.unit_ops[k]
            ranks = _touch(timing, ranks, state.op_rank[op])
            for i in range(p.input_offsets[op], p.input_offsets[op + 1]):
                ranks = _touch(timing, ranks, state.op_rank[p.edge_producer[p.inputs[i]]])
    if scratch.reordered[0] == MOVED:
        one, two = scratch.reordered[1], scratch.reordered[2]
        for rank in range(min(one, two), max(one, two) + 1):
            ranks = _touch(timing, ranks, rank)
    elif scratch.reordered[0] == SWAPPED:
        edge = -1 - state.sequence[scratch.reordered[1]]
        ranks = _touch(timing, ranks, state.op_rank[p.edge_producer[edge]])
    for k in range(ranks):
        timing.is_touched[timing.touched[k]] = False
    timing.touched[:ranks].sort()
    return ranks


@inner
def _propose(p, space, clusters, state, scratch, timing, rng):
    """Make a change; returns how many units have another device (the order may be another too)."""
    kind = rng.random()
    if len(space.movable) == 0:
        kind = CRITICAL_DEVICE + kind * (CRITICAL_ORDER - CRITICAL_DEVICE)
    if kind < CRITICAL_DEVICE:
        return _move_run(p, space, clusters, state, scratch, timing, rng)
    if kind < CRITICAL_ORDER:
        _hasten(p, space, state, scratch, timing, rng)
        return 0
    if kind < ANY_DEVICE:
        return reassign(p, space, state, scratch, rng)
    reorder(p, space, state, scratch, rng)
    return 0


@inner
def _move_run(p, space, clusters, state, scratch, timing, rng):
    """A critical op and some critical ops behind it on its device go to another."""
    k = below(rng, timing.critical_count[0])
    op = timing.critical[k]
    here = state.device[op]
    target = _elsewhere(p, state, rng, op) if rng.random() < 0.5 else below(rng, len(state.free))
    if target == here:
        return 0
    count = 0
    scale = below(rng, len(clusters.cluster_of))
    whole = rng.random() < WHOLE_SHARE
    for _ in range(geometric(rng, MEAN_RUN)):
        if state.device[op] == here:
            cluster = clusters.cluster_of[scale, space.op_unit[op]]
            for m in range(clusters.offsets[cluster], clusters.offsets[cluster + 1]):
                unit = clusters.units[m]
                if whole or state.unit_device[unit] == here:
                    count = mutate(space, state, scratch, count, unit, target)
        k += 1
        if k >= timing.critical_count[0]:
            break
        op = timing.critical[k]
    return count


@inner
def _elsewhere(p, state, rng, op):
    """The device of a random producer or consumer of the op, rather of another device."""
    inputs = p.input_offsets[op + 1] - p.input_offsets[op]
    outputs = p.output_offsets[op + 1] - p.output_offsets[op]
    found = state.device[op]
    for _ in range(4):
        if inputs + outputs == 0:
            break
        k = below(rng, inputs + outputs)
        if k < inputs:
            found = state.device[p.edge_producer[p.inputs[p.input_offsets[op] + k]]]
        else:
            tensor = p.outputs[p.output_offsets[op] + k - inputs]
            readers = p.consumer_offsets[tensor + 1] - p.consumer_offsets[tensor]
            if readers > 0:
                found = state.device[p.consumers[p.consumer_offsets[tensor] + below(rng, readers)]]
        if found != state.device[op]:
            break
    return found


@inner
def _hasten(p, space, state, scratch, timing, rng):
    """A critical op goes before the critical one that comes before it, or some ranks away."""
    k = below(rng, timing.critical_count[0])
    op = timing.critical[k]
    rank = state.op_rank[op]
    earliest, latest = span(p, state, op)
    kind = rng.random()
    if kind < 0.4 and k > 0:
        before = state.op_rank[timing.critical[k - 1]]
        target = max(earliest, before)
    elif kind < 0.75:
        target = max(earliest, rank - geometric(rng, MEAN_SHIFT))
    else:
        target = min(latest, rank + geometric(rng, MEAN_SHIFT))
    if target != rank:
        move_block(space, state, scratch, rank, target)
        note(scratch, MOVED, rank, target)
