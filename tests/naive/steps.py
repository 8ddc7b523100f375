"""Slow obvious twin of `kernels.throughput.steps`: a step by small amounts of waiting."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np

from placewright.plan import Placement
from placewright.simulate.pipeline_steps import kept_bytes
from placewright.simulate.throughput import loads


def step_of(p, stages, micro_batches, is_gpipe):
    """Seconds of a step; stages are numbered from the last one.

    Every pass is put as early as its stage and its neighbour let it, again and again until none
    moves any more.
    """
    orders = [list(order(k, micro_batches, is_gpipe)) for k in range(stages)]
    end = {}
    while True:
        before = dict(end)
        for k, passes in enumerate(orders):
            free = 0.0
            for way, m in passes:
                start = free
                if way == "forward":
                    if k + 1 < stages:
                        start = max(start, end.get((k + 1, way, m), 0.0) - p.up[k + 1])
                    free = start + p.forward[k]
                else:
                    if k > 0:
                        start = max(start, end.get((k - 1, way, m), 0.0) - p.down[k - 1])
                    free = start + p.backward[k]
                end[k, way, m] = free
        if end == before:
            return max(end.values())


def order(after, micro_batches, is_gpipe):
    """The passes of a stage with so many stages after it, as the papers draw them."""
    ahead = micro_batches if is_gpipe else min(after, micro_batches)
    for m in range(ahead):
        yield "forward", m
    for m in range(micro_batches - ahead):
        yield "forward", ahead + m
        yield "backward", m
    for m in range(micro_batches - ahead, micro_batches):
        yield "backward", m


def every_row(count, devices, most_stages=None):
    """`((device, first piece, last piece), …)` of each row of stages."""
    for number in range(1, min(count, devices, most_stages or count) + 1):
        for cuts in combinations(range(1, count), number - 1):
            ends = list(zip([0, *cuts], [*cuts, count], strict=True))
            for row in permutations(range(devices), number):
                yield tuple((d, i, j - 1) for d, (i, j) in zip(row, ends, strict=True))


def every_step(problem, op_piece, most_stages=None):
    """`(seconds per input, placement)` of each row of whole pieces within memory."""
    count = int(op_piece.max()) + 1
    for number in range(1, min(count, problem.device_count, most_stages or count) + 1):
        for cuts in combinations(range(1, count), number - 1):
            lengths = np.diff([0, *cuts, count])
            for row in permutations(range(problem.device_count), number):
                placement = Placement(np.repeat(row, lengths)[op_piece], row=row)
                device = placement.device
                pinned = (problem.op_pinned >= 0) & (problem.op_pinned != device)
                runs = np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all()
                kept = kept_bytes(problem, placement)
                if (
                    runs
                    and not pinned.any()
                    and (kept <= problem.device_memory * (1 + 1e-12)).all()
                ):
                    yield loads(problem, placement).value, placement


def every_parallel_step(problem, op_piece, count):
    """`(seconds per input, placement)` of each row in `count` pipelines, on any devices.

    Those of a stage in all pipelines differ; what is left open is which are alike.
    """
    pieces, devices = int(op_piece.max()) + 1, problem.device_count
    for number in range(1, min(pieces, devices // count) + 1):
        for cuts in combinations(range(1, pieces), number - 1):
            lengths = np.diff([0, *cuts, pieces])
            for each in permutations(range(devices), number * count):
                rows = [each[k * number : (k + 1) * number] for k in range(count)]
                device = np.repeat(rows[0], lengths)[op_piece]
                placement = Placement(device, row=rows[0], replicas=tuple(zip(*rows, strict=True)))
                kept = kept_bytes(problem, placement)
                if (kept <= problem.device_memory * (1 + 1e-12)).all():
                    yield loads(problem, placement).value, placement


def least_of_chains(costs):
    """Of all rows by the tables of `StepCosts`, the least of what two chains of passes come to."""
    count, classes = costs.count, [len(each) for each in costs.classes[1]]
    devices = [one for one, members in enumerate(classes) for _ in range(members)]
    best = np.inf
    for number in range(1, min(count, costs.most_stages) + 1):
        for cuts in combinations(range(1, count), number - 1):
            ends = list(zip([0, *cuts], [*cuts, count], strict=True))
            for row in set(permutations(devices, number)):
                stages = [(one, i, j - 1) for one, (i, j) in zip(row, ends, strict=True)]
                best = min(best, longest_chain(costs, stages))
    return best


def longest_chain(costs, stages):
    """Infinite where one is no stage."""
    m, total, peak = costs.micro_batches, 0.0, 0.0
    for number, (one, i, j) in enumerate(stages):
        after = len(stages) - 1 - number
        forward, backward = (float(each) for each in costs.passes[after][:, one, i, j])
        up, down = (float(each) for each in costs.sent[:, one, i, j])
        flying = costs.in_flight[after]
        if not np.isfinite(forward):
            return np.inf
        total += forward + backward - down - (up if after else 0.0)
        both = m * (forward + backward) - forward - backward
        turns = forward + (m - flying) * (forward + backward) - forward
        ways = [turns + (flying - 1) * forward, turns + (flying - 1) * backward]
        peak = max(peak, both if costs.is_gpipe else max(ways))
    return total + peak
