"""Rows of stages for throughput, each load as it is: a search through cuts and classes of devices.

Depth first, from the first stage on. What the stages so far send to each other is known, for who
holds what is; what they send to pieces that no stage has yet goes once, over the quickest way. A
row is left as soon as one of these loads, or the least that the pieces left can come to, is no
better than the best row known.
"""

from __future__ import annotations

from typing import NamedTuple

from placewright.graph import Floats, Wide
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.throughput.arrays import combined

SENT, RECEIVED = 0, 1
LATENCY, RATE = 0, 1


class RowTables(NamedTuple):
    """What stages cost; `[class, i, j]` is of a stage of pieces i … j."""

    compute: Floats  # [class, i, j] seconds, infinite where the class may not have the stage
    tensors: Floats  # [h, i, j] how many of pieces before h are read by pieces i … j
    nbytes: Floats  # [h, i, j] of those
    latency: Floats  # [class, class] between two devices
    rate: Floats  # [class, class] seconds per byte
    quickest: Floats  # [class, SENT or RECEIVED, latency or rate] to and from any other
    available: Wide  # [class] devices
    weight: Wide  # [class] of a device in the number of a set
    rest: Floats  # [set of used devices, i] the least largest load of the pieces from i on
    load: int  # what option `load` says


class RowScratch(NamedTuple):
    """The row at hand, a line per stage, and the best one."""

    one: Wide  # [stage] class
    first: Wide  # [stage + 1] piece
    seconds: Floats  # [stages so far, SENT or RECEIVED, stage]
    left: Wide  # [class] devices
    best: Wide  # [stage, class or last piece]


@kernel
def best_stages(t, s, limit, most_nodes):
    """`(value, stages, whole)`: the best row whose largest load is below `limit`, in ``s.best``.

    `value` is `limit` and `stages` 0 where there is none; `whole` says that no row was left out,
    for the search ends after `most_nodes` stages have been looked at.
    """
    count, classes, depth_limit = t.compute.shape[1], len(t.available), len(s.one)
    stages, depth, used, nodes = 0, 0, 0, 0
    for one in range(classes):
        s.left[one] = t.available[one]
    s.first[0] = 0
    s.one[0] = 0
    last = -1  # of the stage at hand, before it is moved on
    while depth >= 0:
        last += 1
        one, first = s.one[depth], s.first[depth]
        if s.left[one] == 0 or last >= count or t.compute[one, first, last] >= limit:
            s.one[depth] += 1
            last = first - 1
            if s.one[depth] == classes:
                depth -= 1
                if depth >= 0:
                    last = s.first[depth + 1] - 1
                    used -= t.weight[s.one[depth]]
                    s.left[s.one[depth]] += 1
            continue
        nodes += 1
        if nodes > most_nodes:
            return limit, stages, False
        if last + 1 < count and (
            depth + 1 == depth_limit or t.rest[used + t.weight[one], last + 1] >= limit
        ):
            continue
        s.first[depth + 1] = last + 1
        largest = _largest(t, s, depth, limit)
        if largest >= limit:
            continue
        if last + 1 == count:
            limit, stages = largest, depth + 1
            for k in range(stages):
                s.best[k, 0], s.best[k, 1] = s.one[k], s.first[k + 1] - 1
            continue
        used += t.weight[one]
        s.left[one] -= 1
        depth += 1
        s.one[depth] = 0
    return limit, stages, True


@inner
def _largest(t, s, depth, limit):
    """The largest load of the stages up to `depth`, at least; `limit` if one is no less."""
    last = s.first[depth + 1] - 1
    s.seconds[depth, SENT, depth] = s.seconds[depth, RECEIVED, depth] = 0.0
    for k in range(depth):
        there = _sent(t, s, k, depth)
        back = _sent(t, s, depth, k)
        s.seconds[depth, SENT, k] = s.seconds[depth - 1, SENT, k] + there
        s.seconds[depth, RECEIVED, k] = s.seconds[depth - 1, RECEIVED, k] + back
        s.seconds[depth, SENT, depth] += back
        s.seconds[depth, RECEIVED, depth] += there
    largest = 0.0
    for k in range(depth, -1, -1):
        sent, received = s.seconds[depth, SENT, k], s.seconds[depth, RECEIVED, k]
        if last + 1 < t.compute.shape[1]:
            sent += _to_the_rest(t, s, k, last + 1)
            received += _from_the_rest(t, s, k, last + 1)
        seconds = t.compute[s.one[k], s.first[k], s.first[k + 1] - 1]
        largest = max(largest, combined(t.load, seconds, received, sent))
        if largest >= limit:
            return limit
    return largest


@inner
def _sent(t, s, source, target):
    """Seconds of what one stage sends to another."""
    low, high = s.first[source], s.first[source + 1]
    i, j = s.first[target], s.first[target + 1] - 1
    a, b = s.one[source], s.one[target]
    tensors = t.tensors[high, i, j] - t.tensors[low, i, j]
    nbytes = t.nbytes[high, i, j] - t.nbytes[low, i, j]
    return t.latency[a, b] * tensors + t.rate[a, b] * nbytes


@inner
def _to_the_rest(t, s, k, start):
    """Seconds at least of what a stage sends to pieces from `start` on."""
    low, high, j = s.first[k], s.first[k + 1], t.compute.shape[1] - 1
    tensors = t.tensors[high, start, j] - t.tensors[low, start, j]
    nbytes = t.nbytes[high, start, j] - t.nbytes[low, start, j]
    return _least_seconds(t, s.one[k], SENT, tensors, nbytes)


@inner
def _from_the_rest(t, s, k, start):
    """Seconds at least of what a stage gets from pieces from `start` on."""
    i, j, end = s.first[k], s.first[k + 1] - 1, t.compute.shape[1]
    tensors = t.tensors[end, i, j] - t.tensors[start, i, j]
    nbytes = t.nbytes[end, i, j] - t.nbytes[start, i, j]
    return _least_seconds(t, s.one[k], RECEIVED, tensors, nbytes)


@inner
def _least_seconds(t, one, way, tensors, nbytes):
    """Over the quickest way from a class (SENT) or to it."""
    return t.quickest[one, way, LATENCY] * tensors + t.quickest[one, way, RATE] * nbytes
