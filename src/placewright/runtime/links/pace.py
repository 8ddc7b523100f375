"""Which sizes are timed how often: short transfers many times, long ones until time is up."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SIZES = tuple(2**power for power in range(10, 27))  # 1 KiB … 64 MiB
ROUNDS = 5, 25  # at least and at most
PAIR_SECONDS = 3.0  # after so long a pair has been measured often enough
SLICE_SECONDS = 0.01  # of each round, for a size
MOST_REPEATS = 20  # of a size in a round
WARM_UPS = 3  # of each size
LONGEST = 1.0  # a size that takes longer is the last that is measured


@dataclass(frozen=True)
class Times:
    """`seconds[k]` is the median of a transfer of `sizes[k]` bytes, one way."""

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]


def measured_times(
    transfer: Callable[[int, int], Sequence[float]],
    sizes: Sequence[int] = SIZES,
    pair_seconds: float = PAIR_SECONDS,
) -> Times:
    """Median seconds of ``transfer(bytes, count)``, which gives those of `count` transfers.

    The first transfers of each size do not count. All sizes take turns, so that what disturbs the
    machine for a while disturbs them all alike.
    """
    repeats: dict[int, int] = {}
    for size in sizes:
        first = min(transfer(size, WARM_UPS))
        repeats[size] = min(max(int(SLICE_SECONDS / max(first, 1e-9)), 1), MOST_REPEATS)
        if first > LONGEST:
            break
    samples: dict[int, list[float]] = {size: [] for size in repeats}
    fewest, most = ROUNDS
    started = time.perf_counter()
    for done in range(most):
        if done >= fewest and time.perf_counter() - started > pair_seconds:
            break
        for size, count in repeats.items():
            samples[size] += transfer(size, count)
    return Times(tuple(samples), tuple(map(statistics.median, samples.values())))
