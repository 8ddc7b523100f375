"""Search on strings of devices, one per unit and chunk of inputs (DiviML §V-A, batched).

As `kernels.latency.search`: kernels work on a `State` in place, stop after so many evaluations and
go on where they stopped; random numbers are drawn one by one from the caller's generator. What
annealing's changes overfill makes room (`ejection`).
"""

from __future__ import annotations

import math

import numpy as np

from placewright.kernels.batch.changes import allowed, change, has_room, load, take_back
from placewright.kernels.batch.moves import draw_split, move, reassign, reorder
from placewright.kernels.batch.tails import find_tails
from placewright.kernels.batch.timing import commit, retime, settle
from placewright.kernels.common.rows import copy_into, copy_table
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.latency.moves import below
from placewright.kernels.latency.search import BEST, COLDEST, CURRENT

SLACK = 1.0  # temperatures that the way through a critical batch may take less than the longest


@kernel
def keep(state, value):
    """Take the current string, whose value is `value`, for the current and perhaps the best."""
    state.value[CURRENT] = value
    if value < state.value[BEST]:
        state.value[BEST] = value
        copy_table(state.best_rows, state.rows)
        copy_into(state.best_op_at, state.op_at)


@inner
def _extent(p, b, space, state, lent, made):
    """Places of the order that a mutation concerns: ``(first, lowest, last)``.

    The first at which it may make a difference to when something happens; the lowest of the ops
    changed and their producers; the last of the ops changed.
    """
    if made == 0:
        first, last = min(lent.moved[0], lent.moved[1]), max(lent.moved[0], lent.moved[1])
        return first, first, last
    first, lowest, last = np.int64(len(state.op_at)), np.int64(len(state.op_at)), np.int64(0)
    for k in range(made):
        unit = lent.undo_unit[k]
        for i in range(space.unit_offsets[unit], space.unit_offsets[unit + 1]):
            op = space.unit_ops[i]
            place = state.op_rank[op]
            first, last = min(first, place), max(last, place)
            for j in range(p.input_offsets[op], p.input_offsets[op + 1]):
                lowest = min(lowest, state.op_rank[b.producer[j]])
    lowest = min(lowest, first)
    return lowest if b.together else first, lowest, last  # together: sent to where the op is


@inner
def _kept_within(p, b, space, state, lent, s, made, limit):
    """Time the string after so many changes; whether it ends by `limit`, and then it is kept."""
    first, lowest, last = _extent(p, b, space, state, lent, made)
    shared = p, b, state.rows, state.op_at, state.op_rank
    value = retime(*shared, first, last, limit, lent.more, s)
    if value > limit:
        return False
    keep(state, value)
    commit(state.op_at, first, lent.more, value, s)
    find_tails(*shared, lowest, last, s)
    return True


# -- walks -----------------------------------------------------------------------------------


@kernel
def anneal(
    p, b, space, state, lent, s, rng, evaluations, temperature, cooling, order_share, critical_share
):
    """Simulated annealing; returns the temperature (seconds) it ends with (`search.anneal`).

    An `order_share` of the changes are of the order, the others of rows; a `critical_share` of
    either look for an op on a critical path, or on a path about a temperature shorter.
    How much worse the next string may be is drawn before it is timed, so that it need not be timed
    to the end.
    """
    settle(p, b, state.rows, state.op_at, state.op_rank, s)
    for _ in range(evaluations):
        temperature = max(temperature * cooling, COLDEST)
        made = 0
        lent.moved[:] = 0
        lent.more[:] = 0.0
        if order_share > 0.0 and rng.random() < order_share:
            reorder(p, b, state, lent, s, rng, critical_share, SLACK * temperature)
        else:
            made = reassign(p, b, space, state, lent, s, rng, critical_share, SLACK * temperature)
        if made == 0 and lent.moved[0] == lent.moved[1]:
            continue
        if has_room(state):
            limit = state.value[CURRENT] - temperature * math.log(1.0 - rng.random())
            if _kept_within(p, b, space, state, lent, s, made, limit):
                continue
        take_back(b, state, lent, made)
        move(state, lent.moved[1], lent.moved[0])
    return temperature


@kernel
def mean_worsening(p, b, space, state, lent, s, rng, evaluations):
    """Mean seconds by which those of so many mutations that are worse are; 0 if none is."""
    settle(p, b, state.rows, state.op_at, state.op_rank, s)
    total, found = 0.0, 0
    for _ in range(evaluations):
        lent.more[:] = 0.0
        made = reassign(p, b, space, state, lent, s, rng, 0.0, 0.0)
        if made > 0 and has_room(state):
            first, _, last = _extent(p, b, space, state, lent, made)
            value = retime(
                p, b, state.rows, state.op_at, state.op_rank, first, last, np.inf, lent.more, s
            )
            worse = value - state.value[CURRENT]
            if worse > 0.0:
                total += worse
                found += 1
        take_back(b, state, lent, made)
    return total / found if found > 0 else 0.0


@kernel
def evolve(p, b, space, state, lent, s, rng, evaluations):
    """(1+1) EA: each chunk of each unit gets another device with probability 1 / their number.

    A unit whose chunks then make sizes that are not allowed gets a random split instead. A child
    equal to its parent or without room counts as evaluated.
    """
    settle(p, b, state.rows, state.op_at, state.op_rank, s)
    chunks = len(lent.row)
    genes = len(space.movable) * chunks
    log_stay = math.log(1.0 - 1.0 / genes) if genes > 1 else -math.inf
    for _ in range(evaluations):
        made = np.int64(0)
        lent.more[:] = 0.0
        unit = np.int32(-1)  # as `movable` has them: for literals all below is compiled again
        gene = -1
        while True:
            # How many genes stay as they are until the next one that changes.
            gene += 1 + int(min(math.log(1.0 - rng.random()) / log_stay, float(genes)))
            if unit >= 0 and (gene >= genes or space.movable[gene // chunks] != unit):
                if not allowed(b, lent, unit):
                    draw_split(space, state, lent, rng, unit)
                made = change(b, state, lent, made, unit)
                unit = np.int32(-1)
            if gene >= genes:
                break
            if unit < 0:
                unit = space.movable[gene // chunks]
                load(state, lent, unit)
            other = below(rng, len(state.free) - 1)
            here = lent.row[gene % chunks]
            lent.row[gene % chunks] = other if other < here else other + 1
        if made == 0:
            continue
        if has_room(state) and _kept_within(
            p, b, space, state, lent, s, made, state.value[CURRENT]
        ):
            continue
        take_back(b, state, lent, made)
