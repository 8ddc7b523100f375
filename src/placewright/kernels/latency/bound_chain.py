"""Prices of the parts between two ops for all pairs of their devices, and the cheapest chain."""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import kernel
from placewright.kernels.latency.dual_ascent import sweep


@kernel(allocates=True)
def pair_values(part, routes, unary, price, open_pairs, back, ahead, least, label):
    """`least[a, b]` the least price of the part with op 0 on a and the last on b, bounded.

    Where `open_pairs[a, b]`; `back[a, b]`, `ahead[a, b]` are messages to start from, `label[a, b]`
    gets a cheap placement.
    """
    count = unary.shape[1]
    n = len(unary)
    pinned = unary.copy()
    node = np.empty_like(unary)
    flow = np.zeros(len(part.tail))
    for a in range(count):
        for b in range(count):
            if not open_pairs[a, b]:
                continue
            for d in range(count):
                pinned[0, d] = unary[0, d] + (part.penalty if d != a else 0.0)
                pinned[n - 1, d] = unary[n - 1, d] + (part.penalty if d != b else 0.0)
            least[a, b] = sweep(
                part, routes, pinned, flow, price, back[a, b], ahead[a, b], node, label[a, b]
            )


@kernel(allocates=True)
def cheapest_chain(cost, label):
    """The least sum of ``cost[step, label[step], label[step + 1]]``; the labels."""
    steps, count = cost.shape[0], cost.shape[1]
    total = np.zeros((steps + 1, count))
    choice = np.zeros((steps + 1, count), dtype=np.int64)
    for step in range(steps):
        for b in range(count):
            least = np.inf
            for a in range(count):
                if total[step, a] + cost[step, a, b] < least:
                    least, choice[step + 1, b] = total[step, a] + cost[step, a, b], a
            total[step + 1, b] = least
    label[steps] = total[steps].argmin()
    for step in range(steps, 0, -1):
        label[step - 1] = choice[step, label[step]]
    return total[steps].min()
