"""Slow obvious twins of `latency.bound_fan_out` and of the cuts of `latency.bound_paths`."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np

from tests import naive
from tests.naive.relaxation import between, delay


def cuts(edges, n, first, last):
    """Ops between that all other ops between are before or behind.

    An edge from op 0 counts only to an op with no other edge from the region, one to the last op
    of all only from an op with no other.
    """
    inside = between(edges, first, last)
    region = inside | {first, last}
    own = [(u, v) for u, v in edges if u in region and v in region]
    kept = [
        (u, v)
        for u, v in own
        if not (u == 0 and any(b == v and a != 0 for a, b in own))
        and not (v == n - 1 and any(a == u and b != n - 1 for a, b in own))
    ]
    return {op for op in inside if not any(u < op < v for u, v in kept)}


def heads_and_tails(part, routes, first, last, shut):
    """`(head, tail)[op][device]` by going through all ways, recursively."""
    n, devices = part.time.shape

    def longest(ends, others, end, pinned, send):
        """From op `end`, on `pinned` (-1: anywhere), to each op; edges go from others to ends."""

        def way(op, d):
            if shut[op, d] or (op == end and pinned >= 0 and d != pinned):
                return math.inf
            return max(
                (
                    min(
                        way(other, a) + float(part.time[other, a]) + send(e, a, d)
                        for a in range(devices)
                    )
                    for e, other in enumerate(others.tolist())
                    if ends[e] == op
                ),
                default=0.0,
            )

        return [[way(op, d) for d in range(devices)] for op in range(n)]

    return (
        longest(part.head, part.tail, 0, first, lambda e, a, d: delay(part, routes, e, a, d)),
        longest(part.tail, part.head, n - 1, last, lambda e, b, d: delay(part, routes, e, d, b)),
    )


def shortest_with_copies(problem, readers, copy):
    """The optimum where `copy[d]` says whether d has a reader (1), none (0), or either (-1)."""
    best = math.inf
    pinned = problem.unit_pinned[problem.op_unit[readers]].tolist()
    choices = [range(problem.device_count) if pin < 0 else [pin] for pin in pinned]
    for devices in product(*choices):
        there = np.isin(np.arange(problem.device_count), devices)
        if all(said < 0 or bool(said) == at for said, at in zip(copy, there, strict=True)):
            pins = {int(problem.op_unit[op]): d for op, d in zip(readers, devices, strict=True)}
            best = min(best, naive.shortest_makespan(problem.with_pins(pins)))
    return best


def timeless_ends(problem, first, last):
    """Op 0 on `first` and the last on `last`, both in no time and without memory."""
    time, memory = problem.op_time.copy(), problem.op_memory.copy()
    time[[0, -1]], memory[[0, -1]] = 0.0, 0.0
    pins = {int(problem.op_unit[0]): first, int(problem.op_unit[-1]): last}
    return replace(problem, op_time=time, op_memory=memory).with_pins(pins)
