"""When ops can be where, if all is to end within a horizon: heads and tails along single paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Flags, Floats, Ints
from placewright.problem import Problem


@dataclass(frozen=True, eq=False)
class Ways:
    """`consumer[k]` waits for `producer[k]`, by ``delay[k]``: ``[source, target]`` seconds.

    `rank[op]` is a topological order.
    """

    producer: Ints
    consumer: Ints
    delay: Floats
    rank: NDArray[np.integer[Any]]

    def heads(self, time: Floats, head: Floats) -> Floats:
        """`[op, device]`: how soon an op can start there, no sooner than `head`."""
        head = np.where(np.isfinite(time), head, np.inf)
        for k in np.argsort(self.rank[self.consumer], kind="stable").tolist():
            p, c = self.producer[k], self.consumer[k]
            there = ((head[p] + time[p])[:, None] + self.delay[k]).min(axis=0)
            np.maximum(head[c], there, out=head[c])
        return head

    def tails(self, time: Floats, tail: Floats) -> Floats:
        """`[op, device]`: how long it is at least from an op's end there to the end of all."""
        tail = np.where(np.isfinite(time), tail, np.inf)
        for k in np.argsort(-self.rank[self.producer], kind="stable").tolist():
            p, c = self.producer[k], self.consumer[k]
            needed = (self.delay[k] + (time[c] + tail[c])[None, :]).min(axis=1)
            np.maximum(tail[p], needed, out=tail[p])
        return tail


@dataclass(frozen=True, eq=False)
class TimeWindows:
    """What the horizon leaves open, `time` and `quickest` `inf` where nothing.

    `allowed` and `time` are by unit or op, device and, where ops have several times, which of them;
    `quickest`, `head` and `tail` are ``[op, device]``.
    """

    allowed: Flags
    time: Floats
    quickest: Floats
    head: Floats
    tail: Floats


def time_windows(
    allowed: Flags,
    time: Floats,
    unit: Ints,
    ways: Ways,
    bounds: tuple[Floats, Floats],
    horizon: float,
    look: Callable[[], None] = lambda: None,
) -> TimeWindows:
    """Windows from what is allowed, what is allowed from the windows, until nothing changes.

    `unit[op]`; `bounds` are least heads and tails; `look` is called now and then. A unit may be
    left with no device at all: then nothing ends within the horizon.
    """
    while True:
        look()
        open_time = np.where(allowed[unit], time, np.inf)
        quickest = open_time if time.ndim == 2 else open_time.min(axis=2)
        head, tail = ways.heads(quickest, bounds[0]), ways.tails(quickest, bounds[1])
        around = (...,) if time.ndim == 2 else (..., None)
        narrowed = allowed.copy()
        np.logical_and.at(narrowed, unit, head[around] + open_time + tail[around] <= horizon)
        if (narrowed == allowed).all():
            return TimeWindows(allowed, open_time, quickest, head, tail)
        allowed = narrowed


def edge_delays(problem: Problem, edges: Ints) -> Floats:
    """`[edge, source, target]` seconds; 0 on one device, `inf` apart within a unit."""
    delay: Floats = (
        problem.link_latency[None]
        + problem.tensor_bytes[problem.edge_tensor[edges]][:, None, None]
        * problem.link_seconds_per_byte[None]
    )
    unit = problem.op_unit
    delay[unit[problem.edge_producer[edges]] == unit[problem.consumers[edges]]] = np.inf
    same = np.arange(problem.device_count)
    delay[:, same, same] = 0.0
    return delay
