"""Steepest descent on the time per input: the best move of one piece until none helps."""

from __future__ import annotations

from placewright.kernels.compiled import inner, kernel
from placewright.kernels.throughput.loads import move, refill, settle, value

REFILL_EVERY = 64  # moves after which sums are taken afresh
HELPS = 1 - 1e-12  # of the value: where a move helps by more than rounding


@kernel
def descend(p, state, movable, most_tried):
    """Make best moves of pieces in `movable` until none helps, or `most_tried` were tried.

    Returns how many were tried; ``-1 - tried`` if the limit stopped it.
    """
    tried = made = 0
    current = value(state)
    while True:
        best_piece, best_device, best = -1, -1, current * HELPS
        for k in range(len(movable)):
            if tried >= most_tried:
                return -1 - tried
            piece = movable[k]
            origin = state.piece_device[piece]
            for device in range(len(state.used)):
                if device == origin or not p.allowed[piece, p.device_class[device]]:
                    continue
                if state.used[device] + p.memory[piece] > p.device_memory[device]:
                    continue
                _put(p, state, piece, device)
                found = value(state)
                tried += 1
                if found < best:
                    best_piece, best_device, best = piece, device, found
            if state.piece_device[piece] != origin:
                _put(p, state, piece, origin)
        if best_piece < 0:
            return tried
        _put(p, state, best_piece, best_device)
        made += 1
        if made % REFILL_EVERY == 0:
            refill(p, state)
        current = value(state)


@inner
def _put(p, state, piece, device):
    move(p, state, piece, device)
    settle(p, state)
