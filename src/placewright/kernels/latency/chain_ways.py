"""The shortest way along a chain of ops, from stretch to stretch (see `bounds.latency.ways`)."""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import kernel


@kernel(allocates=True)
def shortest_way(first, away, split, start, begin, before, cheapest, offsets, low, seconds):
    """`(end, source, opened)`: seconds to the end of each place on each kind of device.

    All are ``[place, kind]``. A way to a place goes on from where it was, or begins a stretch
    there: on a kind b after kind a at ``away[place, a, b]``, or ``split[place, a]`` where that is
    less and b is a. A stretch takes ``begin`` of its first place, what ``before`` differs by, and
    ``cheapest[place]`` for what lies before it; at the first place ``start[kind]`` comes before.
    It begins at ``first[place, kind]`` at the earliest. What runs along places ``low`` to this one,
    ``seconds[., kind]`` of those at ``offsets[place]`` and up to the next, counts in stretches that
    have both. `opened` is where the best stretch to a place begins, and `source` the kind of the
    place before it.
    """
    places, kinds = begin.shape
    end = np.empty((places, kinds))
    begun = np.empty((places, kinds))  # less what the stretch would have taken before
    extra = np.zeros((places, kinds))  # of a stretch from each place to this one
    source = np.zeros((places, kinds), dtype=np.int64)
    opened = np.zeros((places, kinds), dtype=np.int64)
    for place in range(places):
        for kind in range(kinds):
            here = start[kind]
            if place > 0:
                here = np.inf
                for past in range(kinds):
                    reached = end[place - 1, past] + away[place, past, kind]
                    if past == kind:
                        reached = min(reached, end[place - 1, past] + split[place, past])
                    if reached < here:
                        here, source[place, kind] = reached, past
                here += cheapest[place]
            begun[place, kind] = here + begin[place, kind] - before[place, kind]
        for each in range(offsets[place], offsets[place + 1]):
            for other in range(low[each] + 1):
                for kind in range(kinds):
                    extra[other, kind] += seconds[each, kind]
        for kind in range(kinds):
            opened[place, kind] = first[place, kind]
            least = np.inf
            for other in range(first[place, kind], place + 1):
                total = begun[other, kind] + extra[other, kind]
                if total < least:
                    least, opened[place, kind] = total, other
            end[place, kind] = least + before[place, kind]
    return end, source, opened
