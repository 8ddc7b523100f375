"""What equal devices have to do at least, after all others have done what they can."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.devices import kinds
from placewright.bounds.bound import Bound
from placewright.graph import Floats
from placewright.problem import LONG_ROUNDING, Problem

BISECTIONS = 60


class Offload:
    """The price that devices take off others within a time limit, parts of units allowed.

    Of each kind `count` devices, on which the units `able` take `time[unit]` seconds; each fills
    a fractional knapsack of its own, so together they may take a unit more than once: the total
    is too large if anything.
    """

    def __init__(
        self, price: Floats, rivals: Iterable[tuple[int, Floats, NDArray[np.bool_]]]
    ) -> None:
        self._kinds = []
        for count, time, able in rivals:
            here = np.flatnonzero(able & (price > 0))
            order = here[np.argsort(time[here] / price[here], kind="stable")]
            seconds, worth = time[order], price[order]
            self._kinds.append((count, np.cumsum(seconds), np.cumsum(worth), seconds, worth))

    def most(self, limit: float) -> float:
        """Summed over all devices, each busy for at most `limit` seconds."""
        return sum(count * self._one(limit, *columns) for count, *columns in self._kinds)

    @staticmethod
    def _one(limit: float, spent: Floats, gained: Floats, seconds: Floats, worth: Floats) -> float:
        whole = int(np.searchsorted(spent, limit, side="right"))
        total = float(gained[whole - 1]) if whole else 0.0
        if whole < len(spent):
            left = limit - (float(spent[whole - 1]) if whole else 0.0)
            total += float(worth[whole]) * left / float(seconds[whole])
        return total


def meeting_point(need: Callable[[float], float], high: float, more: float = 0.0) -> float:
    """The largest τ ≤ `high` with need(τ) + `more` ≥ τ, for a need that falls as τ grows."""
    low = 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if need(middle) + more >= middle:
            low = middle
        else:
            high = middle
    return low


def even_share(problem: Problem) -> Bound:
    """The work that equal devices must do, shared out evenly.

    If T ≤ τ, every device outside the class of k equally fast ones that would do all the work
    soonest is busy for τ at most, and takes work off the class (in the class's seconds) worth at
    most that of a fractional knapsack of size τ; of the rest, one of the k does a k-th at least.
    So the τ where the two meet bounds T. Fractions cover replicas too: each computes its part of a
    unit, whatever its share of the inputs.
    """
    first, class_of = kinds(problem)
    count = np.bincount(class_of)
    able = problem.unit_allowed[:, first]
    time = np.where(able, problem.unit_time[:, first], 0.0)
    least = np.where(able, time, np.inf).min(axis=1)

    def pace(kind: int) -> float:
        own = time[:, kind]
        return int(count[kind]) * float(least[own > 0].sum()) / max(float(own.sum()), 1e-300)

    main = max(range(len(first)), key=pace)
    price = time[:, main]
    others = [kind for kind in range(len(first)) if kind != main]
    offload = Offload(price, ((int(count[k]), time[:, k], able[:, k]) for k in others))
    total = float(price.sum()) * (1 - LONG_ROUNDING)

    def need(limit: float) -> float:
        return max(total - offload.most(limit), 0.0) / int(count[main])

    return Bound(meeting_point(need, need(0.0)), "work shared out evenly")
