"""Steepest descent on the time per input: the best move of one unit until none helps."""

from __future__ import annotations

from placewright.kernels.compiled import kernel
from placewright.kernels.throughput.max_load import move, refill, value

REFILL_EVERY = 64  # moves after which sums are taken afresh


@kernel
def descend(p, state, movable, most_tried):
    """Make best moves of units in `movable` until none helps, or `most_tried` were tried.

    Returns how many were tried; ``-1 - tried`` if the limit stopped it. A move helps if the
    value falls by more than rounding.
    """
    tried = made = 0
    current = value(p, state)
    while True:
        best_unit, best_device, best = -1, -1, current * (1 - 1e-12)
        for k in range(len(movable)):
            if tried >= most_tried:
                return -1 - tried
            unit = movable[k]
            origin = state.unit_device[unit]
            for device in range(p.allowed.shape[1]):
                if device == origin or not p.allowed[unit, device]:
                    continue
                if p.memory[unit] > state.free[device]:
                    continue
                move(p, state, unit, device)
                found = value(p, state)
                tried += 1
                if found < best:
                    best_unit, best_device, best = unit, device, found
            if state.unit_device[unit] != origin:
                move(p, state, unit, origin)
        if best_unit < 0:
            return tried
        move(p, state, best_unit, best_device)
        made += 1
        if made % REFILL_EVERY == 0:
            refill(p, state)
        current = value(p, state)
