"""All work, shared out over the devices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.bounds.batch.splits import ROOM, Splits, named, priced, unit_splits
from placewright.bounds.bound import Bound
from placewright.graph import Floats
from placewright.problem import ROUNDING, Problem

STEPS = 80


def work(problem: Problem) -> Bound:
    """All work, shared out over the devices in the best proportion, memory priced.

    Each device is busy for at most T. So for weights λ ≥ 0 with Σ λ = 1, T ≥ Σ_d λ_d load_d =
    Σ_u Σ_d λ_d t[u, d, n_d], over the units u (ops that are together and split alike), at least
    the sum over units of the least such cost of a split.
    """
    return work_and_weights(problem)[0]


def work_and_weights(problem: Problem) -> tuple[Bound, Floats]:
    """The bound, and the weights of the devices that gave the best one without memory."""
    table = unit_splits(problem)
    number = np.bincount(table.kind, minlength=len(table.time))
    limited, part = table.memory_parts(problem)
    even = np.full(problem.device_count, 1.0 / problem.device_count)
    best, plain, weight = share_out(table, number, limited, even, part)
    return Bound(best * (1 - ROUNDING), named("work over speeds", best, plain)), weight


def share_out(
    table: Splits,
    number: NDArray[np.integer[Any]],
    limited: NDArray[np.bool_],
    weight: Floats,
    part: Floats | None = None,
) -> tuple[float, float, Floats]:
    """The best bound for so many of each kind, that without memory prices, and its weights.

    Multiplicative updates give weight to loaded devices, subgradient steps prices to full ones.
    """
    part = np.zeros(table.time.shape[:2]) if part is None else part
    price = np.zeros(len(weight))
    best = plain = -1.0
    best_weight = weight
    kinds = np.flatnonzero(number)
    table = Splits(table.time[kinds], table.memory[kinds], table.kind)
    number, part = number[kinds], part[kinds]
    rows, devices = np.arange(len(kinds))[:, None], np.arange(len(weight))
    for step in range(STEPS):
        cost = priced(table.weighted(weight[:, None]), part, price)
        values, counts = table.cheapest(cost)
        value = float(values @ number - ROOM * price.sum())
        best = max(best, value)
        if not price.any() and value > plain:
            plain, best_weight = value, weight
        load = number @ table.time[rows, devices, counts]
        if load.max() == 0 or not np.isfinite(value):
            break
        weight = weight * np.exp(2.0 / np.sqrt(1.0 + step) * (load - load.mean()) / load.max())
        weight = weight / weight.sum()
        if step >= STEPS // 3:  # first the weights alone, then the prices too
            used = number @ ((counts > 0) * part)
            excess = np.where(limited, used - 1.0, 0.0)
            price = np.maximum(price + best * excess / (1.0 + step), 0.0)
    return max(best, 0.0), max(plain, 0.0), best_weight
