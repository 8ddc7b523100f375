"""`Capacity`: which ops may become one op, given pins, support, memory and colocation.

Fusing two ops that are each colocated with others ties all of these together: what must fit one
device is the union of their units, and of everything tied to those before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from placewright.problem import Problem


class Capacity:
    """Keeps account of the ops put together so far.

    `together` puts ops on one device for good, if one exists that supports them all (a pinned
    op supports its device alone) and holds them with all that is colocated with them; forward
    and backward ops stay apart. `compatible` is a quick test on figures that add up over ops
    (`op_devices` intersect, `op_memory` adds), which colocation can only make stricter.

    >>> capacity = Capacity(problem)
    >>> capacity.together([0, 1])     # now ops 0 and 1 count as one
    True
    """

    def __init__(self, problem: Problem) -> None:
        self._backward = problem.is_backward.tolist()
        self._unit = problem.op_unit.tolist()
        self._capacity = problem.device_memory.tolist()
        self._devices = _bit_sets(np.isfinite(problem.unit_time))
        self._memory = problem.unit_memory.tolist()
        self._parent = list(range(problem.unit_count))
        self._largest: dict[int, float] = {}
        self.op_devices: Sequence[int] = [self._devices[unit] for unit in self._unit]
        self.op_memory: Sequence[float] = problem.op_memory.tolist()

    def compatible(self, devices: int, memory: float) -> bool:
        """Whether one of `devices` (a bit per device) has at least `memory` bytes."""
        if devices not in self._largest:
            self._largest[devices] = max(
                (bytes_ for d, bytes_ in enumerate(self._capacity) if devices >> d & 1),
                default=-1.0,
            )
        return memory <= self._largest[devices]

    def together(self, ops: Iterable[int]) -> bool:
        """Put `ops` on one device if that can be; False, and nothing changed, if not."""
        ops = list(ops)
        if len({self._backward[op] for op in ops}) > 1:
            return False
        roots = sorted({self._find(self._unit[op]) for op in ops})
        if len(roots) == 1:
            return True
        devices, memory = -1, 0.0
        for root in roots:
            devices &= self._devices[root]
            memory += self._memory[root]
        if not self.compatible(devices, memory):
            return False
        for root in roots:
            self._parent[root] = roots[0]
        self._devices[roots[0]], self._memory[roots[0]] = devices, memory
        return True

    def _find(self, unit: int) -> int:
        parent = self._parent
        while parent[unit] != unit:
            parent[unit] = parent[parent[unit]]
            unit = parent[unit]
        return unit


def _bit_sets(rows: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> list[int]:
    """Each row of flags as an int with one bit per column."""
    packed = np.packbits(rows, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]
