"""Which sizes are timed how often: short transfers many times, long ones until time is up."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

from placewright.costs.profiles.steady import STEADY_ENOUGH, Passes, Watch

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
    watch: Watch,
    sizes: Sequence[int] = SIZES,
    pair_seconds: float = PAIR_SECONDS,
) -> Times:
    """Median seconds of ``transfer(bytes, count)``, which gives those of `count` transfers.

    The first transfers of each size do not count. All sizes take turns, so that what disturbs the
    machine for a while disturbs them all alike. Of a size that was timed often enough while the
    machine was steady, as the `watch` has it, the other times do not count.
    """
    repeats = _repeats(transfer, sizes)
    kinds, fewest, most = len(repeats), *ROUNDS

    def share(slices: int, elapsed: float) -> float:
        enough = elapsed / pair_seconds if pair_seconds else 1.0
        return max(slices / (most * kinds), min(enough, slices / (fewest * kinds)))

    passes = Passes(watch, share)
    slices: list[Sequence[float]] = []
    turns = cycle(repeats.items())
    while passes.share < 1.0:
        slices.append(transfer(*next(turns)))
        passes.passed()
    steady = set(passes.steady)
    return Times(
        tuple(repeats),
        tuple(_median(slices, range(place, passes.ran, kinds), steady) for place in range(kinds)),
    )


def _repeats(
    transfer: Callable[[int, int], Sequence[float]], sizes: Sequence[int]
) -> dict[int, int]:
    """How often each size is timed in a round, without those that take too long."""
    repeats: dict[int, int] = {}
    for size in sizes:
        first = min(transfer(size, WARM_UPS))
        repeats[size] = min(max(int(SLICE_SECONDS / max(first, 1e-9)), 1), MOST_REPEATS)
        if first > LONGEST:
            break
    return repeats


def _median(slices: Sequence[Sequence[float]], own: Sequence[int], steady: set[int]) -> float:
    """Of the times in a size's `own` slices, the steady ones if there are enough."""
    chosen = [number for number in own if number in steady]
    if len(chosen) < STEADY_ENOUGH:
        chosen = list(own)
    return statistics.median(seconds for number in chosen for seconds in slices[number])
