"""A neighbourhood of a plan: some units free, all others where they are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from placewright.formulations.batch.instance import Batch, BatchIncumbent, BatchInstance
from placewright.graph import Flags, Ints
from placewright.problem import Problem
from placewright.solvers.mathopt import HORIZON

REACH = 0.05


class Neighbourhood(BatchInstance):
    """Find devices for the units `free[unit]` and times for all; the other units stay.

    ``device[op, chunk]`` is where the incumbent has everything. Batches that start before the
    first of a free unit keep their times: what they wait for is known. The others of known units
    keep their order on each device. A free unit goes anywhere between them, but before what
    starts later than `reach` of the horizon after the last free batch has ended. Nor does it go
    to other devices than it has and those with `devices[device]`.
    """

    def __init__(
        self,
        problem: Problem,
        incumbent: BatchIncumbent,
        device: Ints,
        free: Flags,
        devices: Flags,
        reach: float = REACH,
    ) -> None:
        self._device, self._free, self._devices = device, free, devices
        self._incumbent = incumbent
        self._reach = reach
        super().__init__(problem, incumbent.value)
        for (op, u), start in self.held.items():
            self.latest_start[op, u] = start
            self.latest_finish[op, u] = self.span[op, u][1]

    def _possible(self) -> Flags:
        possible = super()._possible()
        first_op = np.array([ops[0] for ops in self.units])
        self.known = np.where(self._free[:, None], -1, self._device[first_op]).astype(np.int32)
        index = {size: number for number, size in enumerate(self.sizes)}
        for unit in np.flatnonzero(self._free).tolist():
            elsewhere = ~self._devices
            elsewhere[self._device[first_op[unit]]] = False
            possible[unit, elsewhere] = False
        for unit in np.flatnonzero(~self._free).tolist():
            possible[unit] = False
            for where, count in zip(*np.unique(self.known[unit], return_counts=True), strict=True):
                possible[unit, where, index[int(count)]] = True
        self._read_times()
        return possible

    def _read_times(self) -> None:
        """When the incumbent's batches run, in scaled time; which of them are held."""
        batches = self._incumbent.schedule.batches
        self.span: dict[Batch, tuple[float, float]] = {
            (op, u): (start / self.scale, finish / self.scale)
            for op, u, start, finish in zip(
                batches.op.tolist(),
                batches.device.tolist(),
                batches.start.tolist(),
                batches.finish.tolist(),
                strict=True,
            )
        }
        unit = self.problem.op_unit
        inside = [span for (op, _), span in self.span.items() if self._free[unit[op]]]
        self.begin = min(start for start, _ in inside)
        self.end = max(finish for _, finish in inside)
        known = [batch for batch in self.span if not self._free[unit[batch[0]]]]
        self.held = {b: self.span[b][0] for b in known if self.span[b][0] < self.begin}
        for (op, u), start in self.held.items():
            self.floor[op, u] = start
        place = self.precedence.position
        self._rows: dict[int, list[int]] = {u: [] for u in range(self.problem.device_count)}
        for op, u in sorted(known, key=lambda b: (*self.span[b], place[b[0]])):
            self._rows[u].append(op)

    def orders(self) -> list[tuple[int, int, int]]:
        """Known batches in their order; free ones before those out of reach."""
        found = []
        for u, row in self._rows.items():
            found += [(one, two, u) for one, two in pairwise(row) if (two, u) not in self.held]
            far = next((op for op in row if self._is_far(op, u)), None)
            if far is not None:
                found += [(op, far, u) for op in self._free_on(u)]
        return found

    def rivals(self) -> list[tuple[int, int, int]]:
        """Pairs of which one is free, in reach of each other."""
        found = []
        place = self.precedence.position
        for u, row in self._rows.items():
            free = self._free_on(u)
            near = [op for op in row if not self._is_far(op, u)]
            for number, one in enumerate(free):
                for two in free[number + 1 :] + near:
                    first, second = sorted((one, two), key=lambda op: place[op])
                    if self._compete(first, second, u):
                        found.append((first, second, u))
        return found

    def _is_far(self, op: int, device: int) -> bool:
        return self.span[op, device][0] > self.end + self._reach * HORIZON

    def _free_on(self, device: int) -> list[int]:
        """Ops of free units that may be there, in topological order."""
        unit = self.problem.op_unit
        return [
            op
            for op in self.precedence.order
            if self._free[unit[op]] and np.isfinite(self.quickest[op, device])
        ]
