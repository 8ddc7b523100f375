"""Routes: how two devices of a cluster reach each other, and what a transfer keeps busy.

The route from a to b is the widest path: the one with the largest minimum bandwidth (Moirai
§III), where a device may forward for others. A message flows through all links of its route at
once, so it takes the sum of their latencies plus its bytes over the narrowest bandwidth.

>>> from placewright.cluster import Cluster, Device, Link
>>> cluster = Cluster(
...     "box",
...     devices=(Device("gpu0", "T4"), Device("gpu1", "T4")),
...     switches=("pcie",),
...     links=(
...         Link("gpu0", "pcie", bandwidth=16e9, latency=2e-6),
...         Link("gpu1", "pcie", bandwidth=8e9, latency=6e-6),
...     ),
... )
>>> found = routes(cluster)
>>> float(found.link_latency[0, 1]), float(found.link_seconds_per_byte[0, 1])
(8e-06, 1.25e-10)
>>> [found.channel_names[channel] for channel in found.channels_of(0, 1)]
['gpu0 → pcie', 'pcie → gpu1']
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby

import numpy as np

from placewright.cluster import Cluster, Device
from placewright.errors import ClusterError
from placewright.graph import Floats, Ints, Wide, frozen

_ChannelKey = tuple[str, str, str]  # own or shared, name, and what tells it from its likes

UNREACHED = 2**62  # longer than any route, and small enough that adding two keys cannot overflow
HOST = "host memory"  # the kind of a switch taken for a device
UNLIMITED = -1  # in place of a channel: a transfer that keeps nothing busy


@dataclass(frozen=True, eq=False)
class Routes:
    """The routes between all devices, in the order of ``cluster.devices``; arrays are read-only.

    - `link_latency[a, b]` seconds and `link_seconds_per_byte[a, b]`, both [devices, devices], 0
      on the diagonal; seconds per byte are 0 where the bandwidth is unlimited;
    - a transfer from a to b occupies the channels
      ``channels[channel_offsets[k]:channel_offsets[k + 1]]``, k = a·devices + b, in rising order.
      A channel is what two transfers cannot use at once: one direction of a full-duplex link, a
      half-duplex link, or what several links share by name. Unlimited links occupy none.
    """

    link_latency: Floats
    link_seconds_per_byte: Floats
    channel_offsets: Wide
    channels: Ints
    channel_names: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("link_latency", "link_seconds_per_byte"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))
        object.__setattr__(self, "channel_offsets", frozen(self.channel_offsets, np.int64))
        object.__setattr__(self, "channels", frozen(self.channels, np.int32))

    def channels_of(self, a: int, b: int) -> Ints:
        pair = a * len(self.link_latency) + b
        return self.channels[self.channel_offsets[pair] : self.channel_offsets[pair + 1]]


def routes(cluster: Cluster) -> Routes:
    """The routes of `cluster`; ClusterError where two devices cannot reach each other.

    Among the widest paths the one with the least total latency is taken, then the one with the
    fewest links, then the first when paths are compared as lists of endpoints (devices in their
    order, then switches); of parallel links, the one with the least latency, then the widest,
    then the first listed. With ``routing="direct"`` two devices that have a link of their own
    use it (the widest of several, then the one with the least latency). Latencies are compared
    as decimal numbers, so that 0.1 + 0.2 is 0.3, to a trillionth of the largest or finer.
    """
    channel_names, arcs = _arcs(cluster)
    table = _Table(cluster)
    for _, group in groupby(_widest_first(arcs), key=lambda arc: arc.bandwidth):
        table.add(list(group))
    table.require_connected()
    if cluster.routing == "direct":
        table.prefer_direct(arcs)
    return table.routes(channel_names)


def host_routes(cluster: Cluster) -> tuple[Floats, Floats]:
    """``latency[way, device]`` and ``seconds_per_byte[way, device]`` of staging through memory.

    Way 0 is from the device to ``cluster.host_memory``, way 1 back; nothing for a device that is
    host memory itself or shares it (an unlimited link).
    """
    host = cluster.host_memory
    if host not in cluster.device_names:
        cluster = replace(
            cluster,
            devices=(*cluster.devices, Device(host, HOST)),
            switches=tuple(switch for switch in cluster.switches if switch != host),
        )
    at = cluster.device_names.index(host)
    found = routes(cluster)
    rest = [d for d in range(cluster.device_count) if d != at or cluster.devices[d].kind != HOST]
    ways = [
        np.stack([matrix[rest, at], matrix[at, rest]])
        for matrix in (found.link_latency, found.link_seconds_per_byte)
    ]
    return ways[0], ways[1]


# -- arcs: one direction of one link ---------------------------------------------------------


@dataclass(frozen=True)
class _Arc:
    tail: int
    head: int
    bandwidth: float
    latency: float
    channel: int


def _arcs(cluster: Cluster) -> tuple[tuple[str, ...], list[_Arc]]:
    """The names of all channels, and two arcs per link in the order of the links."""
    endpoints = [*cluster.device_names, *cluster.switches]
    number = {name: index for index, name in enumerate(endpoints)}
    channels: dict[_ChannelKey, int] = {}
    arcs = []
    for link, (forward, backward) in zip(cluster.links, _channel_keys(cluster), strict=True):
        back = link.bandwidth if link.reverse_bandwidth is None else link.reverse_bandwidth
        directions = ((link.a, link.b, link.bandwidth, forward), (link.b, link.a, back, backward))
        for tail, head, bandwidth, key in directions:
            unlimited = math.isinf(bandwidth)
            channel = UNLIMITED if unlimited else channels.setdefault(key, len(channels))
            arcs.append(_Arc(number[tail], number[head], bandwidth, link.latency, channel))
    return tuple(name + suffix for _, name, suffix in channels), arcs


def _channel_keys(cluster: Cluster) -> Iterator[tuple[_ChannelKey, _ChannelKey]]:
    """Per link, what its two directions occupy: the same where one excludes the other."""
    half = {link.channel for link in cluster.links if link.duplex == "half"}
    parallel: Counter[frozenset[str]] = Counter()
    for link in cluster.links:
        parallel[frozenset((link.a, link.b))] += 1
        count = parallel[frozenset((link.a, link.b))]
        suffix = f" #{count}" if count > 1 else ""
        if link.channel is None and link.duplex == "half":
            yield (("own", f"{link.a} – {link.b}", suffix),) * 2
        elif link.channel is None:
            there, back = f"{link.a} → {link.b}", f"{link.b} → {link.a}"
            yield ("own", there, suffix), ("own", back, suffix)
        elif link.channel in half:
            yield (("shared", link.channel, ""),) * 2
        else:
            yield ("shared", link.channel, " (forward)"), ("shared", link.channel, " (backward)")


def _directness(arc: _Arc) -> tuple[float, float]:
    return -arc.bandwidth, arc.latency


def _widest_first(arcs: list[_Arc]) -> list[_Arc]:
    return sorted(arcs, key=lambda arc: -arc.bandwidth)


# -- all routes at once ----------------------------------------------------------------------


class _Table:
    """Shortest paths over the arcs added so far, between all endpoints.

    Arcs come widest first. When two endpoints first reach each other, the bandwidth of the arcs
    just added is their width, and the shortest path at that moment, which uses arcs at least as
    wide, is their route; what comes later cannot change it. A path's length is one whole number,
    its latency in ticks times the number of endpoints plus its number of links, so comparing
    lengths compares latency, then links, without rounding.

    A new arc (tail, head) of length l gives the pair (i, j) a path of length ``key[i, tail] + l +
    key[head, j]``. It can only be better than the one known if it is so for (i, head) and no
    longer for (tail, j), so few rows and columns are looked at: in a tree, each pair once in all.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.endpoints = [*cluster.device_names, *cluster.switches]
        size, devices = len(self.endpoints), cluster.device_count
        self.tick = _tick(cluster, size)
        self.key: Wide = np.full((size, size), UNREACHED, dtype=np.int64)
        np.fill_diagonal(self.key, 0)
        self.next: Wide = np.full((size, size), size, dtype=np.int64)
        self.arc: dict[int, tuple[int, _Arc]] = {}  # by tail·size + head: the best of parallel arcs
        self.arc_latency = np.zeros(size * size)
        self.arc_channel = np.full(size * size, UNLIMITED, dtype=np.int64)
        self.latency = np.zeros(devices * devices)
        self.seconds_per_byte = np.zeros(devices * devices)
        self.uses: list[tuple[Wide, Wide]] = []  # (pairs, the channel each occupies), per step

    def add(self, arcs: list[_Arc]) -> None:
        """Add all arcs of one bandwidth and settle the pairs of devices that they join."""
        joined = [self._insert(arc) for arc in arcs]
        pairs = np.concatenate(joined)
        if pairs.size:
            self._settle(pairs, arcs[0].bandwidth)

    def _insert(self, arc: _Arc) -> Wide:
        """Shorten paths by one arc; the pairs of devices that had none, as a·devices + b."""
        size, devices = len(self.endpoints), self.cluster.device_count
        length = int(_decimal(arc.latency) / self.tick) * size + 1
        tail, head, place = arc.tail, arc.head, arc.tail * size + arc.head
        if place in self.arc and self.arc[place][0] <= length:
            return np.empty(0, dtype=np.int64)
        self.arc[place] = (length, arc)
        self.arc_latency[place], self.arc_channel[place] = arc.latency, arc.channel

        first = np.where(np.arange(size) == tail, head, self.next[:, tail])
        there, known = self.key[:, tail] + length, self.key[:, head]
        better_tie = (there == known) & (first < self.next[:, head])
        rows = np.flatnonzero((there < known) | better_tie)
        columns = np.flatnonzero(length + self.key[head] <= self.key[tail])
        block = np.ix_(rows, columns)
        new_first = first[rows][:, None]
        new = there[rows][:, None] + self.key[head, columns]
        old, old_first = self.key[block], self.next[block]
        tied = np.where(new == old, np.minimum(new_first, old_first), old_first)
        self.key[block] = np.minimum(new, old)
        self.next[block] = np.where(new < old, new_first, tied)

        reached = (old == UNREACHED) & (rows < devices)[:, None] & (columns < devices)
        row, column = np.nonzero(reached)
        return rows[row] * devices + columns[column]

    def _settle(self, pairs: Wide, bandwidth: float) -> None:
        """Fix the routes of `pairs` by walking them all together, one link a step."""
        size, devices = len(self.endpoints), self.cluster.device_count
        self.seconds_per_byte[pairs] = 1.0 / bandwidth  # 0 where unlimited
        at, target = np.divmod(pairs, devices)
        while pairs.size:
            after = self.next[at, target]
            place = at * size + after
            self.latency[pairs] += self.arc_latency[place]
            channel = self.arc_channel[place]
            limited = channel != UNLIMITED
            self.uses.append((pairs[limited], channel[limited]))
            going = after != target
            pairs, at, target = pairs[going], after[going], target[going]

    def require_connected(self) -> None:
        devices = self.cluster.device_count
        missing = np.argwhere(self.key[:devices, :devices] == UNREACHED)
        if missing.size:
            a, b = (self.endpoints[end] for end in missing[0])
            raise ClusterError(
                f"cluster '{self.cluster.name}' is disconnected: no route from '{a}' to '{b}'; "
                "add a link"
            )

    def prefer_direct(self, arcs: list[_Arc]) -> None:
        """Put the best arc between two devices in place of their route."""
        devices = self.cluster.device_count
        best: dict[int, _Arc] = {}
        for arc in arcs:
            if arc.tail < devices and arc.head < devices:
                pair = arc.tail * devices + arc.head
                best[pair] = min(best.get(pair, arc), arc, key=_directness)
        pairs = np.array([*best], dtype=np.int64)
        self.latency[pairs] = [arc.latency for arc in best.values()]
        self.seconds_per_byte[pairs] = [1.0 / arc.bandwidth for arc in best.values()]
        routed = np.ones(devices * devices, dtype=np.bool_)
        routed[pairs] = False
        self.uses = [(used[routed[used]], channel[routed[used]]) for used, channel in self.uses]
        channels = np.array([arc.channel for arc in best.values()], dtype=np.int64)
        limited = channels != UNLIMITED
        self.uses.append((pairs[limited], channels[limited]))

    def routes(self, channel_names: tuple[str, ...]) -> Routes:
        shape = (self.cluster.device_count, self.cluster.device_count)
        offsets, channels = self._channels(len(channel_names))
        return Routes(
            self.latency.reshape(shape),
            self.seconds_per_byte.reshape(shape),
            offsets,
            channels,
            channel_names,
        )

    def _channels(self, channel_count: int) -> tuple[Wide, Ints]:
        """CSR over pairs; a channel that two links of a route share counts once."""
        pair_count = self.cluster.device_count**2
        uses = [pairs * channel_count + channel for pairs, channel in self.uses]
        ordered = np.concatenate([np.empty(0, dtype=np.int64), *uses])
        ordered.sort()  # np.unique would hash, several times slower on millions of entries
        unique = ordered[np.append(True, ordered[1:] != ordered[:-1])[: ordered.size]]
        pairs, channels = np.divmod(unique, max(channel_count, 1))
        offsets = np.searchsorted(pairs, np.arange(pair_count + 1))
        return offsets, channels.astype(np.int32)


def _tick(cluster: Cluster, size: int) -> Decimal:
    """The unit latencies are compared in: the finest power of ten in which no length overflows."""
    longest = max((link.latency for link in cluster.links), default=0.0)
    if longest == 0.0:
        return Decimal(1)
    largest = UNREACHED // (2 * size * size)
    exponent = (_decimal(longest) / largest).adjusted() + 1
    return Decimal(1).scaleb(exponent)


def _decimal(seconds: float) -> Decimal:
    """`seconds` as a person wrote it: 15 digits, all that a float keeps of any decimal number."""
    return Decimal(f"{seconds:.15g}")
