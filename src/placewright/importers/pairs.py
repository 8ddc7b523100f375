"""How many pairs of a query and a key attention computes where a mask leaves some out.

Kernels of the FlashAttention kind skip tiles of which the mask leaves nothing, and compute the
others whole. So a causal mask spares about half of a long prompt, a sliding window more, and
neither spares anything of a prompt that is shorter than a tile.

>>> share_of_pairs(4096, 4096, causal())
0.515625
>>> share_of_pairs(4096, 4096, causal(window=512)) < 0.2
True
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

TILE = 128
"""Queries and keys of a tile. Kernels differ: from 64 to 256."""

Limit = tuple[float, float, float]
"""`(constant, query, key)`: query i sees key j only where constant + query·i + key·j ≥ 0."""


def causal(window: float = math.inf) -> tuple[Limit, ...]:
    """A token sees itself and those before it, the last `window` of all."""
    before = (0.0, 1.0, -1.0)
    return (before,) if math.isinf(window) else (before, (window - 1.0, -1.0, 1.0))


@lru_cache(maxsize=64)
def share_of_pairs(queries: int, keys: int, limits: tuple[Limit, ...]) -> float:
    """The part of ``queries · keys`` in the tiles of which all `limits` leave something.

    The keys that they leave a query lie side by side.
    """
    row = np.arange(queries, dtype=np.float64)
    first, last = np.zeros(queries), np.full(queries, keys - 1.0)
    for constant, query, key in limits:
        edge = constant + query * row
        if key > 0:
            first = np.maximum(first, np.ceil(-edge / key))
        elif key < 0:
            last = np.minimum(last, np.floor(edge / -key))
        else:
            last = np.where(edge >= 0, last, -1.0)
    sees = first <= last
    starts = np.arange(0, queries, TILE)
    lowest = np.minimum.reduceat(np.where(sees, first, math.inf), starts)
    highest = np.maximum.reduceat(np.where(sees, last, -1.0), starts)
    wide = np.minimum((np.floor(highest / TILE) + 1) * TILE, keys)
    wide -= np.floor(np.where(highest < 0, 0.0, lowest) / TILE) * TILE
    rows = np.minimum(queries - starts, TILE)
    return float((rows * np.maximum(wide, 0.0)).sum()) / (queries * keys)
