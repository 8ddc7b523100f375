"""Timing one sequence under many samples of the costs at once, and searching for a robust one.

A sample multiplies every op's and every transfer's time by a factor of its own. Samples lie side
by side in blocks of `LANES`, so that one walk through the sequence times a whole block with
vector instructions: factors are ``op_factor[block, op, lane]`` and ``edge_factor[block, edge,
lane]``, the lanes beyond the last sample being ones that nobody looks at.

A candidate is dropped as soon as more samples are above the value it must not exceed than may
be above a percentile (racing); the outcome is that of timing them all.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.latency.moves import (
    below,
    fits,
    geometric,
    reassign,
    take_back,
)
from placewright.kernels.latency.passing import LENGTH, move_item, move_op, undo_order
from placewright.kernels.latency.search import COLDEST, CURRENT, keep

LANES = 32

# What a mutation changes, each up to its share of the draws; beyond: devices and order at once.
DEVICES = 0.45
ORDER = 0.9
TRANSFER_SHARE = 0.25  # of the changes of order: a transfer rather than an op
MEAN_PASSES = 3.0  # ops of its device, or transfers, that an item changes places with
TRIES = 8  # draws until an edge is a transfer


class Samples(NamedTuple):
    """The factors of all samples, and which percentile counts."""

    op_factor: Floats  # [block, op, lane]
    edge_factor: Floats  # [block, edge, lane]
    size: int  # how many
    rank: float  # of the percentile among the samples in order, from 0: share · (count - 1)


class State(NamedTuple):
    """Where a search is: written by the kernels."""

    device: Ints  # [op]
    unit_device: Ints  # [unit]
    free: Floats  # [device] bytes
    sequence: Ints
    position: Ints  # [op, then edge] where it is in the sequence
    value: Floats  # [CURRENT], [BEST] seconds
    best_unit_device: Ints
    best_sequence: Ints


class Scratch(NamedTuple):
    """What timing a block needs per lane, and what is needed to take a mutation back."""

    op_ready: Floats  # [op, lane]
    op_finish: Floats  # [op, lane]
    sent: Flags  # [edge] its tensor is on its way already
    device_free: Floats  # [device, lane]
    channel_free: Floats  # [channel, lane]
    start: Floats  # [lane]
    makespan: Floats  # [block, lane]
    undo_unit: Ints
    undo_device: Ints
    undo_sequence: Ints  # see `passing`, as for `saved` and `kept`
    saved: Wide
    kept: Ints


# -- timing ----------------------------------------------------------------------------------


@kernel
def time_block(p, device, sequence, op_factor, edge_factor, scratch, makespan):
    """Write the makespan of each lane into ``makespan[lane]``; see `timing.time_sequence`.

    The factors are those of one block: [op, lane] and [edge, lane]. Where one transfer serves
    several edges, its factor is that of the first of them by number.
    """
    op_ready, op_finish, start = scratch.op_ready, scratch.op_finish, scratch.start
    device_free, channel_free = scratch.device_free, scratch.channel_free
    op_ready[:] = 0.0
    device_free[:] = 0.0
    channel_free[:] = 0.0
    if p.by_tensor:
        scratch.sent[:] = False
    # The width as an array's, not the constant: loops of unknown length are vectorised, those of
    # a short known one are unrolled instead.
    device_count, lanes = device_free.shape
    for item in sequence:
        if item >= 0:
            d = device[item]
            seconds = p.op_time[item, d]
            for k in range(lanes):
                ready, free = op_ready[item, k], device_free[d, k]
                finish = (ready if ready > free else free) + seconds * op_factor[item, k]
                op_finish[item, k] = finish
                device_free[d, k] = finish
            continue
        edge = -1 - item
        producer, consumer = p.edge_ends[edge, 0], p.edge_ends[edge, 1]
        shared = p.edge_ends[edge, 2]
        source, target = device[producer], device[consumer]
        if source == target:
            for k in range(lanes):
                ready, there = op_ready[consumer, k], op_finish[producer, k]
                op_ready[consumer, k] = there if there > ready else ready
            continue
        if shared >= 0 and scratch.sent[edge]:
            continue
        for k in range(lanes):
            start[k] = op_finish[producer, k]
        pair = source * device_count + target
        first, last = p.channel_offsets[pair], p.channel_offsets[pair + 1]
        for c in range(first, last):
            channel = p.channels[c]
            for k in range(lanes):
                begin, free = start[k], channel_free[channel, k]
                start[k] = free if free > begin else begin
        named = edge
        if shared >= 0:
            for other in range(p.consumer_offsets[shared], p.consumer_offsets[shared + 1]):
                if device[p.consumers[other]] == target:
                    named = min(named, other)
                    scratch.sent[other] = True
        seconds = (
            p.link_latency[source, target]
            + p.edge_bytes[edge] * p.link_seconds_per_byte[source, target]
        )
        for k in range(lanes):
            start[k] += seconds * edge_factor[named, k]
        for c in range(first, last):
            channel = p.channels[c]
            for k in range(lanes):
                channel_free[channel, k] = start[k]
        if shared >= 0:
            for other in range(p.consumer_offsets[shared], p.consumer_offsets[shared + 1]):
                reader = p.consumers[other]
                if device[reader] == target:
                    for k in range(lanes):
                        ready, there = op_ready[reader, k], start[k]
                        op_ready[reader, k] = there if there > ready else ready
        else:
            for k in range(lanes):
                ready, there = op_ready[consumer, k], start[k]
                op_ready[consumer, k] = there if there > ready else ready
    makespan[:] = 0.0
    for d in range(device_count):
        for k in range(lanes):
            latest, free = makespan[k], device_free[d, k]
            makespan[k] = free if free > latest else latest


@kernel
def percentile_within(p, samples, device, sequence, scratch, limit):
    """The percentile of the makespan, in seconds, or inf if it is above `limit`.

    Interpolated between the two samples around its rank, as NumPy does. The makespans are left
    in ``scratch.makespan`` where all were needed.
    """
    lower = int(samples.rank)
    may_exceed = samples.size - 1 - lower  # one more, and the lower of the two is above too
    exceeding = 0
    for block in range(len(samples.op_factor)):
        makespan = scratch.makespan[block]
        time_block(
            p, device, sequence, samples.op_factor[block], samples.edge_factor[block],
            scratch, makespan,
        )  # fmt: skip
        for k in range(min(LANES, samples.size - block * LANES)):
            if makespan[k] > limit:
                exceeding += 1
        if exceeding > may_exceed:
            return np.inf
    value = _percentile(scratch.makespan, samples.size, samples.rank)
    return value if value <= limit else np.inf


@inner(allocates=True)
def _percentile(makespan, count, rank):
    ordered = np.sort(makespan.ravel()[:count])
    lower = int(rank)
    upper = min(lower + 1, count - 1)
    share, step = rank - lower, ordered[upper] - ordered[lower]
    if share >= 0.5:
        return ordered[upper] - step * (1.0 - share)
    return ordered[lower] + step * share


# -- search ----------------------------------------------------------------------------------


@kernel
def anneal(p, space, samples, state, scratch, rng, evaluations, temperature, cooling):
    """Simulated annealing on the percentile; returns the temperature it ends with.

    Before each evaluation the temperature (seconds) is multiplied by `cooling`. How much worse a
    mutation may be is drawn before it is timed, so that racing knows when to stop. One that
    changes nothing or overflows a memory counts as an evaluation too.
    """
    for _ in range(evaluations):
        temperature = max(temperature * cooling, COLDEST)
        scratch.saved[LENGTH] = 0
        kind, count = rng.random(), 0
        if len(space.movable) > 0 and (kind < DEVICES or kind >= ORDER):
            count = reassign(p, space, state, scratch, rng)
        if kind >= DEVICES:
            reorder(p, state, scratch, rng)
        if count == 0 and scratch.saved[LENGTH] == 0:
            continue
        if fits(state, scratch, count):
            limit = state.value[CURRENT] - temperature * math.log(1.0 - rng.random())
            value = percentile_within(p, samples, state.device, state.sequence, scratch, limit)
            if value <= limit:
                keep(state, value)
                continue
        undo_order(state, scratch)
        take_back(space, state, scratch, count)
    return temperature


# -- order -----------------------------------------------------------------------------------


@inner
def reorder(p, state, scratch, rng):
    """Move an op past a few of its device's ops, or a transfer past a few others, if it may."""
    if p.channel_count > 0 and rng.random() < TRANSFER_SHARE:
        _move_transfer(p, state, scratch, rng)
    else:
        op = below(rng, len(state.device))
        passes = geometric(rng, MEAN_PASSES)
        step = 1 if rng.random() < 0.5 else -1
        move_op(p, state, scratch, op, step, passes, len(state.sequence))


@inner
def _move_transfer(p, state, scratch, rng):
    """An edge between two devices goes past others, between its producer and its consumer."""
    edges = len(p.consumers)
    if edges == 0:
        return
    edge = below(rng, edges)
    for _ in range(TRIES):
        if _remote(p, state, edge):
            break
        edge = below(rng, edges)
    passes = geometric(rng, MEAN_PASSES)
    later = rng.random() < 0.5
    if not _remote(p, state, edge):
        return
    here = state.position[len(state.device) + edge]
    way = 1 if later else -1
    end = state.position[p.edge_ends[edge, 1 if later else 0]]
    target = here
    for at in range(here + way, end, way):
        item = state.sequence[at]
        if item < 0 and _remote(p, state, -1 - item):
            target = at
            passes -= 1
            if passes == 0:
                break
    if target != here:
        move_item(state, scratch, here, target)


@inner
def _remote(p, state, edge):
    return state.device[p.edge_ends[edge, 0]] != state.device[p.edge_ends[edge, 1]]
