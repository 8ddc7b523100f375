"""The least latency at which an ideal can be done, on each choice of accelerators."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.graph import Floats, Wide
from placewright.kernels.compiled import inner, kernel


class Side(NamedTuple):
    """What holds for each ideal.

    ``before[kind, ideal]`` seconds that a subgraph on such an accelerator takes less for what is
    before it, and more for reading from there; ``after[kind, ideal]`` seconds up to its end and for
    writing: for steps to another level the two add up, and `first[kind, ideal]` is the least rank
    by `memory` of ideals that it may begin at; `rank[ideal]`. For the other steps ``time[kind,
    ideal]`` seconds up to here, ``quickest[ideal]`` on whichever is quickest; of a combination
    of accelerators ``share[number, ideal]``, and ``paid[number, ideal]`` what is paid at least for
    what is kept. `level[ideal]`, and `starts[level]` its first ideal.
    """

    memory: Floats
    rank: Wide
    first: Wide
    before: Floats
    after: Floats
    time: Floats
    share: Floats
    quickest: Floats
    paid: Floats
    level: Wide
    starts: Wide


class Rates(NamedTuple):
    """By kind of accelerator: the bytes that it has `room` for, and its row `host` of crossings.

    By combination: how many accelerators, `size`; whether it stands `for_more`, and the longest
    path alone counts; ``part[number, host]`` of what crosses, at least; and ``least[row[number],
    step]`` seconds that its steps take at least, if the row is not negative. ``spared[level]``
    seconds that each of its accelerators but one spares at most.
    """

    room: Floats
    host: Wide
    size: Wide
    for_more: Wide
    part: Floats
    row: Wide
    least: Floats
    spared: Floats


@kernel
def extend_by_level(before, kind, side, alive, tree, after):
    """Into `after` the least seconds of a subgraph more that ends in another level.

    ``before[ideal]`` are the seconds without it. Where an ideal is not `alive` nothing is filled
    in. `tree` is a float per ideal to work with: the least of all that keep so much or more.
    """
    count = len(before)
    tree[:] = np.inf
    for level in range(len(side.starts) - 1):
        for ideal in range(side.starts[level], side.starts[level + 1]):
            if alive[ideal]:
                place, least = count - side.first[kind, ideal], np.inf
                while place > 0:
                    least = min(least, tree[place - 1])
                    place &= place - 1
                after[ideal] = min(after[ideal], least + side.after[kind, ideal])
        for ideal in range(side.starts[level], side.starts[level + 1]):
            seconds = before[ideal]
            if seconds < np.inf:
                seconds += side.before[kind, ideal]
                place = count - side.rank[ideal]
                while place <= count:
                    tree[place - 1] = min(tree[place - 1], seconds)
                    place += place & -place


@kernel
def extend_by_steps(before, kind, side, steps, rates, alive, after):
    """Into `after` the least seconds of a subgraph more that is one of the steps listed."""
    time, memory, host = side.time[kind], side.memory, rates.host[kind]
    crossing = steps.crossing
    for low in range(len(before)):
        if before[low] == np.inf:
            continue
        most = memory[low] + rates.room[kind]
        since = before[low] - time[low]
        for step in range(steps.offsets[low], steps.offsets[low + 1]):
            high = steps.targets[step]
            if alive[high] and memory[high] <= most:
                seconds = since + time[high]
                if host >= 0:
                    seconds += crossing[host, step]
                after[high] = min(after[high], seconds)


@kernel
def extend_beside(before, number, side, steps, rates, alive, after):
    """The same for several subgraphs at the same time, combination `number`, within a level."""
    share, paid, row = side.share[number], side.paid[number], rates.row[number]
    part, size, quickest = rates.part[number], rates.size[number], side.quickest
    for low in range(len(before)):
        if before[low] == np.inf:
            continue
        spared = quickest[low] + (size - 1) * rates.spared[side.level[low]]
        for step in range(steps.offsets[low], steps.offsets[low + 1]):
            high = steps.targets[step]
            if alive[high] and steps.nodes[step] >= size:
                seconds = steps.critical[step]
                if not rates.for_more[number]:
                    seconds = max(seconds, quickest[high] - spared)
                    busy = share[high] - share[low] + _least_crossing(steps.crossing, step, part)
                    seconds = max(seconds, busy)
                if row >= 0:
                    seconds = max(seconds, rates.least[row, step])
                seconds += before[low] + paid[high] - paid[low]
                after[high] = min(after[high], seconds)


@inner
def _least_crossing(crossing, step, part):
    if not len(crossing):
        return 0.0
    least = np.inf
    for host in range(len(part)):
        if part[host] < np.inf:
            least = min(least, part[host] * crossing[host, step])
    return least
