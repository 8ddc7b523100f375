"""The same problem as `batch_program`, as a constraint program for CP-SAT.

CP-SAT knows that a device runs one batch at a time (`no overlap` of optional intervals) and needs
no big constants for it. So it can be told of channels too: under contention transfers are intervals
on them (`cp_transfers`), which DiviML's program does not know. It counts in whole ticks: durations
and transfers are rounded down, so that what it proves holds for the true ones, and plans are timed
anew.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from placewright.analysis.symmetry import Symmetry
from placewright.budget import Budget
from placewright.formulations.batch.cp_transfers import Transfers, placement_in_order
from placewright.formulations.batch.diviml_program import new_names, placement_of
from placewright.formulations.batch.instance import Batch, BatchIncumbent, BatchInstance
from placewright.formulations.batch.instance import chunk_devices as chunks_of
from placewright.formulations.fit import Chosen
from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.solvers.cp_sat import cp_solver, solve_model
from placewright.solvers.mathopt import HORIZON, OutOfTimeError
from placewright.solvers.running import Answer

CP_SAT = "cp-sat"
TICKS = 1_000_000  # of the horizon
PER_UNIT = TICKS / HORIZON


class BatchModel:
    """The model, built by its constructor; `solve` gives a placement and what is proved.

    Variables as of `BatchProgram`, without order variables. What is known of a chunk or a size is
    no variable: a literal is True, False or CP-SAT's.
    """

    def __init__(
        self, instance: BatchInstance, symmetry: Symmetry, limit: Budget | None = None
    ) -> None:
        """OutOfTimeError if `limit` passes while it is written."""
        from ortools.sat.python import cp_model

        self.limit = limit or Budget()
        self.instance = instance
        self.problem = instance.problem
        self.symmetry = symmetry
        self.is_contended = self.problem.options.contention != "none"
        self._shared: dict[tuple[int, int, int, int], dict[int, Any]] = {}
        self.model: Any = cp_model.CpModel()
        self._variables()
        self._assignment()
        self._memory()
        self._latency()
        self._dependencies()
        self.transfers = Transfers(self) if self.is_contended else None
        self._no_overlap()
        self._alike()
        self.model.minimize(self.latency)

    def look(self) -> None:
        """At the clock."""
        if self.limit.left <= 0:
            raise OutOfTimeError

    # -- variables -------------------------------------------------------------------------------

    def _variables(self) -> None:
        instance, model = self.instance, self.model
        self.horizon = TICKS
        self.latency = model.new_int_var(0, self.horizon, "")
        self.on: list[dict[int, list[Any]]] = []
        self.size: list[dict[int, dict[int, Any]]] = []
        for unit, known in enumerate(instance.known.tolist()):
            self.look()
            devices = instance.devices(unit)
            free = known[0] < 0
            self.on.append(
                {
                    u: [model.new_bool_var("") if free else where == u for where in known]
                    for u in devices
                }
            )
            self.size.append(
                {
                    u: {
                        k: model.new_bool_var("") if free else True
                        for k in instance.sizes_on(unit, u)
                    }
                    for u in devices
                }
            )
        self.time: Floats = np.floor(np.where(np.isinf(instance.time), 0, instance.time) * PER_UNIT)
        self.start: dict[Batch, Any] = {}
        for op, unit in enumerate(self.problem.op_unit.tolist()):
            for u in self.size[unit]:
                first = self.ticks(instance.head[op, u])
                last = max(first, self.ticks(instance.latest_start[op, u]) + 1)
                if first + 1 >= last and instance.latest_start[op, u] == instance.head[op, u]:
                    last = first
                self.start[op, u] = model.new_int_var(first, last, "")

    def _sizes(self, op: int, device: int) -> dict[int, Any]:
        return self.size[int(self.problem.op_unit[op])][device]

    def _is_free(self, op: int) -> bool:
        return bool(self.instance.known[self.problem.op_unit[op], 0] < 0)

    def end(self, op: int, device: int) -> Any:
        """When a batch ends; when it would start, where there is none."""
        return self.start[op, device] + self._duration(op, device)

    def _duration(self, op: int, device: int) -> Any:
        times = self.time[op, device]
        return sum(int(times[k]) * b for k, b in self._sizes(op, device).items())

    # -- constraints -----------------------------------------------------------------------------

    def _assignment(self) -> None:
        instance, model = self.instance, self.model
        for unit, known in enumerate(instance.known.tolist()):
            if known[0] >= 0:
                continue
            on, size = self.on[unit], self.size[unit]
            for chunk in range(instance.chunks):
                model.add_exactly_one(x[chunk] for x in on.values())
            for u, x in on.items():
                model.add(sum(x) == sum(instance.sizes[k] * b for k, b in size[u].items()))
                model.add_at_most_one(size[u].values())

    def _memory(self) -> None:
        problem = self.problem
        for device, capacity in enumerate(problem.device_memory.tolist()):
            here = [unit for unit, size in enumerate(self.size) if device in size]
            if problem.unit_memory[here].sum() > capacity:
                share = np.ceil(problem.unit_memory / capacity * TICKS).astype(int)
                used = [
                    int(share[unit]) * b for unit in here for b in self.size[unit][device].values()
                ]
                self.model.add(sum(used) <= TICKS + len(here))

    def _latency(self) -> None:
        """As `BatchProgram._latency`."""
        instance, model = self.instance, self.model
        work: dict[int, list[int]] = {}
        for (op, u), start in self.start.items():
            head, after = self.ticks(instance.head[op, u]), self.ticks(instance.tail[op, u])
            whole = head + after
            end = [(int(self.time[op, u, k]) + whole) * b for k, b in self._sizes(op, u).items()]
            model.add(self.latency + head >= start + sum(end))
            work.setdefault(u, []).append(op)
        for u, ops in work.items():
            outside = self.ticks(instance.head[ops, u].min()) + self.ticks(
                instance.tail[ops, u].min()
            )
            load = sum(self._duration(op, u) for op in ops)
            there = [b for op in ops for b in self._sizes(op, u).values()]
            busy: Any = True
            if outside > 0 and not any(b is True for b in there):
                busy = model.new_bool_var("")
                for b in there:
                    model.add_implication(b, busy)
            model.add(self.latency >= outside * busy + load)

    def _dependencies(self) -> None:
        for (i, j), move in self.instance.moves.items():
            self.look()
            for u in self.instance.devices(int(self.problem.op_unit[i])):
                for v in self.instance.devices(int(self.problem.op_unit[j])):
                    if u == v or not self.is_contended:
                        self._dependency(i, j, u, v, self.ticks(move[u, v]))

    def _dependency(self, i: int, j: int, u: int, v: int, move: int) -> None:
        unit = self.problem.op_unit
        if unit[i] == unit[j]:
            sharing = list(self._sizes(i, u).values()) if u == v else []
        else:
            sharing = list(self.sharing(int(unit[i]), int(unit[j]), u, v).values())
        if not sharing:
            return
        waits = self.model.add(self.start[j, v] >= self.end(i, u) + move)
        if not any(each is True for each in sharing):
            y = sharing[0]
            if len(sharing) > 1:
                y = self.model.new_bool_var("")
                for each in sharing:
                    self.model.add_implication(each, y)
            waits.only_enforce_if(y)

    def sharing(self, one: int, two: int, u: int, v: int) -> dict[int, Any]:
        """By chunk: what holds if units `one` and `two` have it on devices u and v."""
        found = self._shared.get((one, two, u, v))
        if found is not None:
            return found
        found = self._shared[one, two, u, v] = {}
        for chunk, (x, y) in enumerate(zip(self.on[one][u], self.on[two][v], strict=True)):
            if x is False or y is False:
                continue
            if x is True or y is True:
                found[chunk] = y if x is True else x
            else:
                both = self.model.new_bool_var("")
                self.model.add_bool_or(x.negated(), y.negated(), both)
                found[chunk] = both
        return found

    def _no_overlap(self) -> None:
        instance, model = self.instance, self.model
        for one, two, u in instance.orders():
            self.look()
            row = model.add(self.start[two, u] >= self.end(one, u))
            if self._is_free(one):
                row.only_enforce_if(self._used(one, u))
        meeting: dict[int, set[int]] = {}
        for one, two, u in instance.rivals():
            meeting.setdefault(u, set()).update((one, two))
        for u, ops in meeting.items():
            model.add_no_overlap([each for op in sorted(ops) for each in self._intervals(op, u)])

    def _used(self, op: int, device: int) -> Any:
        sizes = self._sizes(op, device)
        if len(sizes) == 1:
            return next(iter(sizes.values()))
        used = self.model.new_bool_var("")
        self.model.add(sum(sizes.values()) == used)
        return used

    def _intervals(self, op: int, device: int) -> list[Any]:
        start = self.start[op, device]
        intervals = []
        for k, b in self._sizes(op, device).items():
            length = int(self.time[op, device, k])
            if b is True:
                intervals.append(self.model.new_fixed_size_interval_var(start, length, ""))
            else:
                intervals.append(
                    self.model.new_optional_fixed_size_interval_var(start, length, b, "")
                )
        return intervals

    def _alike(self) -> None:
        """As `BatchProgram._alike`."""
        instance, model = self.instance, self.model
        base = self.problem.device_count
        units = dict.fromkeys(self.problem.op_unit[instance.precedence.order].tolist())
        free = [unit for unit in units if instance.known[unit, 0] < 0 and len(self.on[unit]) > 1]
        free = free[:4]
        for one, two in instance.alike():
            keys: dict[int, Any] = {1: 0, 2: 0}
            for place, unit in enumerate(free):
                weight = base ** (len(free) - 1 - place)
                for u, x in self.on[unit].items():
                    keys[1] += u * weight * x[one]
                    keys[2] += u * weight * x[two]
            if free:
                model.add(keys[1] <= keys[2])
        for weights in self.symmetry.rows(instance.time, instance.sizes):
            terms = [
                round(weight * PER_UNIT) * self.size[unit][device][k]
                for (unit, device, k), weight in weights.items()
                if k in self.size[unit].get(device, {})
            ]
            # Rounded, equal uses may differ by half a tick a term.
            model.add(sum(terms) >= -len(terms))

    # -- solving ---------------------------------------------------------------------------------

    def hint(self, incumbent: BatchIncumbent) -> None:
        """Start from the incumbent, if its chunks stay together."""
        device = chunks_of(incumbent.placement.device, self.instance.chunk)
        if device is None:
            return
        renamed = new_names(self.instance, self.symmetry, device)
        self._hint_at(self.instance.arranged(renamed[device]), incumbent, renamed)

    def _hint_at(self, device: Ints, incumbent: BatchIncumbent, renamed: Ints) -> None:
        batches, model = incumbent.schedule.batches, self.model
        for unit, ops in enumerate(self.instance.units):
            if self.instance.known[unit, 0] >= 0:
                continue
            for u, x in self.on[unit].items():
                there = device[ops[0]] == u
                for literal, is_there in zip(x, there.tolist(), strict=True):
                    model.add_hint(literal, is_there)
                count = int(there.sum())
                for k, b in self.size[unit][u].items():
                    model.add_hint(b, self.instance.sizes[k] == count)
        for op, u, start in zip(
            batches.op.tolist(), batches.device.tolist(), batches.start, strict=True
        ):
            variable = self.start.get((op, int(renamed[u])))
            if variable is not None:
                model.add_hint(variable, self.ticks(start / self.instance.scale))
        model.add_hint(self.latency, min(TICKS, self.ticks(incumbent.value / self.instance.scale)))

    def solve(
        self,
        seconds: float,
        seed: int,
        deterministic: float = math.inf,
        found: Callable[[Placement], None] | None = None,
    ) -> Answer[Placement]:
        """What is found in `seconds`, the bound in scaled time; `found` hears of it on the way.

        With `deterministic` units of CP-SAT's own time the result does not depend on the clock.
        """
        workers = (os.cpu_count() or 2) if math.isinf(deterministic) else 1
        solver = cp_solver(workers=workers, seed=seed, effort=deterministic)
        answer = solve_model(solver, self.model, Budget(seconds), self._decode, found)
        return replace(answer, bound=answer.bound / PER_UNIT)

    def forbid(self, chosen: Chosen) -> None:
        """Not all of these together."""
        used = [b for unit, device in chosen for b in self.size[unit][device].values()]
        self.model.add(sum(used) <= len(chosen) - 1)

    def _decode(self, solver: Any) -> Placement:
        device = np.empty((self.problem.op_count, self.instance.chunks), dtype=np.int32)
        for unit, ops in enumerate(self.instance.units):
            for u, x in self.on[unit].items():
                for chunk, literal in enumerate(x):
                    if literal is True or (literal is not False and solver.value(literal)):
                        device[ops, chunk] = u
        if self.transfers is not None:
            start = {batch: solver.value(start) for batch, start in self.start.items()}
            times = self.transfers.times(solver, start)
            return placement_in_order(self.problem, device, self._taken(solver), times)
        starts = {batch: solver.value(start) / PER_UNIT for batch, start in self.start.items()}
        return placement_of(self.problem, self.instance.chunk, device, starts, self.instance.scale)

    def _taken(self, solver: Any) -> Floats:
        """`[op, device]` ticks that the batches of a solution take."""
        taken = np.zeros((self.problem.op_count, self.problem.device_count))
        for op, u in self.start:
            for k, b in self._sizes(op, u).items():
                if b is True or solver.value(b):
                    taken[op, u] = self.time[op, u, k]
        return taken

    @staticmethod
    def ticks(time: float) -> int:
        """Whole ticks of scaled time, rounded down."""
        return int(np.floor(time * PER_UNIT))
