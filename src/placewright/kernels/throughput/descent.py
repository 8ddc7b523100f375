"""Steepest descent on the time per input: the best move of one node until none helps."""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import inner, kernel
from placewright.kernels.throughput.loads import move, refill, settle, value

REFILL_EVERY = 64  # moves after which sums are taken afresh
HELPS = 1 - 1e-12  # of the value: where a move helps by more than rounding


@kernel
def descend(p, state, movable, most_tried):
    """Make best moves of nodes in `movable` until none helps, or `most_tried` were tried.

    Returns how many were tried; ``-1 - tried`` if the limit stopped it.
    """
    tried = made = 0
    current = value(state)
    while True:
        best_node = best_device = np.int64(-1)  # other integers would compile all again
        best = current * HELPS
        for k in range(len(movable)):
            if tried >= most_tried:
                return -1 - tried
            node = np.int64(movable[k])
            origin = np.int64(state.node_device[node])
            for device in range(len(state.used)):
                if device == origin or not p.allowed[node, p.device_class[device]]:
                    continue
                if state.used[device] + p.memory[node] > p.device_memory[device]:
                    continue
                _put(p, state, node, device)
                found = value(state)
                tried += 1
                if found < best:
                    best_node, best_device, best = node, np.int64(device), found
            if state.node_device[node] != origin:
                _put(p, state, node, origin)
        if best_node < 0:
            return tried
        _put(p, state, best_node, best_device)
        made += 1
        if made % REFILL_EVERY == 0:
            refill(p, state)
        current = value(state)


@inner
def _put(p, state, node, device):
    move(p, state, node, device)
    settle(p, state)
