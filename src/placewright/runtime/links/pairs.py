"""All pairs of devices, one after the other, so that they disturb no other; their lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from placewright.budget import Progress, no_progress
from placewright.costs.link_fit import LinkFit, fit
from placewright.errors import ExecutionError
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


def fitted(a: str, b: str, times: Times) -> LinkFit:
    """The line of the times between the devices `a` and `b`; ExecutionError where there is none."""
    try:
        return fit(times.sizes, times.seconds)
    except ExecutionError as error:
        raise ExecutionError(f"{a} – {b}: {error}") from None
