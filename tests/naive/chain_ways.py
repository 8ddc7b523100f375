"""Slow obvious twin of `kernels.latency.chain_ways`: every way, stretch by stretch."""

from __future__ import annotations

import itertools
import math


def every_way(places, kinds, first):
    """Lists of stretches `(begin, end, kind)` that cover all places in order."""
    for cuts in itertools.product((False, True), repeat=places - 1):
        opens = [0, *(place + 1 for place, cut in enumerate(cuts) if cut)]
        ends = [*(begin - 1 for begin in opens[1:]), places - 1]
        for chosen in itertools.product(range(kinds), repeat=len(opens)):
            way = list(zip(opens, ends, chosen, strict=True))
            if all(begin >= first[end][kind] for begin, end, kind in way):
                yield way


def seconds_of(way, away, split, start, begin, before, cheapest, along):
    """What a way takes; `along` are `(low, high, seconds by kind)`."""
    total, past = 0.0, None
    for opened, end, kind in way:
        if past is None:
            total += start[kind]
        else:
            change = away[opened][past][kind]
            total += min(change, split[opened][kind]) if past == kind else change
            total += cheapest[opened]
        total += begin[opened][kind] + before[end][kind] - before[opened][kind]
        total += sum(seconds[kind] for low, high, seconds in along if opened <= low and high <= end)
        past = kind
    return total


def shortest(places, kinds, first, *costs):
    """`[kind]` the least seconds of a way that ends on each kind."""
    least = [math.inf] * kinds
    for way in every_way(places, kinds, first):
        kind = way[-1][2]
        least[kind] = min(least[kind], seconds_of(way, *costs))
    return least
