"""Regions: ops that run between two others in every schedule, and how long that takes at least.

For two ops u before v let the *region* (u, v) be the ops that are after u and before v on some
path. All of them, and the transfers to, between and from them, lie between the end of u and the
start of v in time. So the region takes no less, with u on a and v on b, than the best schedule of
it alone for these two devices, and that is bounded by `kernels.latency.dual_ascent.region_bound`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from placewright.bounds.latency.relaxation.candidates import candidates
from placewright.bounds.latency.relaxation.isomorphic import Key, key_of, like_devices
from placewright.bounds.latency.relaxation.network import Indices, Network
from placewright.budget import Budget
from placewright.graph import Flags, Floats
from placewright.kernels.latency.bound_paths import (
    arrivals,
    mark_between,
    measure_regions,
    remainders,
)
from placewright.kernels.latency.dual_ascent import Part, region_bound
from placewright.problem import LONG_ROUNDING

STEPS = 60  # to bound a region for a pair of devices, fewer if it is large
FEWEST_STEPS = 8
MOST_WORK = 3_000_000  # steps · edges · pairs of devices
ENOUGH = 1e-4
LOOSE = 0.02  # that a guess is lower for each doubling of a region: bounds of long ones are
MOST_ENTRIES = 16_000_000  # of costs; regions that take long are kept
LARGE = 32  # ops of a region that is first bounded for ends anywhere
MORE_BY_ENDS = 1.1  # that it is guessed to take, with the ends where they are
TINY = 1e-300
MORE_WORTH = 1.02  # that another region is, of those made of others, than the most yet
OVERFULL = 2.0  # how much longer a region is guessed to take that fits no single device
GUESSED, BOUNDED = range(2)


Place = tuple[Key, int, int, bool]
"""A region's key, devices of its ends up to those like them (-1: none), whether it is one."""


@dataclass(eq=False)
class Regions:
    """Regions sorted by their last op: `first`, `last`, whether `made` of others, `count` of ops.

    `cost[region, a, b]`: seconds from the end of the first op on a to the end of the last on b;
    a guess until `level` is BOUNDED, then a bound (`inf` where one of them cannot be). `alone` is
    what the ops between take on the best single device; `loose` a bound on what they take wherever
    the ends are, 0 if it was not looked for.
    """

    network: Network
    first: Indices
    last: Indices
    made: Flags
    count: Indices
    alone: Floats
    cost: Floats
    level: Indices
    offsets: Indices
    limit: float = np.inf
    before: Floats = field(init=False)
    after: Floats = field(init=False)
    loose: Floats = field(init=False)
    _made_worth: float = 0.0
    _keys: dict[int, tuple[Key, Indices]] = field(default_factory=dict)
    _tables: dict[tuple[Key, bool], Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = np.zeros(self.network.net.time.shape)
        self.after = np.zeros(self.network.net.time.shape)
        self.loose = np.zeros(len(self.first))
        self._by_first = np.argsort(self.first, kind="stable")
        self._first_offsets = np.searchsorted(
            self.first[self._by_first], np.arange(self.network.count + 1)
        )

    @staticmethod
    def of(network: Network) -> Regions:
        net = network.net
        first, last, made = candidates(network)
        count, seconds = measure_regions(
            first, last, net.out_offsets, net.head, net.time, network.closed, network.share,
            OVERFULL,
        )  # fmt: skip
        most = max(MOST_ENTRIES // network.device_count**2, 1)
        largest = np.argsort(-seconds, kind="stable")[:most]
        kept = np.sort(largest[count[largest] >= 2])
        first, last, made = first[kept], last[kept], made[kept]
        count, seconds = count[kept], seconds[kept]
        guess = seconds * (1.0 - np.minimum(LOOSE * np.log2(count), 0.5))
        cost = guess[:, None, None] + net.time[last][:, None, :]
        cost = np.repeat(cost, network.device_count, axis=1)
        cost[network.closed[first]] = np.inf
        cost.transpose(0, 2, 1)[network.closed[last]] = np.inf
        offsets = np.searchsorted(last, np.arange(network.count + 1))
        return Regions(
            network, first, last, made, count, seconds, cost, np.full(len(first), GUESSED), offsets
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

    def part(self, ops: Indices) -> Part:
        """A region's ops and ends, which take no time and no memory; where they are, pairs say."""
        part = self.network.part(ops, (int(ops[0]), int(ops[-1])))
        part.closed[[0, -1]] = 0.0
        return part

    def place(self, region: int, a: int, b: int) -> Place:
        """What an arc over the region and these devices of its ends shares with its twins."""
        if region not in self._keys:
            self._take_key(region, self.part(self.ops(region)))
        key, like = self._keys[region]
        first = int(like[a]) if self.first[region] > 0 else -1
        last = int(like[b]) if self.last[region] < self.network.count - 1 else -1
        return key, first, last, a == b or min(first, last) < 0

    def _take_key(self, region: int, part: Part) -> tuple[Key, Indices]:
        like = like_devices(self.network, part)
        self._keys[region] = key_of(self.network, self.ops(region), part), like
        return self._keys[region]

    def bound(self, region: int, budget: Budget) -> None:
        """Replace the guess by a bound, for every pair of devices; out of time, by next to none.

        A large region is first bounded for ends anywhere, which is less work by the square of the
        number of devices, and is a better guess. What was bounded of a twin holds for it too.
        Other regions that look like it at first sight are guessed to cost the same.
        """
        ops = self.ops(region)
        part = self.part(ops)
        key, _ = self._take_key(region, part)
        anywhere = (-1,)
        if self.count[region] >= LARGE and self.loose[region] == 0.0:
            table = self._table((key, True), part, region, (anywhere, anywhere), budget)
            self.loose[region] = max(float(table[0, 0]), TINY)
            self._guess(region, table * MORE_BY_ENDS)
            return
        devices = range(self.network.device_count)
        starts = devices if ops[0] > 0 else anywhere
        ends = devices if ops[-1] < self.network.count - 1 else anywhere
        table = self._table((key, False), part, region, (starts, ends), budget)
        self.level[region] = BOUNDED
        self._guess(region, table)
        self._set(np.array([region]), np.maximum(table, self.loose[region]))
        if self.made[region]:
            self._guess_made(region, float(table.min()))

    def _table(
        self, key: tuple[Key, bool], part: Part, region: int,
        ends: tuple[Iterable[int], Iterable[int]], budget: Budget,
    ) -> Floats:  # fmt: skip
        """`[a, b]` seconds that the ops between take, for pairs that are open; else 0."""
        if key not in self._tables:
            self._tables[key] = np.full(self.cost.shape[1:], np.nan)
        table = self._tables[key]
        is_open = np.isfinite(self.cost[region])
        work = len(part.tail) * self.network.device_count**2
        steps = max(FEWEST_STEPS, min(STEPS, MOST_WORK // max(work, 1)))
        for a, b in product(*ends):
            at = (slice(None) if a < 0 else a, slice(None) if b < 0 else b)
            if (np.isnan(table[at]) & is_open[at]).any() and budget.left > 0:
                value, _ = region_bound(part, self.network.routes, a, b, steps, ENOUGH)
                table[_pairs_like(self._keys[region][1], a, b)] = value
        return np.nan_to_num(table)

    def _set(self, regions: Indices, table: Floats) -> None:
        cost = table + self.network.net.time[self.last[regions]][:, None, :]
        self.cost[regions] = np.where(np.isfinite(self.cost[regions]), cost, np.inf)

    def _guess(self, region: int, table: Floats) -> None:
        """For it and those like it that are only guessed."""
        same = (self.count == self.count[region]) & (self.alone == self.alone[region])
        self._set(np.flatnonzero(same & (self.level == GUESSED)), table)

    def _guess_made(self, region: int, seconds: float) -> None:
        """What is made of others is guessed to be worth not much more than any of them yet."""
        self._made_worth = max(
            self._made_worth, MORE_WORTH * seconds / max(self.alone[region], TINY)
        )
        others = np.flatnonzero(self.made & (self.level == GUESSED))
        guess = self._made_worth * self.alone[others][:, None, None]
        guess = guess + self.network.net.time[self.last[others]][:, None, :]
        known = self.cost[others]
        self.cost[others] = np.where(np.isfinite(known), np.minimum(known, guess), np.inf)

    def rule_out(self, limit: float) -> None:
        """Rule out what no schedule within `limit` seconds has: devices of ops, pairs of regions.

        `before[op, device]` its end at the earliest, `after[op, device]` the least from then to
        the end of all; together they must be within the limit. From now on all that is said of
        regions holds for schedules within the limit.
        """
        network, net = self.network, self.network.net
        self.limit = limit * (1 + LONG_ROUNDING)
        known = self.cost.copy()
        guessed = self.level == GUESSED
        loose = self.loose[guessed][:, None, None]
        known[guessed] = np.where(np.isfinite(known[guessed]), loose, np.inf)
        self.before, _, _ = arrivals(
            net, network.routes, network.closed, self.offsets, self.first, known
        )
        self.after = remainders(
            net, network.routes, network.closed, self._first_offsets, self._by_first,
            self.last, known,
        )  # fmt: skip
        if not np.isfinite(limit):
            return
        late = (self.before + self.after > self.limit) & ~network.closed
        if late.any():
            network.closed[late] = True
            self._forget_keys(np.asarray(late.any(axis=1)))
        total = self.before[self.first][:, :, None] + known + self.after[self.last][:, None, :]
        self.cost[total > self.limit] = np.inf

    def _forget_keys(self, changed: Flags) -> None:
        """Of regions with an op that has changed."""
        until = np.cumsum(np.append(False, changed))
        for region in np.flatnonzero(until[self.last] > until[self.first + 1]).tolist():
            self._keys.pop(region, None)

    def forget_guesses(self) -> None:
        """Guessed regions cost no more than was bounded from now on, most of them nothing."""
        for region in np.flatnonzero(self.level == GUESSED).tolist():
            self.cost[region] = np.where(np.isfinite(self.cost[region]), self.loose[region], np.inf)
            self.level[region] = BOUNDED


def _pairs_like(like: Indices, a: int, b: int) -> Flags:
    """`[a', b']` whether it is the same as (a, b); -1 stands for any device."""
    pairs = np.ones((len(like), len(like)), dtype=np.bool_)
    if a >= 0:
        pairs &= (like == like[a])[:, None]
    if b >= 0:
        pairs &= (like == like[b])[None, :]
    if min(a, b) >= 0:
        pairs &= np.eye(len(like), dtype=np.bool_) == (a == b)
    return pairs
