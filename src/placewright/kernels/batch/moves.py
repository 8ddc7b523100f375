"""Changes that annealing draws: of the rows of a few units, and of the order of the ops.

Only a change of something on a critical path, a longest way from the beginning to the end of
everything, can shorten a schedule. So a share of the draws look for an op on one (as neighbourhoods
of job shops do: Nowicki & Smutnicki 1996); the others keep the rest in motion.
"""

from __future__ import annotations

import math

import numpy as np

from placewright.kernels.batch.changes import allowed, change, load
from placewright.kernels.batch.ejection import make_room
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.kernels.latency.moves import (
    MEAN_SHIFT,
    below,
    geometric,
    random_op,
    random_reader,
)
from placewright.kernels.latency.search import CURRENT

# Annealing's changes of rows, each up to its share of the draws.
CHUNK = 0.22  # one chunk of a unit to any device
SPLIT = 0.31  # a unit split in another way
BESIDE = 0.44  # a unit split like one it exchanges a tensor with
EXCHANGE = 0.53  # two units split like each other: what is full stays as full
SWAP = 0.57  # two chunks of a unit change places
COLUMN = 0.71  # one chunk of several units to one device
ROW = 0.86  # several units split like one of them, or all that are split alike like another
CHUNKS = 0.9  # two chunks of several units change places
# beyond: two devices of several units do: a change where the several begin and end, and not within
TO_THE_END = 0.3  # of those: as many as may be
ALIKE = 0.5  # of changes of several units, but for those along a path: only of units of equal rows
MANY = 200  # units: longer stretches are drawn as rarely as they take long to time
TRIES = 6  # how often a draw that looks for what is critical is made again


@inner
def is_critical(b, state, s, op, slack):
    """Whether a way through a batch of the op takes at most `slack` seconds less than everything.

    What was kept is settled: `s` has when its batches end, and their tails.
    """
    unit = b.op_unit[op]
    late = state.value[CURRENT] - slack
    found = False
    for c in range(state.rows.shape[1]):
        d = state.rows[unit, c]
        start = s.finish[s.kept_row[op], op, c] - b.time[op, b.kind[d], state.count[unit, d]]
        found |= start + s.tail[op, c] >= late
    return found


# -- rows -----------------------------------------------------------------------------------


@inner
def draw_split(space, state, lent, rng, unit):
    """The row to come: a random split of `unit`, chunks staying where they are if they can."""
    kind = space.unit_kind[unit]
    first, last = space.split_offsets[kind], space.split_offsets[kind + 1]
    split = first + below(rng, last - first)
    for d in range(len(lent.count)):
        lent.count[d] = space.splits[split, d]
    for c in range(len(lent.row)):
        d = state.rows[unit, c]
        lent.row[c] = -1
        if lent.count[d] > 0:
            lent.count[d] -= 1
            lent.row[c] = d
    d = 0
    for c in range(len(lent.row)):
        if lent.row[c] < 0:
            while lent.count[d] == 0:
                d += 1
            lent.count[d] -= 1
            lent.row[c] = d


@inner
def reassign(p, b, space, state, lent, s, rng, share, slack):
    """Split a few units in other ways and make room for them; returns the number of changes.

    A `share` of the draws look for what is critical, with `slack` as for `is_critical`.
    """
    place = _draw_place(b, space, state, s, rng, share, slack)
    made = _reassign(p, b, space, state, lent, rng, place)
    return make_room(b, space, state, lent, rng, made)


@inner
def _draw_place(b, space, state, s, rng, share, slack):
    """A place of `movable`; in a `share` of the draws of a unit with a critical op, if found."""
    place = below(rng, len(space.movable))
    if share > 0.0 and rng.random() < share:
        for _ in range(TRIES):
            if _has_critical(b, space, state, s, space.movable[place], slack):
                break
            place = below(rng, len(space.movable))
    return place


@inner
def _has_critical(b, space, state, s, unit, slack):
    for i in range(space.unit_offsets[unit], space.unit_offsets[unit + 1]):
        if is_critical(b, state, s, space.unit_ops[i], slack):
            return True
    return False


@inner
def _reassign(p, b, space, state, lent, rng, place):
    kind = rng.random()
    unit, chunks = space.movable[place], len(lent.row)
    if kind >= SWAP:
        return _reassign_several(p, b, space, state, lent, rng, kind, place)
    if BESIDE <= kind < EXCHANGE:
        return _exchange(b, space, state, lent, rng, place)
    if kind < CHUNK:
        load(state, lent, unit)
        lent.row[below(rng, chunks)] = below(rng, len(state.free))
        if not allowed(b, lent, unit):
            draw_split(space, state, lent, rng, unit)
    elif kind < SPLIT:
        draw_split(space, state, lent, rng, unit)
    elif kind < BESIDE:
        load(state, lent, b.op_unit[_neighbour(p, b, rng, random_op(space, rng, unit))])
    else:
        _swap(state, lent, unit, below(rng, chunks), below(rng, chunks))
    return change(b, state, lent, np.int64(0), unit)  # for a literal 0 it would be compiled anew


@inner
def _reassign_several(p, b, space, state, lent, rng, kind, place):
    """Change the unit at a place of `movable` and units that follow it, all in the same way."""
    unit, made = space.movable[place], np.int64(0)
    one, other = below(rng, len(lent.row)), below(rng, len(lent.row))
    device, other_device = below(rng, len(state.free)), below(rng, len(state.free))
    most = len(space.movable)
    if kind >= CHUNKS and most * rng.random() > MANY:
        most = MANY
    length = int(math.exp(rng.random() * math.log(most + 1.0)))  # orders of magnitude as likely
    if kind >= CHUNKS and rng.random() < TO_THE_END:
        length = most
    along_path = kind < ROW and rng.random() < 0.5  # a path may come by a unit again, and back
    alike = not along_path and rng.random() < ALIKE
    op = random_op(space, rng, unit)
    model = space.movable[below(rng, len(space.movable))] if alike else unit
    for k in range(length):
        if k == 0 or not alike or _was_first(state, lent, unit):
            if kind < COLUMN:
                load(state, lent, unit)
                lent.row[one] = device
            elif kind < ROW:
                load(state, lent, model)
            elif kind < CHUNKS:
                _swap(state, lent, unit, one, other)
            else:
                _swap_devices(state, lent, unit, device, other_device)
            made = change(b, state, lent, made, unit)
        if along_path:
            op = random_reader(p, rng, op)
            unit = b.op_unit[op]
        elif place + k + 1 < len(space.movable) and (made > 0 or not alike):
            unit = space.movable[place + k + 1]
        else:
            break
    return made


@inlined
def _was_first(state, lent, unit):
    """Whether the unit is split as the first that was changed had been."""
    same = True
    for c in range(len(lent.row)):
        same &= state.rows[unit, c] == lent.undo_row[0, c]
    return same


@inner
def _exchange(b, space, state, lent, rng, place):
    """Let the unit at a place of `movable` and another, near it or anywhere, change rows."""
    count = len(space.movable)
    if rng.random() < 0.5:
        shift = geometric(rng, MEAN_SHIFT)
        other = min(max(place + shift if rng.random() < 0.5 else place - shift, 0), count - 1)
    else:
        other = below(rng, count)
    one, two = space.movable[place], space.movable[other]
    load(state, lent, two)
    made = change(b, state, lent, np.int64(0), one)
    if made > 0:
        for c in range(len(lent.row)):
            lent.row[c] = lent.undo_row[0, c]
        made = change(b, state, lent, made, two)
    return made


@inlined
def _swap(state, lent, unit, one, other):
    load(state, lent, unit)
    lent.row[one], lent.row[other] = state.rows[unit, other], state.rows[unit, one]


@inlined
def _swap_devices(state, lent, unit, one, other):
    for c in range(len(lent.row)):
        d = state.rows[unit, c]
        lent.row[c] = other if d == one else one if d == other else d


@inner
def _neighbour(p, b, rng, op):
    """A producer of an input of the op, or a consumer of what it produces."""
    inputs = p.input_offsets[op + 1] - p.input_offsets[op]
    if inputs > 0 and rng.random() < 0.5:
        return b.producer[p.input_offsets[op] + below(rng, inputs)]
    return random_reader(p, rng, op)


# -- order -----------------------------------------------------------------------------------


@inner
def reorder(p, b, state, lent, s, rng, share, slack):
    """Move one op in the order, as far as its producers and consumers let it."""
    op = _draw_op(b, state, s, rng, share, slack)
    rank = state.op_rank[op]
    first, last = 0, len(state.op_at) - 1
    for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
        first = max(first, state.op_rank[b.producer[k]] + 1)
    for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
        tensor = p.outputs[k]
        for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
            last = min(last, state.op_rank[p.consumers[edge]] - 1)
    shift = geometric(rng, MEAN_SHIFT)
    target = rank + shift if rng.random() < 0.5 else rank - shift
    move(state, rank, min(max(target, first), last))
    lent.moved[0], lent.moved[1] = rank, state.op_rank[op]


@inner
def _draw_op(b, state, s, rng, share, slack):
    """An op; in a `share` of the draws a critical one, if found."""
    op = below(rng, len(state.op_rank))
    if share > 0.0 and rng.random() < share:
        for _ in range(TRIES):
            if is_critical(b, state, s, op, slack):
                break
            op = below(rng, len(state.op_rank))
    return op


@kernel
def move(state, source, target):
    """Take the op of rank `source` out of the order and put it in at `target`."""
    op = state.op_at[source]
    step = 1 if target > source else -1
    for rank in range(source, target, step):
        state.op_at[rank] = state.op_at[rank + step]
        state.op_rank[state.op_at[rank]] = rank
    state.op_at[target] = op
    state.op_rank[op] = target
