"""Devices of a chain that can be exchanged, and which arcs that makes the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from placewright.analysis.parts import Part
from placewright.formulations.latency.incumbent import interchangeable_devices
from placewright.graph import Ints
from placewright.planners.latency.modules.chain import Pair
from placewright.problem import Problem


class DeviceTwins:
    """Groups of devices that can be exchanged, and the pairs that are the same for that."""

    @classmethod
    def by_part(cls, problem: Problem) -> Callable[[Part], DeviceTwins]:
        """Those of each part: more memory than all of it needs makes no device another one.

        Not under ``peak``, where copies need some too.
        """
        is_resident = problem.options.memory == "resident"
        known: dict[bytes, DeviceTwins] = {}

        def of(part: Part) -> DeviceTwins:
            units = np.unique(problem.op_unit[part.sub.ops])
            needed = problem.unit_memory[units].sum() if is_resident else np.inf
            useful = np.minimum(problem.device_memory, needed)
            key = np.unique(useful, return_inverse=True)[1].tobytes()
            if key not in known:
                known[key] = cls(problem.with_device_memory(useful))
            return known[key]

        return of

    def __init__(self, problem: Problem) -> None:
        self.groups = interchangeable_devices(problem)
        self._group = np.arange(problem.device_count)
        for group in self.groups:
            self._group[group] = group[0]
        self._known: dict[tuple[bool, bool, Pair], list[tuple[Pair, Ints]]] = {}

    def like(self, part: Part, pair: Pair) -> list[tuple[Pair, Ints]]:
        """Pairs of ends between which the part takes as long, each with ``renamed[device]``.

        A plan between `pair` is one between that pair if each device is called as there.
        """
        are_devices = part.before >= 0, part.after >= 0
        key = *are_devices, pair
        if key not in self._known:
            sources, targets = (
                np.flatnonzero(self._group == self._group[end]).tolist() if is_device else [0]
                for is_device, end in zip(are_devices, pair, strict=True)
            )
            self._known[key] = []
            for other in product(sources, targets):
                ends = zip(are_devices, pair, other, strict=True)
                renamed = self._renamed([(a, b) for is_device, a, b in ends if is_device])
                if renamed is not None:
                    self._known[key].append((other, renamed))
        return self._known[key]

    def _renamed(self, ends: list[Pair]) -> Ints | None:
        """A renaming of devices, each within its group, that takes one to the other at the ends."""
        renamed = np.full(len(self._group), -1, dtype=np.int32)
        for here, there in ends:
            if renamed[here] != there and (renamed[here] >= 0 or there in renamed):
                return None
            renamed[here] = there
        for group in np.unique(self._group):
            members = np.flatnonzero(self._group == group)
            renamed[members[renamed[members] < 0]] = members[~np.isin(members, renamed)]
        return renamed
