"""Ejection chains: a change that overfills a device sends others away from it (Glover 1996).

Where devices are full a unit goes nowhere unless another makes room for it. What is sent away
follows in the sequence on what is next to it on another device, or on anything, so that stretches
of a chain shift; it goes to where the change came from, so that units change places, to the device
beside it in the sequence, or to any; and may send others away from there in turn.
"""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import inner, kernel
from placewright.kernels.latency.moves import below, fits, mutate

MOST_LINKS = 4  # devices from which others are sent away, one after another
MOST_SCANNED = 4096  # items of the sequence, for what one device sends away
BORDER = 0.6  # of the draws: what is next to another device in the sequence
# Where it goes, each up to its share of the draws; beyond, to any device.
BACK = 0.4  # to where a unit of the change was
BESIDE = 0.8  # to the device next to it in the sequence


@kernel
def make_room(space, state, scratch, rng, count):
    """Send units away from devices that `count` changes overfilled; how many changes there are.

    `moves.fits` says whether that was enough. No unit is changed twice.
    """
    if fits(state, scratch, count):
        return count
    for k in range(count):
        scratch.changed[scratch.undo_unit[k]] = True
    for _ in range(MOST_LINKS):
        device = _overfull(state, scratch, count)
        if device < 0:
            break
        before = count
        count = _send_away(space, state, scratch, rng, count, device)
        if state.free[device] < 0.0 or count == before:
            break
    for k in range(count):
        scratch.changed[scratch.undo_unit[k]] = False
    return count


@inner
def _overfull(state, scratch, count):
    """A device that a change went to and that overflows; -1 if there is none."""
    for k in range(count):
        device = state.unit_device[scratch.undo_unit[k]]
        if state.free[device] < 0.0:
            return np.int64(device)
    return np.int64(-1)


@inner
def _send_away(space, state, scratch, rng, count, device):
    """Units of `device` that follow each other in the sequence go elsewhere until it fits."""
    length = len(state.sequence)
    place, step = below(rng, length), 1 if rng.random() < 0.5 else -1
    at_border, kind = rng.random() < BORDER, rng.random()
    target = np.int64(-1)
    if kind < BACK:
        target = np.int64(scratch.undo_device[below(rng, count)])
    elif kind >= BESIDE:
        target = np.int64(below(rng, len(state.free)))
    beside = np.int64(-1)
    for _ in range(min(length, MOST_SCANNED)):
        item = state.sequence[place]
        place = (place + step) % length
        if item < 0:
            continue
        if state.device[item] != device:
            beside = np.int64(state.device[item])
            continue
        unit = space.op_unit[item]
        if scratch.changed[unit] or (at_border and beside < 0):
            continue
        if target < 0:
            target = beside
        if target < 0 or target == device:
            target = _another(state, rng, device)
        before = count
        count = mutate(space, state, scratch, count, unit, target)
        if count > before:
            scratch.changed[unit] = True
            if state.free[device] >= 0.0:
                break
    return count


@inner
def _another(state, rng, device):
    """Any device but this one."""
    other = np.int64(below(rng, len(state.free) - 1))
    return other + 1 if other >= device else other
