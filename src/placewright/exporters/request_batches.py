"""How many sequences to serve together: the batch of the most tokens per second.

A larger batch reads the weights once for more sequences, until computing takes as long; and its KV
caches need room, so that fewer layers fit on a device. So what a row makes rises with the batch, to
where the best row does not fit any more. Batches of 1, 2, 4, … are planned, and then some between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from placewright.budget import Progress
from placewright.errors import InfeasibleError

MOST_SEQUENCES = 4096  # of a micro-batch, when the best number is looked for
WORTH_MORE = 1.05  # what a batch of twice the size must bring, or no larger one is looked at
AS_GOOD = 1.02  # of batches that make about as many tokens the smallest is best: it waits least
REFINED = 4  # batches between two of which the one is twice the other


@dataclass(frozen=True)
class Tried:
    """What a `batch` comes to: None where it does not fit."""

    batch: int
    tokens_per_second: float | None
    seconds_to_first_token: float | None = None
    seconds_per_token: float | None = None


def tried_batches(
    plan: Callable[[int], Any], on_progress: Progress | None = None
) -> dict[int, Tried]:
    """What batches come to, by `plan`, which raises InfeasibleError where one does not fit.

    InfeasibleError if none does.
    """
    tried: dict[int, Tried] = {}
    failed: InfeasibleError | None = None
    while (batch := _next_batch(tried)) is not None:
        if on_progress is not None:
            on_progress(f"batch {batch}", 1 - 1 / (1 + len(tried)))
        try:
            served = plan(batch).served
            tried[batch] = Tried(
                batch,
                served.tokens_per_second,
                served.seconds_to_first_token,
                served.seconds_per_token,
            )
        except InfeasibleError as error:
            tried[batch], failed = Tried(batch, None), error
    if failed is not None and not any(_rate(each) for each in tried.values()):
        raise failed
    return tried


def best_batch(tried: Mapping[int, Tried]) -> int:
    """The smallest batch that is about as good as the best."""
    most = max(map(_rate, tried.values()))
    return min(batch for batch, found in tried.items() if _rate(found) * AS_GOOD >= most)


def _next_batch(tried: Mapping[int, Tried]) -> int | None:
    """1, 2, 4, … until one does not fit or brings hardly more; then between the best and its
    neighbours, as often as `REFINED`; None at the end."""
    if not tried:
        return 1
    largest = 1 << (len(tried) - 1)
    if list(tried) == [1 << k for k in range(len(tried))] and largest < MOST_SEQUENCES:
        before = _rate(tried[largest // 2]) if largest > 1 else 0.0
        if _rate(tried[largest]) > before * WORTH_MORE:
            return 2 * largest
    doubled = sum(batch & (batch - 1) == 0 for batch in tried)
    if len(tried) - doubled >= REFINED:
        return None
    best = best_batch(tried)
    above = min((batch for batch in tried if batch > best), default=best)
    below = max((batch for batch in tried if batch < best), default=best)
    middles = ((best + other) // 2 for other in (above, below))
    return next((middle for middle in middles if middle not in tried), None)


def _rate(tried: Tried) -> float:
    return tried.tokens_per_second or 0.0
