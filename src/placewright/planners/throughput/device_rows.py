"""Rows that the stages of a pipeline may stand in: neighbours are near each other."""

from __future__ import annotations

import numpy as np

from placewright.graph import Floats, Ints
from placewright.planners.throughput.sparse import Board


def rows(board: Board) -> list[Ints]:
    """Different rows of all devices worth a try.

    The fast ones first, in the order they are listed in (which has those of a host together); last;
    half of the fastest at either end; and each device followed by the nearest of those left. What
    an op needs that few devices can run may be wherever it likes, so no row is best for all.
    """
    listed = np.arange(board.problem.device_count)
    speed = _seconds_of_all(board)[board.arrays.device_class]
    fast = listed[np.argsort(speed, kind="stable")]
    half = int((speed == speed.min()).sum()) // 2
    ends = np.concatenate([fast[:half], fast[2 * half :], fast[half : 2 * half]])
    found: list[Ints] = []
    for row in (fast, fast[::-1], ends, _chain(board, speed), listed):
        if not any(np.array_equal(row, other) for other in found):
            found.append(np.ascontiguousarray(row, dtype=np.int32))
    return found


def _seconds_of_all(board: Board) -> Floats:
    """`[class]` seconds of all pieces, those it cannot run counted as on the slowest that can."""
    time = board.arrays.time.sum(axis=0)
    worst = np.where(board.pieces.piece_allowed, time, 0.0).max(axis=1)
    seconds: Floats = np.where(board.pieces.piece_allowed, time, 10.0 * worst[:, None]).sum(axis=0)
    return seconds


def _chain(board: Board, speed: Floats) -> Ints:
    """Each device followed by the nearest of those left, of these the fastest."""
    problem, arrays = board.problem, board.arrays
    count = problem.device_count
    tensors = max(float(arrays.net_count.sum()), 1.0)
    size = float(arrays.net_bytes.sum()) / tensors
    row = [int(speed.argmin())]
    left = np.ones(count, dtype=np.bool_)
    left[row[0]] = False
    rank = np.argsort(np.argsort(speed, kind="stable"), kind="stable")
    while len(row) < count:
        last = row[-1]
        away = problem.link_latency[last] + size * problem.link_seconds_per_byte[last]
        away = np.where(left, away, np.inf)
        nearest = np.flatnonzero(away <= away.min() * (1 + 1e-9))
        row.append(int(nearest[rank[nearest].argmin()]))
        left[row[-1]] = False
    return np.array(row, dtype=np.int32)
