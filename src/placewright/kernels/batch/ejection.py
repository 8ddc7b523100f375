"""Ejection chains: a change that overfills a device sends units away from it (Glover 1996).

As `kernels.latency.ejection` for batches, where a device keeps a unit once however many chunks it
computes of it. So what a unit computes on a full device mostly goes to another that keeps the unit
too, which takes no memory; or to where the change came from, so that units change places; or to
any device, and may send others away from there in turn. What is sent away is near the change in the
order, so that little is timed anew.
"""

from __future__ import annotations

import numpy as np

from placewright.kernels.batch.changes import change, has_room, load
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.latency.moves import below

MOST_LINKS = 4  # devices from which units are sent away, one after another
MOST_SCANNED = 4096  # ops of the order, for what one device sends away
ENOUGH = 0.5  # of the draws: only units each of which makes room enough by itself
# Where they go, each up to its share of the draws; beyond, to any device.
WITHIN = 0.5  # to another device that keeps the unit, if there is one
BACK = 0.75  # to where a unit of the change was


@kernel
def make_room(b, space, state, lent, rng, made):
    """Send units away from devices that `made` changes overfilled; how many changes there are.

    `has_room` says whether that was enough. What the changes concerned stays as they made it, and
    no unit is sent away twice.
    """
    if made == 0 or has_room(state):
        return made
    for k in range(made):
        lent.changed[lent.undo_unit[k]] = True
    for _ in range(MOST_LINKS):
        device = _overfull(state)
        if device < 0:
            break
        before = made
        made = _send_away(b, space, state, lent, rng, made, device)
        if state.free[device] < 0.0 or made == before:
            break
    for k in range(made):
        lent.changed[lent.undo_unit[k]] = False
    return made


@inner
def _overfull(state):
    """The first device that overflows; -1 if there is none."""
    for d in range(len(state.free)):
        if state.free[d] < 0.0:
            return np.int64(d)
    return np.int64(-1)


@inner
def _send_away(b, space, state, lent, rng, made, device):
    """Units near a change compute elsewhere what they did on `device`, until it fits."""
    op_at, op_unit, unit_memory, count = state.op_at, b.op_unit, b.unit_memory, state.count
    length = len(op_at)
    unit = lent.undo_unit[below(rng, made)]
    place = np.int64(state.op_rank[space.unit_ops[space.unit_offsets[unit]]])
    step = 1 if rng.random() < 0.5 else -1
    enough, kind = rng.random() < ENOUGH, rng.random()
    goal = np.int64(-1)
    if kind >= BACK:
        goal = np.int64(below(rng, len(state.free)))
    elif kind >= WITHIN:
        goal = np.int64(lent.undo_row[below(rng, made), below(rng, len(lent.row))])
    for _ in range(min(length, MOST_SCANNED)):
        unit = op_unit[op_at[place]]
        place += step  # and round: to divide takes longer than to look
        if place == length:
            place -= length
        elif place < 0:
            place += length
        memory = unit_memory[unit]
        if count[unit, device] == 0 or memory == 0.0 or lent.changed[unit]:
            continue
        if enough and state.free[device] + memory < 0.0:
            continue
        if made == len(lent.undo_unit):  # the change came by some units more than once
            break
        target = goal if goal >= 0 else _within(state, lent, rng, unit, device)
        load(state, lent, unit)
        for c in range(len(lent.row)):
            if lent.row[c] == device:
                lent.row[c] = target
        before = made
        made = change(b, state, lent, made, unit)
        if made > before:
            lent.changed[unit] = True
            if state.free[device] >= 0.0:
                break
    return made


@inner
def _within(state, lent, rng, unit, device):
    """A device other than this one that computes a chunk of the unit; any where none does."""
    chunks = len(lent.row)
    first = below(rng, chunks)
    for c in range(chunks):
        other = state.rows[unit, (first + c) % chunks]
        if other != device:
            return np.int64(other)
    return np.int64(below(rng, len(state.free)))
