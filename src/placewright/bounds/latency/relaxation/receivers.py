"""Devices that may get a copy of a region's first tensor, those that are alike in one order.

Devices that can change names (`isomorphic.like_devices`), the ends of the region aside, are one
*class*. Of any schedule the devices of a class can be renamed so that those with a copy come first
in its order, and copies arrive in that order. So where one has none, those behind it have none; and
where all their routes from the first op's device have a channel in common, which carries one
transfer at a time, each copy comes at least the seconds of a transfer after the one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from placewright.bounds.latency.relaxation.network import Indices
from placewright.graph import Floats
from placewright.kernels.latency.dual_ascent import Routes


@dataclass(frozen=True, eq=False)
class Receivers:
    """A copy takes ``send[device]`` seconds; `order`: devices other than the first op's, by class.

    `behind[device]`: the next of its class in the order, or -1. ``apart[device]``: seconds from the
    arrival at the one before it to its own, at least.
    """

    send: Floats
    order: list[int]
    behind: Indices
    apart: Floats

    @staticmethod
    def of(
        seconds: Floats, size: float, routes: Routes, like: Indices, ends: tuple[int, int]
    ) -> Receivers:
        """For a tensor of so many bytes of the first op, on ``ends[0]``.

        In the order those come first that need least for all readers, ``seconds[device]``, and the
        copy.
        """
        first = ends[0]
        send = routes.latency[first] + size * routes.per_byte[first]
        send[first] = 0.0
        names = like.copy()
        for end in (end for end in ends if end >= 0):
            names[end] = len(like) + end  # of a class of its own
        by_need = np.lexsort((names, seconds + send))
        order = [int(device) for device in by_need if device != first]
        behind, apart = np.full(len(send), -1), np.zeros(len(send))
        for name in np.unique(names[order]).tolist():
            members = [device for device in order if names[device] == name]
            gap = send[members[0]] if _one_after_another(routes, first, members) else 0.0
            behind[members[:-1]] = members[1:]
            apart[members[1:]] = gap
        return Receivers(send, order, behind, apart)

    def earliest(self) -> Floats:
        """`[device]` seconds until a copy is there, at least."""
        return self.later(self.send)

    def later(self, low: Floats) -> Floats:
        """`low`, but no sooner than the copies before it allow."""
        found = low.copy()
        for device in self.order:
            if (after := self.behind[device]) >= 0:
                found[after] = max(found[after], found[device] + self.apart[after])
        return found

    def sooner(self, high: Floats) -> Floats:
        """`high`, but no later than the copies behind it allow."""
        found = high.copy()
        for device in reversed(self.order):
            if (after := self.behind[device]) >= 0:
                found[device] = min(found[device], found[after] - self.apart[after])
        return found

    def first_unsaid(self, copy: Indices) -> int:
        """The first device of which it is not said whether it has a copy, -1 if there is none."""
        return next((device for device in self.order if copy[device] < 0), -1)

    def without_and_with(self, copy: Indices, device: int) -> tuple[Indices, Indices]:
        """The cases where it has none, nor have those behind it, and where it has one."""
        none, one = copy.copy(), copy.copy()
        one[device] = 1
        while device >= 0:
            none[device] = 0
            device = int(self.behind[device])
        return none, one


def _one_after_another(routes: Routes, first: int, devices: list[int]) -> bool:
    """Whether a channel is on all their routes."""
    offsets, count = routes.channel_offsets, len(routes.latency)
    pairs = [first * count + device for device in devices]
    each = [set(routes.channels[offsets[p] : offsets[p + 1]].tolist()) for p in pairs]
    return bool(reduce(set.intersection, each))
