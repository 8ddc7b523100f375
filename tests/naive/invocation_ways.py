"""Slow obvious twin of `kernels.invocation.ways`: every way over the places, holder by holder."""

from __future__ import annotations

import itertools
import math


def least_seconds(length, on_cpu, slots, groups, between):
    """Seconds of the shortest way; infinity if there is none.

    ``length[kind][first][last]``, ``on_cpu[place]``, `slots` of each kind; `groups` of each kind;
    ``between(place, kind, kind', beside)`` seconds, `beside` being how many subgraphs of each group
    are there; kind ``len(slots)`` is a CPU, or nothing. `between` is None at places where slots are
    used anew; then it is a tuple with the seconds.
    """
    places, kinds = len(on_cpu), len(slots)

    def rest(place, holder, left):
        return min(
            (seconds + after(place, kind, room) for kind, seconds, room in starts(place, holder,
                                                                                 left)),
            default=math.inf,
        )  # fmt: skip

    def starts(place, holder, left):
        """Every holder that may begin at the place, seconds until it does, and slots then left."""
        for kind in range(kinds + 1):
            for more in itertools.product(*(range(number + 1) for number in left)):
                beside = tuple(
                    sum(number for each, number in zip(groups, more, strict=True) if each == group)
                    for group in range(max(groups, default=-1) + 1)
                )
                seconds = between(place, holder, kind, beside)
                room = tuple(a - b for a, b in zip(left, more, strict=True))
                if isinstance(seconds, tuple):
                    seconds, room = seconds[0], tuple(slots)
                yield kind, seconds, room

    def after(place, kind, left):
        if place == places:
            return 0.0 if kind == kinds else math.inf
        if kind == kinds:
            return on_cpu[place] + rest(place + 1, kind, left)
        if not left[kind]:
            return math.inf
        fewer = tuple(number - (each == kind) for each, number in enumerate(left))
        return min(
            length[kind][place][last] + rest(last + 1, kind, fewer) for last in range(place, places)
        )

    return rest(0, kinds, tuple(slots))
