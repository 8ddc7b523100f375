"""Cuts of a line of units over a row of devices, by trying all of them."""

from __future__ import annotations

import itertools


def shortest_longest_stage(time, memory, capacity):
    """The least there is of the longest stage's seconds; None if no cuts fit.

    ``time[unit, stage]`` seconds, ``memory[unit]`` and ``capacity[stage]`` bytes.
    """
    units, stages = time.shape
    found = []
    for inner in itertools.combinations_with_replacement(range(units + 1), stages - 1):
        cuts = [*inner, units]
        parts = list(zip([0, *inner], cuts, strict=True))
        room = zip(parts, capacity, strict=False)
        if all(memory[first:end].sum() <= bytes for (first, end), bytes in room):
            found.append(longest_stage(time, cuts))
    return min(found, default=None)


def longest_stage(time, cuts):
    """Seconds of the longest stage, where the next ones begin at ``cuts``."""
    starts = [0, *cuts[:-1]]
    parts = enumerate(zip(starts, cuts, strict=True))
    return max(time[first:end, stage].sum() for stage, (first, end) in parts)
