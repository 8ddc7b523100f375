"""How the units of two devices can be shared between them, all others fixed.

The tables of `kernels.throughput.pairs` for a pair of devices: units in an order in which
few of them at a time share a net with a later one, and what each adds to the two loads.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from placewright.analysis.contracted import ContractedGraph, Net
from placewright.graph import Flags, Floats, Ints
from placewright.kernels.throughput.pairs import choices_to, shared_loads

MOST_UNITS = 1000  # that a pair may share
MOST_CHOICES = 50  # looked at for the next unit
MOST_WIDTH = 7  # units at a time that share a net with a later one
MOST_BINS, FEWEST_BINS = 8192, 1024  # of the first device's load
MOST_ENTRIES = 1 << 24  # of the way back


def is_for(graph: ContractedGraph) -> bool:
    """Whether two devices can be looked at by themselves, with one load each.

    Through host memory it does not matter to others which of the two sends or receives.
    """
    options = graph.problem.options
    host = graph.problem.staging == "host"
    return host and options.load == "sum" and graph.passes == 1 and not options.contiguous


@dataclass(frozen=True)
class Sharing:
    """Pairs of loads (one, two) in seconds that can be had, ``loads[which, bin]``, and how."""

    units: Ints
    devices: tuple[int, int]
    loads: Floats
    came: Ints

    def placed(self, here: Ints, place: int) -> Ints:
        """`here` with the pair's units as they are for bin `place`."""
        unit_device = here.copy()
        unit_device[self.units] = np.array(self.devices)[choices_to(self.came, place)]
        return unit_device


def sharings(
    graph: ContractedGraph, here: Ints, devices: tuple[int, int], loads: Floats, cap: float
) -> Sharing | None:
    """All ways that keep both loads at `cap` seconds, where they are `loads` now.

    None if there are too many units, or too many of them share nets.
    """
    both = graph.allowed[:, devices[0]] & graph.allowed[:, devices[1]]
    free = np.flatnonzero(np.isin(here, devices) & both).tolist()
    order = _Order(graph, set(free))
    if len(free) > MOST_UNITS or not order.find():
        return None
    tables = _Tables(graph, here, devices, order)
    bins = min(MOST_BINS, MOST_ENTRIES // max(len(free) * tables.states, 1))
    if bins < FEWEST_BINS:
        return None
    base = np.maximum(loads - tables.added(), 0.0)
    found, came = shared_loads(
        tables.target, tables.adds[0], tables.adds[1], base, tables.rest, cap, bins
    )
    return Sharing(np.array(tables.order, dtype=np.int32), devices, found, came)


class _Order:
    """Units in an order in which few at a time wait: are done and share a net with one to come.

    Each has a slot while it waits. ``closing[step]`` are the nets whose last unit the step's is,
    ``leaving[step]`` the units that wait no longer after it.
    """

    def __init__(self, graph: ContractedGraph, free: set[int]) -> None:
        arrays = graph.arrays
        self.nets_of: dict[int, list[int]] = {
            unit: arrays.node_nets[
                arrays.node_offsets[unit] : arrays.node_offsets[unit + 1]
            ].tolist()
            for unit in sorted(free)
        }
        self.members: dict[int, list[int]] = {}
        for unit, nets in self.nets_of.items():
            for net in nets:
                self.members.setdefault(net, []).append(unit)
        self.units: list[int] = []
        self.slot: dict[int, int] = {}
        self.closing: list[list[int]] = []
        self.leaving: list[list[int]] = []
        self.width = 0
        self._to_come = {net: len(units) for net, units in self.members.items()}
        self._open = {unit: len(nets) for unit, nets in self.nets_of.items()}
        self._left, self._waiting = set(free), set[int]()

    def find(self) -> bool:
        """Whether there is one with at most `MOST_WIDTH` units waiting, as far as is tried."""
        while self._left:
            unit = max(self._choices(), key=lambda u: (len(self._leavers(u)), -self._open[u]))
            spare = set(range(MOST_WIDTH)) - {self.slot[each] for each in self._waiting}
            if not spare:
                return False
            self.slot[unit] = min(spare)
            self.width = max(self.width, self.slot[unit] + 1)
            self._take(unit)
        return True

    def _choices(self) -> list[int]:
        """Units that share nets with those that wait; any if none waits."""
        waiting = (net for unit in self._waiting for net in self.nets_of[unit])
        near = {unit for net in waiting for unit in self.members[net]} & self._left
        return sorted(near or self._left)[:MOST_CHOICES]

    def _take(self, unit: int) -> None:
        leavers = self._leavers(unit)
        closing = self._closed_by(unit)
        for net in self.nets_of[unit]:
            self._to_come[net] -= 1
        for net in closing:
            for each in self.members[net]:
                self._open[each] -= 1
        self._left.remove(unit)
        self._waiting = (self._waiting | {unit}) - set(leavers)
        self.units.append(unit)
        self.closing.append(closing)
        self.leaving.append(leavers)

    def _closed_by(self, unit: int) -> list[int]:
        return [net for net in self.nets_of[unit] if self._to_come[net] == 1]

    def _leavers(self, unit: int) -> list[int]:
        """Who would wait no longer, itself perhaps, if the unit came next."""
        closed = Counter(each for net in self._closed_by(unit) for each in self.members[net])
        closed[unit] += 0
        return sorted(each for each, count in closed.items() if self._open[each] == count)


class _Tables:
    """Per step and state, what either choice leads to."""

    def __init__(
        self, graph: ContractedGraph, here: Ints, devices: tuple[int, int], order: _Order
    ) -> None:
        self.graph, self.here, self.devices = graph, here, devices
        self.order, self.slot, self.states = order.units, order.slot, 1 << order.width
        self.closing = order.closing
        self.leaving = [sum(1 << self.slot[each] for each in units) for units in order.leaving]
        self._fill()

    def _fill(self) -> None:
        steps, states = len(self.order), np.arange(self.states)
        time = self.graph.time.sum(axis=0)
        self.target = np.zeros((steps, self.states, 2), dtype=np.int32)
        self.adds = np.zeros((2, steps, self.states, 2))
        for step, unit in enumerate(self.order):
            bit = 1 << self.slot[unit]
            for choice in (0, 1):
                chosen = (states & ~bit) | (bit if choice else 0)
                self.target[step, :, choice] = chosen & ~self.leaving[step]
                self.adds[choice, step, :, choice] += time[unit, self.devices[choice]]
                for net in self.closing[step]:
                    for which, seconds in enumerate(
                        self._seconds(self.graph.each_net[net], chosen)
                    ):
                        self.adds[which, step, :, choice] += seconds
        least = time[self.order][:, list(self.devices)].min(axis=1) if steps else np.zeros(0)
        self.rest = least[::-1].cumsum()[::-1] - least

    def _seconds(self, net: Net, states: Ints) -> list[Floats]:
        """What a net costs either device, `[state]`: sent once, received once."""
        problem, costs = self.graph.problem, []
        for which, device in enumerate(self.devices):
            source = self._is_on(net.producer, which, states)
            readers = [self._is_on(reader, which, states) for reader, _ in net.readers]
            out, into = (
                net.tensors * problem.host_latency[way, device]
                + net.bytes * problem.host_seconds_per_byte[way, device]
                for way in (0, 1)
            )
            sent = source & ~np.logical_and.reduce(readers)
            received = ~source & np.logical_or.reduce(readers)
            costs.append(out * sent + into * received)
        return costs

    def _is_on(self, unit: int, which: int, states: Ints) -> Flags:
        if unit not in self.slot:
            return np.full(len(states), self.here[unit] == self.devices[which])
        on: Flags = ((states >> self.slot[unit]) & 1) == which
        return on

    def added(self) -> Floats:
        """What the free units add to the two loads where they are now."""
        total, state = np.zeros(2), 0
        for step, unit in enumerate(self.order):
            choice = self.devices.index(int(self.here[unit]))
            total += self.adds[:, step, state, choice]
            state = int(self.target[step, state, choice])
        return total
