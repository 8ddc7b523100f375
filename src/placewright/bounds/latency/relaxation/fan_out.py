"""Regions that begin with a tensor which many of their ops read: who gets a copy of it, and when.

What a tensor sent once to each device costs is shared out over its readers elsewhere, so that few
readers on a device pay a small part of it. Here cases say which devices get a copy; each is
bounded by `kernels.latency.bound_fan_out`, and the least of all cases holds. The case with the
least bound is split by one more device, until it says all or enough cases have been looked at. From
there `slots` goes on, which looks at when copies arrive and all else is done, but leaves out some
edges.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count as counter
from itertools import pairwise

import numpy as np

from placewright.bounds.latency.relaxation.isomorphic import like_devices
from placewright.bounds.latency.relaxation.network import Indices, Network
from placewright.bounds.latency.relaxation.receivers import Receivers
from placewright.bounds.latency.relaxation.slots import bound_in_slots
from placewright.budget import Budget
from placewright.graph import Flags, Floats
from placewright.kernels.latency.bound_fan_out import case_bound
from placewright.kernels.latency.dual_ascent import Part, Routes

FEWEST_READERS = 3
STEPS = 150
MOST_WORK = 200_000_000  # cases · steps · edges · pairs of devices
ENOUGH = 1e-3
EVEN = 0.02  # of the weight of a device: what every row has to begin with


@dataclass(frozen=True, eq=False)
class FanOut:
    """`part` without the charge for the tensor's edges; who reads it; its bytes."""

    part: Part
    reader: Flags
    size: float

    def readers(self, first: int, last: int) -> Flags:
        """Those that may need a copy: the last op does not, if it is where the first one is."""
        reader = self.reader.copy()
        reader[-1] &= first != last
        return reader


def fan_out_of(network: Network, ops: Indices, part: Part) -> FanOut | None:
    """The largest tensor of the first op with several readers in the region, if sent but once."""
    if network.problem.options.transfer_unit == "edge" or network.order[ops[0]] < 0:
        return None
    tensor = network.tensor[network.edges_between(ops)[0]]
    best: tuple[float, int] | None = None
    own = part.tail == 0
    between = own & (part.head < len(ops) - 1)
    for name in np.unique(tensor[between]).tolist():
        edges = np.flatnonzero(between & (tensor == name))
        if len(edges) >= FEWEST_READERS:
            best = max(best or (0.0, name), (float(part.size[edges[0]]), name))
    if best is None:
        return None
    edges = own & (tensor == best[1])
    reader = np.zeros(len(ops), dtype=np.bool_)
    reader[part.head[edges]] = True
    return FanOut(part._replace(weight=np.where(edges, 0.0, part.weight)), reader, best[0])


def bound_by_copies(
    fan_out: FanOut, network: Network, first: int, last: int, known: float, budget: Budget
) -> float:
    """A bound on what the region takes with its ends on these devices; `known` holds already.

    The least of all cases of devices with a copy.
    """
    routes, devices = network.routes, network.device_count
    reader, receivers = fan_out.readers(first, last), _receivers(fan_out, network, first, last)

    def bounded(copy: Indices, weight: Floats) -> float:
        """Of a case; the weights become the best found."""
        bound: float = case_bound(
            fan_out.part, routes, first, last, reader, receivers.send, copy, weight, STEPS, goal,
            ENOUGH,
        )  # fmt: skip
        return bound

    even = np.full(1 + 3 * devices + 2 * routes.channel_count, 1.0)
    number = counter()
    cases = [(known, next(number), np.full(devices, -1), even / even.sum())]
    most = MOST_WORK // (STEPS * max(len(fan_out.part.tail), 1) * devices**2)
    looked_at = 0
    while looked_at < most and budget.left > 0:
        value, _, said, weight = cases[0]
        asked = receivers.first_unsaid(said)
        if asked < 0:
            break
        heapq.heappop(cases)
        whole = (case[0] for case in cases if receivers.first_unsaid(case[2]) < 0)
        goal = min(whole, default=np.inf)
        for copy in receivers.without_and_with(said, asked):
            tries = [
                (bounded(copy, own), next(number), own)
                for own in (weight.copy(), _one_by_one(copy, routes, first))
            ]
            looked_at += len(tries)
            bound, _, own = max(tries)
            heapq.heappush(cases, (max(value, bound), next(number), copy, own))
    return cases[0][0]


def _one_by_one(copy: Indices, routes: Routes, first: int) -> Floats:
    """Weights as if the devices shared all work, those with a copy from when it comes.

    Copies that go over one channel come one after the other: most of them over the channel of
    which most is made. A part of the weights is even.
    """
    devices, channels = len(copy), routes.channel_count
    weight = np.full(1 + 3 * devices + 2 * channels, EVEN)
    device, late, queue = 1, 1 + 2 * devices + channels, 1 + 3 * devices + channels
    offsets = routes.channel_offsets[first * devices : (first + 1) * devices + 1]
    ways = [routes.channels[low:high] for low, high in pairwise(offsets)]
    copies = np.zeros(channels)
    for d in np.flatnonzero(copy == 1).tolist():
        copies[ways[d]] += 1
    for d, way in enumerate(ways):
        if copy[d] != 1:
            weight[device + d] += 1.0
        elif len(way):
            weight[queue + way[copies[way].argmax()]] += 1.0
        else:
            weight[late + d] += 1.0
    weight /= weight.sum()
    return weight


def bound_by_arrivals(
    fan_out: FanOut, network: Network, first: int, last: int, known: float, budget: Budget
) -> float:
    """One by when copies arrive as well, which takes some hundred times as long."""
    reader, receivers = fan_out.readers(first, last), _receivers(fan_out, network, first, last)
    return bound_in_slots(
        fan_out.part, reader, receivers, network.routes, (first, last), known, budget
    )


def _receivers(fan_out: FanOut, network: Network, first: int, last: int) -> Receivers:
    part, reader = fan_out.part, fan_out.reader
    seconds = np.where(part.closed[reader] > 0, 0.0, part.time[reader]).sum(axis=0)
    like = like_devices(network, part)
    return Receivers.of(seconds, fan_out.size, network.routes, like, (first, last))
