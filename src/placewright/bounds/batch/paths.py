"""The mean path of an input."""

from __future__ import annotations

import numpy as np

from placewright.bounds.batch.splits import ROOM, named, op_splits, priced
from placewright.bounds.bound import Bound
from placewright.bounds.latency.paths import longest_path
from placewright.bounds.prices import HopedFor
from placewright.problem import ROUNDING, Problem

STEPS = 80


def mean_path(problem: Problem) -> Bound:
    """The longest path, each op with the mean over the inputs of the batch that an input is in.

    On a path P an input's batches run one after another: T ≥ Σ_{o∈P} t[o, d(o, l), n(o, l)] for
    each input l. The mean over all l is Σ_{o∈P} Σ_d (n_d / L) t[o, d, n_d], at least the sum of
    the least such means, memory priced: other ops pay the least price of a split.
    """
    table = op_splits(problem)
    share = np.arange(table.time.shape[2]) / (table.time.shape[2] - 1)
    mean = table.weighted(np.broadcast_to(share, table.time.shape[1:]))
    values, _ = table.cheapest(mean)
    plain = best = longest_path(problem, values[table.kind])[0]
    limited, part = table.memory_parts(problem)
    price, hoped = np.zeros(problem.device_count), HopedFor(STEPS)
    free = np.where(np.isfinite(mean), 0.0, np.inf)
    while limited.any() and np.isfinite(plain):  # infinite: an op has no split at all
        values, counts = table.cheapest(priced(mean, part, price))
        beside, counts_beside = table.cheapest(priced(free, part, price))
        length, path = longest_path(problem, (values - beside)[table.kind])
        value = length + float(beside[table.kind].sum() - ROOM * price.sum())
        held = np.bincount(table.kind, minlength=len(beside))
        held_beside = held - np.bincount(table.kind[path], minlength=len(beside))
        used = (held - held_beside) @ ((counts > 0) * part)
        used += held_beside @ ((counts_beside > 0) * part)
        price = hoped.next_prices(price, value, np.where(limited, used - ROOM, 0.0))
        if hoped.given_up:
            break
    best = max(best, hoped.best)
    return Bound(best * (1 - ROUNDING), named("mean path of an input", best, plain))
