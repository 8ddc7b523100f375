"""Rows of stages for steps of micro-batches, each transfer as it is: a search through cuts.

Depth first, from the last stage on, as then it is known how many stages come after one, and with
that its order of passes and what it keeps in flight. What the stages so far send to each other is
known, for who holds what is; what they send to pieces that no stage has yet goes once, over the
quickest way. A row is left as soon as the step of its stages so far, with the least that the pieces
left add to it, or a chain of passes through both (`exporters.step_rows`), is no better than the
best row known.
"""

from __future__ import annotations

from typing import NamedTuple

from placewright.graph import Floats, Wide
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.throughput.steps import Passes, step_seconds

FORWARD, BACKWARD = 0, 1
SENT, RECEIVED = 0, 1
LATENCY, RATE = 0, 1
COUNT, BYTES = 0, 1
MADE_FORWARD, READ_FORWARD, MADE_BACKWARD = 0, 1, 2
IN_FORWARD, OUT_FORWARD, IN_BACKWARD, OUT_BACKWARD = 0, 1, 2, 3
SUMS, PEAKS, LOADS = 0, 1, 2


class StepTables(NamedTuple):
    """What stages cost; `[stages after, class, i, j]` is of a stage of pieces i … j, with so many
    after it."""

    compute: Floats  # [stages after, way, class, i, j] seconds, infinite where it may not be
    in_flight: Floats  # [stages after]
    amounts: (
        Floats  # [made and read how, COUNT or BYTES, h, i, j] of pieces before h, read by i … j
    )
    latency: Floats  # [class, class] between two devices
    rate: Floats  # [class, class] seconds per byte
    quickest: Floats  # [class, SENT or RECEIVED, LATENCY or RATE] to and from any other
    available: Wide  # [class] devices
    weight: Wide  # [class] of a device in the number of a set
    rest: Floats  # [SUMS, PEAKS or LOADS, set of used devices, e] the least of pieces before e
    exchange: Floats  # [class, i, j] seconds of a stage after its last pass
    micro_batches: int
    is_gpipe: bool


class StepScratch(NamedTuple):
    """The row at hand, numbered from its last stage, and the best one."""

    one: Wide  # [stage] class
    begin: Wide  # [stage + 1] piece where the stage before it begins; the number of pieces first
    seconds: Floats  # [stages so far, in or out and way, stage] of transfers among these
    passes: Passes
    left: Wide  # [class] devices
    best: Wide  # [stage, class or first piece]


@kernel
def best_steps(t, s, limit, most_passes):
    """`(seconds, stages, whole)`: the best row whose step is below `limit`, in ``s.best``.

    `seconds` is `limit` and `stages` 0 where there is none; `whole` says that no row was left out,
    for the search ends after `most_passes` have been timed.
    """
    count, classes, most = t.compute.shape[-1], len(t.available), len(s.one)
    stages, depth, used, timed = 0, 0, 0, 0
    for one in range(classes):
        s.left[one] = t.available[one]
    s.begin[0] = count
    s.one[0] = 0
    first = count  # of the stage at hand, before it is moved on
    while depth >= 0:
        first -= 1
        one = s.one[depth]
        if (
            first < 0
            or s.left[one] == 0
            or not _may(t, one, first, s.begin[depth] - 1, depth, limit)
        ):
            s.one[depth] += 1
            first = s.begin[depth]
            if s.one[depth] == classes:
                depth -= 1
                if depth >= 0:
                    first = s.begin[depth + 1]
                    used -= t.weight[s.one[depth]]
                    s.left[s.one[depth]] += 1
            continue
        timed += 2 * (depth + 1) * t.micro_batches
        if timed > most_passes:
            return limit, stages, False
        reached = used + t.weight[one]
        if first > 0 and (depth + 1 == most or t.rest[LOADS, reached, first] >= limit):
            continue
        s.begin[depth + 1] = first
        value = _least(t, s, depth, reached, limit)
        if value >= limit:
            continue
        if first == 0:
            limit, stages = value, depth + 1
            for k in range(stages):
                s.best[k, 0], s.best[k, 1] = s.one[k], s.begin[k + 1]
            continue
        used = reached
        s.left[one] -= 1
        depth += 1
        s.one[depth] = 0
    return limit, stages, True


@inner
def _may(t, one, first, last, after, limit):
    """Whether a class may have the stage, alone in the way of a better step; no larger one may."""
    forward = t.compute[after, FORWARD, one, first, last]
    backward = t.compute[after, BACKWARD, one, first, last]
    return (forward + backward) * t.micro_batches < limit


@inner
def _least(t, s, depth, reached, limit):
    """Seconds at least of a step of a row with the stages up to `depth`; `limit` if no less."""
    _add_transfers(t, s, depth)
    first, p, m = s.begin[depth + 1], s.passes, t.micro_batches
    total, peak, to_rest = 0.0, t.rest[PEAKS, reached, first], 0.0
    for k in range(depth + 1):
        way_in, out = s.seconds[depth, IN_FORWARD, k], s.seconds[depth, OUT_FORWARD, k]
        back_in, back_out = s.seconds[depth, IN_BACKWARD, k], s.seconds[depth, OUT_BACKWARD, k]
        if first > 0:
            read = _from_the_rest(t, s, k, first, READ_FORWARD)
            way_in += read
            back_in += _from_the_rest(t, s, k, first, MADE_FORWARD) - read
            out += _to_the_rest(t, s, k, first, MADE_FORWARD)
            to_rest = _to_the_rest(t, s, k, first, MADE_BACKWARD)
            back_out += to_rest
        i, j = s.begin[k + 1], s.begin[k] - 1
        p.forward[k] = t.compute[k, FORWARD, s.one[k], i, j] + way_in + out
        p.backward[k] = t.compute[k, BACKWARD, s.one[k], i, j] + back_in + back_out
        ahead = 0.0 if t.is_gpipe else t.in_flight[k] - 1
        load = p.forward[k] + p.backward[k]
        peak = max(peak, (m - 1) * load - ahead * min(p.forward[k], p.backward[k]))
        total += load
        if k > 0:
            total -= p.up[k] + p.down[k - 1]
    rest = t.rest[SUMS, reached, first]
    if total - to_rest + rest + peak >= limit:
        return limit
    last = step_seconds(p, depth + 1, m, t.is_gpipe)
    if first > 0:
        return last - to_rest + rest
    for k in range(depth + 1):
        last = max(last, p.free[k] + t.exchange[s.one[k], s.begin[k + 1], s.begin[k] - 1])
    return last


@inner
def _add_transfers(t, s, depth):
    """What the stage at `depth` and those after it send each other, in `seconds`; and neighbours
    in the passes of both."""
    p = s.passes
    for q in range(4):
        s.seconds[depth, q, depth] = 0.0
    p.up[depth] = 0.0
    p.down[depth] = 0.0
    for k in range(depth):
        there = _sent(t, s, depth, k, MADE_FORWARD)
        read = _sent(t, s, depth, k, READ_FORWARD)
        late = _sent(t, s, k, depth, MADE_FORWARD)
        back = _sent(t, s, k, depth, MADE_BACKWARD)
        before = depth - 1
        s.seconds[depth, IN_FORWARD, k] = s.seconds[before, IN_FORWARD, k] + read
        s.seconds[depth, OUT_FORWARD, k] = s.seconds[before, OUT_FORWARD, k] + late
        s.seconds[depth, IN_BACKWARD, k] = s.seconds[before, IN_BACKWARD, k] + there - read
        s.seconds[depth, OUT_BACKWARD, k] = s.seconds[before, OUT_BACKWARD, k] + back
        s.seconds[depth, OUT_FORWARD, depth] += there
        s.seconds[depth, IN_BACKWARD, depth] += late + back
        if k == before:
            p.up[depth] = read
            p.down[before] = back


@inner
def _sent(t, s, source, target, how):
    """Seconds of what one stage sends to another."""
    low, high = s.begin[source + 1], s.begin[source]
    i, j = s.begin[target + 1], s.begin[target] - 1
    a, b = s.one[source], s.one[target]
    tensors = t.amounts[how, COUNT, high, i, j] - t.amounts[how, COUNT, low, i, j]
    nbytes = t.amounts[how, BYTES, high, i, j] - t.amounts[how, BYTES, low, i, j]
    return t.latency[a, b] * tensors + t.rate[a, b] * nbytes


@inner
def _to_the_rest(t, s, k, end, how):
    """Seconds at least of what a stage sends to pieces before `end`."""
    low, high = s.begin[k + 1], s.begin[k]
    tensors = t.amounts[how, COUNT, high, 0, end - 1] - t.amounts[how, COUNT, low, 0, end - 1]
    nbytes = t.amounts[how, BYTES, high, 0, end - 1] - t.amounts[how, BYTES, low, 0, end - 1]
    return _least_seconds(t, s.one[k], SENT, tensors, nbytes)


@inner
def _from_the_rest(t, s, k, end, how):
    """Seconds at least of what a stage gets from pieces before `end`."""
    i, j = s.begin[k + 1], s.begin[k] - 1
    tensors, nbytes = t.amounts[how, COUNT, end, i, j], t.amounts[how, BYTES, end, i, j]
    return _least_seconds(t, s.one[k], RECEIVED, tensors, nbytes)


@inner
def _least_seconds(t, one, way, tensors, nbytes):
    """Over the quickest way from a class (SENT) or to it."""
    return t.quickest[one, way, LATENCY] * tensors + t.quickest[one, way, RATE] * nbytes
