"""The rows of a frame's model that are about its ops: where they are, and when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from placewright.formulations.latency.cp_frame import Frame, windows_of
from placewright.graph import Ints
from placewright.problem import LONG_ROUNDING, ROUNDING

CAPACITY = 1_000_000_000
"""Whole numbers that a device's memory is cut into."""


class OpRows:
    """Placement and ops of a frame within a horizon, times in whole ticks of it; see `model`.

    `on[unit][device]` literals, `start[k]` of ``ops[k]`` and ``length[k][device]``, `end` the
    makespan. Nothing is written if some op has no device left (`is_open` is False).
    """

    def __init__(self, frame: Frame, horizon: float, ticks: int, is_linear: bool) -> None:
        from ortools.sat.python import cp_model

        self.frame, self.problem = frame, frame.problem
        self.is_linear = is_linear
        self.scale = ticks / horizon if horizon > 0 else 1.0
        # Rounding down an op's or a transfer's time takes a tick at most off a path.
        self.limit = self._down(horizon) + 1
        rounded = horizon * (1 + ROUNDING * len(frame.ops))
        self.windows, self.delay = windows_of(frame, rounded)
        self.cp = cp_model
        self.model = cp_model.CpModel()
        self.place = {op: k for k, op in enumerate(frame.ops)}
        self.solver: Any = None
        self.is_open = bool(self.windows.allowed[self._units()].any(axis=1).all())
        if self.is_open:
            self.floor = self._floor()
            self.end = self.model.new_int_var(self.floor, self.limit, "end")
            self._put()
            self._run()

    def _floor(self) -> int:
        """The makespan in ticks is no less: the longest path through an op on its best device."""
        windows = self.windows
        path = (windows.head + windows.time + windows.tail).min(axis=1).max()
        return self._down(max(float(path) * (1 - LONG_ROUNDING), self.frame.floor))

    # -- placement -------------------------------------------------------------------------------

    def _units(self) -> Ints:
        return np.unique(self.problem.op_unit[self.frame.ops])

    def _put(self) -> None:
        """`on[unit][device]`, one of them true; what is put on a device fits there."""
        model, problem, frame = self.model, self.problem, self.frame
        self.on: dict[int, dict[int, Any]] = {}
        for unit in self._units().tolist():
            devices = np.flatnonzero(self.windows.allowed[unit]).tolist()
            if len(devices) == 1:
                self.on[unit] = {devices[0]: model.new_constant(1)}
                continue
            self.on[unit] = {d: model.new_bool_var(f"u{unit}d{d}") for d in devices}
            model.add_exactly_one(self.on[unit].values())
        for device, capacity in enumerate(frame.capacity.tolist()):
            here = [(unit, on[device]) for unit, on in self.on.items() if device in on]
            if sum(problem.unit_memory[unit] for unit, _ in here) > capacity > 0:
                share = problem.unit_memory / capacity * (CAPACITY * (1 - ROUNDING))
                # Where hardly a byte is left: more than all of it, and yet a number of CP-SAT.
                share = np.minimum(share, 2.0 * CAPACITY)
                self._at_most([(x, int(share[unit])) for unit, x in here], CAPACITY)
            elif capacity <= 0:
                for unit, x in here:
                    if problem.unit_memory[unit] > 0:
                        model.add(x == 0)

    def of(self, op: int) -> dict[int, Any]:
        """Device → literal."""
        return self.on[int(self.problem.op_unit[op])]

    # -- ops -------------------------------------------------------------------------------------

    def _run(self) -> None:
        model, windows = self.model, self.windows
        rows: dict[int, list[Any]] = {}
        loads: dict[int, list[tuple[Any, int]]] = {}
        self.start: list[Any] = []
        self.length: list[dict[int, int]] = []
        for k, op in enumerate(self.frame.ops):
            on = self.of(op)
            head, time, tail = windows.head[k], windows.time[k], windows.tail[k]
            latest = int((self.limit / self.scale - (time + tail).min()) * self.scale) + 2
            earliest = self._down(head.min())
            start = model.new_int_var(earliest, min(max(latest, earliest), self.limit), f"s{op}")
            length = {d: self._down(time[d]) for d in on}
            self.start.append(start)
            self.length.append(length)
            self._spread(k, on, {d: self._down(time[d] + tail[d]) for d in on})
            if head[list(on)].min() < head[list(on)].max():
                self.at_least([(start, 1), *((x, -self._down(head[d])) for d, x in on.items())], 0)
            for d, x in on.items():
                interval = model.new_optional_fixed_size_interval_var(start, length[d], x, "")
                rows.setdefault(d, []).append(interval)
                loads.setdefault(d, []).append((x, length[d]))
        for d, row in rows.items():
            if len(row) > 1:
                model.add_no_overlap(row)
                self._load(d, loads[d])
        for one, two in self.frame.chains:
            self.at_least([(self.start[self.place[two]], 1), *self.minus_finish(one)], 0)

    def _spread(self, k: int, on: dict[int, Any], rest: dict[int, int]) -> None:
        """The end is no sooner than the op's start and what is after it on its device."""
        self.at_least(
            [(self.end, 1), (self.start[k], -1), *((x, -rest[d]) for d, x in on.items())], 0
        )

    def _load(self, device: int, load: list[tuple[Any, int]]) -> None:
        """What is on a device fits between the least head and the least tail of it."""
        ks = [k for k, op in enumerate(self.frame.ops) if device in self.of(op)]
        around = self._down(self.windows.head[ks, device].min())
        around += self._down(self.windows.tail[ks, device].min())
        # No more than the floor, so that an empty device obeys too.
        self.at_least(
            [(self.end, 1), *((x, -length) for x, length in load)], min(around, self.floor)
        )

    def minus_finish(self, op: int) -> list[tuple[Any, int]]:
        k = self.place[op]
        on = self.of(op)
        return [(self.start[k], -1), *((on[d], -n) for d, n in self.length[k].items())]

    # -- rows ------------------------------------------------------------------------------------

    def _down(self, seconds: float) -> int:
        return int(seconds * (self.scale * (1 - ROUNDING)))

    def sum_of(self, terms: Iterable[tuple[Any, int]]) -> Any:
        variables, coefficients = zip(*terms, strict=True)
        return self.cp.LinearExpr.weighted_sum(variables, coefficients)

    def at_least(self, terms: list[tuple[Any, int]], least: int, condition: Any = None) -> None:
        """Σ coefficient · variable ≥ least, perhaps only if a literal holds."""
        row = self.model.add(self.sum_of(terms) >= least)
        if condition is not None:
            row.only_enforce_if(condition)

    def _at_most(self, terms: list[tuple[Any, int]], most: int) -> None:
        self.model.add(self.sum_of(terms) <= most)
