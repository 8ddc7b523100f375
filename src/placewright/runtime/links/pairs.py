"""All pairs of devices, one after the other, so that they do not disturb each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from placewright.budget import Progress, no_progress
from placewright.runtime.links.pace import Times
from placewright.system.allocator import keep_freed_memory

Pair = tuple[int, int]
Cores = Sequence[int]


def times_of_pairs(
    what: str,
    cores: Sequence[Cores],
    times: Callable[[Cores, Cores, Sequence[int]], Times],
    sizes: Sequence[int],
    on_progress: Progress | None,
) -> dict[Pair, Times]:
    """``times(source, target, sizes)`` of each two of `cores`, by pairs of places in them.

    They are measured within this process; `what` is measured, as the progress has it.
    """
    keep_freed_memory()
    progress = on_progress or no_progress
    pairs = list(combinations(range(len(cores)), 2))
    found = {}
    for done, (a, b) in enumerate(pairs):
        progress(f"measuring {what}", done / len(pairs))
        found[a, b] = times(cores[a], cores[b], sizes)
    return found
