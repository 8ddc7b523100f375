"""Paths over ops and regions, devices of their ends in view."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from placewright.bounds.latency.relaxation.network import Indices, Network
from placewright.bounds.latency.relaxation.regions import GUESSED, Regions
from placewright.budget import Budget
from placewright.graph import Floats
from placewright.kernels.latency.bound_paths import arrivals, mark_arcs

Arc = tuple[int, int, int]
"""A region and the devices of its ends."""

MOST_SEARCHED = 70
"""Ops of a region that is searched for its shortest schedule; larger ones are bounded closer."""

Step = tuple[int, int, int, int, int]
"""Tail, head, their devices, and the edge, or −1 − the region, between them."""


@dataclass(frozen=True, eq=False)
class Reach:
    """See `kernels.latency.bound_paths.arrivals`."""

    network: Network
    regions: Regions
    largest: float
    reach: Floats
    via: Indices
    source: Indices

    @property
    def value(self) -> float:
        return float(self.reach[-1].min())

    def used(self) -> Indices:
        """The regions that the value rests on."""
        used = np.zeros(len(self.regions.first), dtype=np.bool_)
        network = self.network
        mark_arcs(self.via, network.closed, network.net.tail, self.regions.first, used)
        return np.flatnonzero(used)

    def steps(self) -> list[Step]:
        """The path that ends last, each step over the device that makes it shortest."""
        op, d = self.network.count - 1, int(self.reach[-1].argmin())
        steps: list[Step] = []
        while True:
            tail, _ = self._tail(op, d)
            if tail < 0:
                return steps[::-1]
            a = int(self.source[op, d])
            steps.append((tail, op, a, d, int(self.via[op, d])))
            op, d = tail, a

    def arcs(self, solved: Container[Arc] = ()) -> list[Arc]:
        """Regions that may make that path longer, with the devices of their ends.

        Those on it, and small ones that it goes through over edges and regions that are solved, if
        they may take longer than it does there.
        """
        steps = self.steps()
        if not np.isfinite(self.value):
            return []
        device = {0: steps[0][2], **{head: d for _, head, _, d, _ in steps}}
        on_path = {-1 - step[4] for step in steps if step[4] < 0}
        arcs = []
        first, last = self.regions.first, self.regions.last
        chain = np.array(list(device), dtype=np.int64)
        position = {op: k for k, op in enumerate(device)}
        unsolved = [via < 0 and (-1 - via, a, d) not in solved for _, _, a, d, via in steps]
        until = np.cumsum([0, *unsolved])
        for region in np.flatnonzero(np.isin(first, chain) & np.isin(last, chain)).tolist():
            u, v = int(first[region]), int(last[region])
            a, d = device[u], device[v]
            segment = self.reach[v, d] - self.network.net.time[v, d] - self.reach[u, a]
            is_clear = until[position[u]] == until[position[v]]
            if self.regions.count[region] > self.largest:
                continue
            is_small = self.regions.count[region] <= MOST_SEARCHED
            may_be_longer = is_clear and segment < self.regions.alone[region]
            if region in on_path or (is_small and may_be_longer):
                arcs.append((region, a, d))
        return arcs

    def _tail(self, op: int, d: int) -> tuple[int, int]:
        """The op before it on the path, -1 for none, and the region between, -1 for an edge."""
        via = int(self.via[op, d])
        if via < 0:
            return int(self.regions.first[-1 - via]), -1 - via
        if via == len(self.network.net.head):
            return -1, -1
        return int(self.network.net.tail[via]), -1


def reach(network: Network, regions: Regions, largest: float = np.inf) -> Reach:
    """Paths over regions of at most so many ops, as if those larger took no time."""
    cost = regions.cost
    if np.isfinite(largest):
        large = (regions.count > largest)[:, None, None]
        cost = np.where(large & np.isfinite(cost), 0.0, cost)
    found = arrivals(
        network.net, network.routes, network.closed, regions.offsets, regions.first, cost
    )
    return Reach(network, regions, largest, *found)


def settle(network: Network, regions: Regions, budget: Budget, largest: float = np.inf) -> Reach:
    """The longest path that rests on bounds alone: guesses on it are replaced until there is none.

    A guess may be too high or too low; what the value rests on is bounded at last, so that it
    is a lower bound on every schedule. Out of time, only what is bounded by then counts.
    """
    while True:
        found = reach(network, regions, largest)
        used = found.used()
        guessed = used[regions.level[used] == GUESSED].tolist()
        if not guessed:
            return found
        for region in guessed:
            if budget.left <= 0:
                regions.forget_guesses()
                break
            regions.bound(region, budget)
