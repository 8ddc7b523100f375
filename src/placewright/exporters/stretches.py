"""Sums over every stretch of consecutive pieces at once."""

from __future__ import annotations

import numpy as np

from placewright.graph import Floats, Wide


def within(first: Wide, last: Wide, values: Floats, count: int) -> Floats:
    """`[i, j]` the sum of values whose `first` ≥ i and `last` ≤ j."""
    table = np.zeros((count, count))
    np.add.at(table, (first, last), values)
    total: Floats = np.cumsum(np.cumsum(table[::-1], axis=0)[::-1], axis=1)
    return total
