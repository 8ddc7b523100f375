"""Regions: ops that run between two others in every schedule, and how long that takes at least.

For two ops u before v let the *region* (u, v) be the ops that are after u and before v on some
path. All of them, and the transfers to, between and from them, lie between the end of u and the
start of v in time. So the region takes no less, with u on a and v on b, than the best schedule of
it alone for these two devices, and that is bounded by `kernels.bound_energy.window_bound`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from placewright.bounds.relaxation.network import Indices, Network
from placewright.graph import Floats
from placewright.kernels.bound_energy import window_bound
from placewright.kernels.bound_paths import (
    arrivals,
    mark_between,
    measure_regions,
    meeting_points,
    remainders,
)
from placewright.planners.base import Budget

LONGEST_SPAN = 4_000  # topological positions between the ends of a region (the whole aside)
MOST_REGIONS = 20_000
JOINS = 6  # ahead of a fork on the longest path, to end regions
STEPS = 60  # to bound a region for a pair of devices, fewer if it is large
FEWEST_STEPS = 8
MOST_WORK = 3_000_000  # steps · edges · pairs of devices
ENOUGH = 1e-4
LOOSE = 0.02  # that a guess is lower for each doubling of a region: bounds of long ones are
NO_ROOM = 2.0  # how much longer a region is guessed to take that fits no single device
GUESSED, BOUNDED = range(2)


@dataclass(eq=False)
class Regions:
    """Regions sorted by their last op: `first`, `last`, `count` of ops between.

    `cost[region, a, b]`: seconds from the end of the first op on a to the end of the last on b;
    a guess until `level` is BOUNDED, then a bound (`inf` where one of them cannot be). `alone` is
    what the ops between take on the best single device.
    """

    network: Network
    first: Indices
    last: Indices
    count: Indices
    alone: Floats
    cost: Floats
    level: Indices
    offsets: Indices
    limit: float = np.inf
    before: Floats = field(init=False)
    after: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.before = np.zeros(self.network.net.time.shape)
        self.after = np.zeros(self.network.net.time.shape)
        self._by_first = np.argsort(self.first, kind="stable")
        self._first_offsets = np.searchsorted(
            self.first[self._by_first], np.arange(self.network.count + 1)
        )

    @staticmethod
    def of(network: Network) -> Regions:
        net = network.net
        first, last = _pairs(network)
        count, seconds = measure_regions(
            first, last, net.out_offsets, net.head, net.time, network.closed, network.share,
            NO_ROOM,
        )  # fmt: skip
        kept = np.flatnonzero(count >= 2)
        first, last, count, seconds = first[kept], last[kept], count[kept], seconds[kept]
        guess = seconds * (1.0 - np.minimum(LOOSE * np.log2(count), 0.5))
        cost = guess[:, None, None] + net.time[last][:, None, :]
        cost = np.repeat(cost, network.device_count, axis=1)
        cost[network.closed[first]] = np.inf
        cost.transpose(0, 2, 1)[network.closed[last]] = np.inf
        offsets = np.searchsorted(last, np.arange(network.count + 1))
        return Regions(
            network, first, last, count, seconds, cost, np.full(len(first), GUESSED), offsets
        )

    def ops(self, region: int) -> Indices:
        """Its ops and, first and last, its ends."""
        first, last = int(self.first[region]), int(self.last[region])
        net = self.network.net
        mark = np.empty(last - first + 1, dtype=np.uint8)
        mark_between(first, last, net.out_offsets, net.head, mark)
        mark[0] = mark[-1] = 1
        ops: Indices = first + np.flatnonzero(mark)
        return ops

    def bound(self, region: int, budget: Budget) -> None:
        """Replace the guess by a bound, for every pair of devices; out of time, by next to none."""
        network = self.network
        first, last = int(self.first[region]), int(self.last[region])
        part = network.part(self.ops(region), (first, last))
        devices = range(network.device_count)
        starts = devices if first > 0 else (-1,)
        work = len(part.tail) * network.device_count**2
        steps = max(FEWEST_STEPS, min(STEPS, MOST_WORK // max(work, 1)))
        ends = devices if last < network.count - 1 else (-1,)
        for a in starts:
            for b in ends:
                rows = slice(None) if a < 0 else a
                columns = slice(None) if b < 0 else b
                if not np.isfinite(self.cost[region, rows, columns]).any():
                    continue
                value, _ = window_bound(part, network.routes, a, b, steps, ENOUGH)
                time = network.net.time[last] if b < 0 else network.net.time[last, b]
                known = self.cost[region, rows, columns]
                self.cost[region, rows, columns] = np.where(
                    np.isfinite(known), value + time, np.inf
                )
        self.level[region] = BOUNDED

    def rule_out(self, limit: float) -> None:
        """Rule out what no schedule within `limit` seconds has: devices of ops, pairs of regions.

        `before[op, device]` its end at the earliest, `after[op, device]` the least from then to
        the end of all; together they must be within the limit. From now on all that is said of
        regions holds for schedules within the limit.
        """
        network, net = self.network, self.network.net
        self.limit = limit * (1 + 1e-9)
        known = self.cost.copy()
        guessed = self.level == GUESSED
        known[guessed] = np.where(np.isfinite(known[guessed]), 0.0, np.inf)
        self.before, _, _ = arrivals(
            net, network.routes, network.closed, self.offsets, self.first, known
        )
        self.after = remainders(
            net, network.routes, network.closed, self._first_offsets, self._by_first,
            self.last, known,
        )  # fmt: skip
        if not np.isfinite(limit):
            return
        network.closed[self.before + self.after > self.limit] = True
        total = self.before[self.first][:, :, None] + known + self.after[self.last][:, None, :]
        self.cost[total > self.limit] = np.inf

    def forget_guesses(self) -> None:
        """Guessed regions cost nothing from now on: they prove nothing."""
        guessed = self.level == GUESSED
        self.cost[guessed] = np.where(np.isfinite(self.cost[guessed]), 0.0, np.inf)
        self.level[guessed] = BOUNDED


def _pairs(network: Network) -> tuple[Indices, Indices]:
    """Ends of candidate regions, sorted by last, then first.

    From where paths part to where they all meet, from where paths come from to where they meet,
    pieces of the longest path of a half, a quarter … of its length, and the whole.
    """
    net, n = network.net, network.count
    pairs = {(0, n - 1)}
    ahead = meeting_points(n, net.out_offsets, net.head)
    pairs |= set(zip(range(n - 1), ahead[:-1].tolist(), strict=True))
    behind = n - 1 - _meeting_points_behind(network)
    pairs |= set(zip(behind[1:].tolist(), range(1, n), strict=True))
    path = _fastest_path(network)
    pairs |= _forks_and_joins(network, path)
    span = 2
    while span < len(path):
        pairs |= set(pairwise([*path[::span], n - 1]))
        span *= 2
    found = np.array(sorted(pairs, key=lambda pair: (pair[1], pair[0])), dtype=np.int64)
    first, last = found.T
    whole = (first == 0) & (last == n - 1)
    kept = whole | ((last - first >= 3) & (last - first <= LONGEST_SPAN))
    return first[kept], last[kept]


def _forks_and_joins(network: Network, path: list[int]) -> set[tuple[int, int]]:
    """On a path: each op that several read, with the next ops that read several."""
    several_out = np.diff(network.net.out_offsets) > 1
    several_in = np.diff(network.net.in_offsets) > 1
    pairs = set()
    joins: list[int] = []
    for op in reversed(path):
        if several_out[op]:
            pairs |= {(op, join) for join in joins[:JOINS]}
        if several_in[op]:
            joins.insert(0, op)
    return pairs


def _meeting_points_behind(network: Network) -> Indices:
    net, n = network.net, network.count
    tails = net.tail[net.in_edges]
    counts = np.diff(net.in_offsets)[::-1]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    reversed_tails = n - 1 - tails[::-1]
    points: Indices = meeting_points(n, offsets, np.ascontiguousarray(reversed_tails))[::-1]
    return points


def _fastest_path(network: Network) -> list[int]:
    """The longest path, each op on its fastest device, from start to end."""
    net = network.net
    time = np.where(network.closed, np.inf, net.time).min(axis=1)
    rank = np.zeros(network.count)
    follower = np.zeros(network.count, dtype=np.int64)
    for op in range(network.count - 2, -1, -1):
        heads = net.head[net.out_offsets[op] : net.out_offsets[op + 1]]
        follower[op] = heads[int(rank[heads].argmax())]
        rank[op] = time[op] + rank[follower[op]]
    path = [0]
    while path[-1] < network.count - 1:
        path.append(int(follower[path[-1]]))
    return path
