"""Slow obvious twin of `kernels.throughput.stage_rows`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from placewright.plan import Placement
from placewright.simulate.throughput import loads


def rows_of(pieces, devices) -> Iterator[np.ndarray]:
    """`[piece]` the device of every row: pieces in their order, a device for each stage."""
    for number in range(1, min(pieces, devices) + 1):
        for cuts in itertools.combinations(range(1, pieces), number - 1):
            lengths = np.diff([0, *cuts, pieces])
            for row in itertools.permutations(range(devices), number):
                yield np.repeat(row, lengths)


def value_of(problem, device) -> float:
    """Seconds per input, infinite where it does not fit."""
    barred = (problem.op_pinned >= 0) & (problem.op_pinned != device)
    used = np.bincount(device, problem.op_memory, problem.device_count)
    if not np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all():
        return math.inf
    if barred.any() or (used > problem.device_memory * (1 + 1e-12)).any():
        return math.inf
    return loads(problem, Placement(device)).value


def best_row(problem, op_piece) -> float:
    """The least value of all rows of whole pieces."""
    rows = rows_of(int(op_piece.max()) + 1, problem.device_count)
    return min(value_of(problem, row[op_piece].astype(np.int32)) for row in rows)
