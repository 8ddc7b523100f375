"""The integer program for invocation latency (Tarnawski et al. 2020, Figs. 3 and 4).

Seconds are scaled so that the horizon, a latency that is known to be enough, is `HORIZON`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from placewright.analysis.slots import accelerators, cpu_choices
from placewright.budget import Budget
from placewright.errors import GraphError
from placewright.formulations.fit import Chosen
from placewright.formulations.formulation import Timed
from placewright.graph import Floats
from placewright.kernels.invocation.timing import READS, WRITES, equal_accelerators
from placewright.outcome import InvocationTable
from placewright.plan import Placement, numbered
from placewright.problem import Problem
from placewright.simulate.invocation import invoke
from placewright.solvers.mathopt import HORIZON, Program, Term

Slot = tuple[int, int]
"""An accelerator, and the number of its invocation."""


class InvocationProgram:
    """Variables, by the names of the paper; edges, tensors and slots (j of Fig. 4) as keys.

    - `x[part][place]`: whether a part of the model is in a slot, or on a CPU. A part is the ops
      of one unit and way where accelerators have one subgraph (per way), else an op;
    - `z[slot][op]` of eqs 11 to 13, which make a slot's ops contiguous;
    - `comm_in[slot][tensor]`, `comm_out[slot][tensor]`, `start`, `finish`, `latency[op]`, `total`;
    - in training `forward[slot]`: whether the slot is for forward ops (a device runs those of both
      ways in any order; of no way are there more than it has ops);
    - with `ranked`, `rank` of ops and slots: a slot comes after what it reads even where that
      takes no time. Without, subgraphs that take no time might wait for each other.
    """

    def __init__(
        self, problem: Problem, horizon: float, least: float, limit: Budget, *, ranked: bool
    ) -> None:
        self.problem = problem
        self.scale = horizon / HORIZON
        self.ranked = ranked
        self.training = bool(problem.is_backward.any())
        q = problem.options.subgraphs
        backward = int(problem.is_backward.sum())
        self.forward_slots = min(q, problem.op_count - backward)
        slots = self.forward_slots + min(q, backward)
        self.cpus: list[int] = cpu_choices(problem).tolist()
        self.slots: list[Slot] = [
            (device, number) for device in accelerators(problem).tolist() for number in range(slots)
        ]
        self.part = self._parts()
        self.edges = list(
            zip(
                problem.edge_producer.tolist(),
                problem.edge_tensor.tolist(),
                problem.consumers.tolist(),
                strict=True,
            )
        )
        self.start: dict[Slot, int] = {}
        self.finish: dict[Slot, int] = {}
        self.comm_in: dict[Slot, dict[int, int]] = {}
        self.comm_out: dict[Slot, dict[int, int]] = {}
        self.z: dict[Slot, list[int]] = {}
        self.program = Program(limit)
        self._variables_and_rows(least)

    def _variables_and_rows(self, least: float) -> None:
        problem = self.problem
        self.total = self.program.variable(least / self.scale, HORIZON)
        self.latency = [self.program.variable(0.0, HORIZON) for _ in range(problem.op_count)]
        for each in self.latency:
            self.program.row([(self.total, 1.0), (each, -1.0)], lower=0.0)
        self._place()
        self._run_on_cpus()
        for slot in self.slots:
            self._invoke(slot)
        self._follow()
        self._break_symmetry()
        self.program.minimise(self.total)

    # -- where (eqs 1 and 3*)

    def _parts(self) -> list[int]:
        """`[op]` the part it belongs to."""
        problem = self.problem
        if problem.options.subgraphs > 1:
            return list(range(problem.op_count))
        number: dict[tuple[int, bool], int] = {}
        ways = zip(problem.op_unit.tolist(), problem.is_backward.tolist(), strict=True)
        return [number.setdefault(key, len(number)) for key in ways]

    def _place(self) -> None:
        problem, program = self.problem, self.program
        self.x: list[dict[int | Slot, int]] = [{} for _ in range(max(self.part) + 1)]
        self.unit_parts: dict[int, list[int]] = defaultdict(list)
        self.part_backward = [False] * len(self.x)
        for op, part in enumerate(self.part):
            unit = int(problem.op_unit[op])
            self.part_backward[part] = bool(problem.is_backward[op])
            if part in self.unit_parts[unit]:
                continue
            self.unit_parts[unit].append(part)
            places: list[int | Slot] = [*self.cpus, *self.slots]
            for place in places:
                device = place[0] if isinstance(place, tuple) else place
                if math.isfinite(problem.unit_time[unit, device]):
                    self.x[part][place] = program.binary()
            program.row([(x, 1.0) for x in self.x[part].values()], 1.0, 1.0)
        self._keep_together()
        for device in {*self.cpus, *(slot[0] for slot in self.slots)}:
            self._fit(device)
        if self.training:
            self._turn()

    def _keep_together(self) -> None:
        """The parts of a unit on one device."""
        for first, *others in self.unit_parts.values():
            for device in {*self.cpus, *(slot[0] for slot in self.slots)}:
                for other in others if (others and self.on(first, device)) else ():
                    together = [(x, 1.0) for x in self.on(first, device)]
                    together += [(x, -1.0) for x in self.on(other, device)]
                    self.program.row(together, 0.0, 0.0)

    def on(self, part: int, device: int) -> list[int]:
        """The variables of which one is 1 where the part is on the device."""
        return [
            x
            for place, x in self.x[part].items()
            if (place[0] if isinstance(place, tuple) else place) == device
        ]

    def _fit(self, device: int) -> None:
        capacity = float(self.problem.device_memory[device])
        if capacity >= float(self.problem.op_memory.sum()):
            return
        used: list[Term] = []
        for unit, parts in self.unit_parts.items():
            memory = float(self.problem.unit_memory[unit])
            if memory > capacity:
                for x in self.on(parts[0], device):
                    self.program.row([(x, 1.0)], upper=0.0)
            elif memory > 0:
                used += [(x, memory / capacity) for x in self.on(parts[0], device)]
        self.program.row(used, upper=1.0)

    def _turn(self) -> None:
        """Each slot for one way only (§4.2)."""
        self.forward = {slot: self.program.binary() for slot in self.slots}
        for device in {slot[0] for slot in self.slots}:
            flags = [(flag, 1.0) for slot, flag in self.forward.items() if slot[0] == device]
            self.program.row(flags, float(self.forward_slots), float(self.forward_slots))
        for part, backward in enumerate(self.part_backward):
            for slot, x in self.x[part].items():
                if isinstance(slot, tuple):
                    flag = self.forward[slot]
                    # x ≤ forward, or x ≤ 1 - forward
                    terms = [(x, 1.0), (flag, 1.0 if backward else -1.0)]
                    self.program.row(terms, upper=1.0 if backward else 0.0)

    def forbid(self, chosen: Chosen) -> None:
        """Not all of these together (a cover inequality)."""
        terms = [(x, 1.0) for unit, d in chosen for x in self.on(self.unit_parts[unit][0], d)]
        self.program.row(terms, upper=len(chosen) - 1.0)

    # -- when (eqs 4 to 10)

    def _run_on_cpus(self) -> None:
        """Eqs 8 and 9."""
        for op in range(self.problem.op_count):
            self.program.row([(self.latency[op], 1.0), *self._cpu_time(op)], lower=0.0)
        for producer, consumer in {(a, b) for a, _, b in self.edges}:
            self.program.row(
                [
                    (self.latency[consumer], 1.0),
                    (self.latency[producer], -1.0),
                    *self._cpu_time(consumer),
                ],
                lower=0.0,
            )

    def _cpu_time(self, op: int) -> list[Term]:
        here = self.x[self.part[op]]
        return [
            (here[cpu], -float(self.problem.op_time[op, cpu]) / self.scale)
            for cpu in self.cpus
            if cpu in here
        ]

    def inside(self, op: int, slot: Slot) -> int | None:
        return self.x[self.part[op]].get(slot)

    def _invoke(self, slot: Slot) -> None:
        """Eqs 4 to 7, 10, and 11 to 13 for one slot."""
        program, problem = self.program, self.problem
        self.start[slot] = program.variable(0.0, HORIZON)
        self.finish[slot] = program.variable(0.0, HORIZON)
        self.comm_in[slot], self.comm_out[slot] = self._transfers(slot)
        for tensor, comm in self.comm_in[slot].items():
            producer = int(problem.tensor_producer[tensor])
            program.row(
                [(self.start[slot], 1.0), (self.latency[producer], -1.0), (comm, -HORIZON)],
                lower=-HORIZON,
            )
        spent: list[Term] = [(self.finish[slot], 1.0), (self.start[slot], -1.0)]
        for op in range(problem.op_count):
            x = self.inside(op, slot)
            if x is not None:
                spent.append((x, -float(problem.op_time[op, slot[0]]) / self.scale))
                program.row(
                    [(self.latency[op], 1.0), (self.finish[slot], -1.0), (x, -HORIZON)],
                    lower=-HORIZON,
                )
        for way, found in ((READS, self.comm_in[slot]), (WRITES, self.comm_out[slot])):
            spent += [(comm, -self._host_time(way, slot, t)) for t, comm in found.items()]
        program.row(spent, 0.0, 0.0)
        self._contiguous(slot)

    def _transfers(self, slot: Slot) -> tuple[dict[int, int], dict[int, int]]:
        """Tensor → 1 if the slot reads it from elsewhere; and if it writes it for others."""
        comm_in: dict[int, int] = {}
        comm_out: dict[int, int] = {}
        for producer, tensor, consumer in self.edges:
            if self.part[producer] == self.part[consumer]:
                continue
            source, reader = self.inside(producer, slot), self.inside(consumer, slot)
            ends = [(source, -1.0)] if source is not None else []
            if reader is not None:
                self._at_least(comm_in, tensor, [*ends, (reader, 1.0)])
            if source is not None:
                ends = [(reader, -1.0)] if reader is not None else []
                self._at_least(comm_out, tensor, [*ends, (source, 1.0)])
        return comm_in, comm_out

    def _at_least(self, comm: dict[int, int], tensor: int, terms: list[Term]) -> None:
        if tensor not in comm:
            comm[tensor] = self.program.variable(0.0, 1.0)
        self.program.row([(comm[tensor], -1.0), *terms], upper=0.0)

    def _host_time(self, way: int, slot: Slot, tensor: int) -> float:
        problem, device = self.problem, slot[0]
        per_byte = float(problem.host_seconds_per_byte[way, device])
        seconds = float(problem.host_latency[way, device])
        return (seconds + float(problem.tensor_bytes[tensor]) * per_byte) / self.scale

    def _contiguous(self, slot: Slot) -> None:
        z = self.z[slot] = [self.program.variable(0.0, 1.0) for _ in self.part]
        for op, each in enumerate(z):
            if (x := self.inside(op, slot)) is not None:
                self.program.row([(each, 1.0), (x, -1.0)], lower=0.0)
        for producer, consumer in {(a, b) for a, _, b in self.edges}:
            self.program.row([(z[consumer], 1.0), (z[producer], -1.0)], upper=0.0)
            source, reader = self.inside(producer, slot), self.inside(consumer, slot)
            if source is not None and source != reader:
                terms = [(z[consumer], 1.0), (source, 1.0)]
                self.program.row(
                    terms + ([(reader, -1.0)] if reader is not None else []), upper=1.0
                )

    def _follow(self) -> None:
        """Eq 14: the slots of an accelerator one after another; and ranks, if wanted."""
        pairs = [(a, b) for a, b in pairwise(self.slots) if a[0] == b[0]]
        for before, after in pairs:
            self.program.row([(self.start[after], 1.0), (self.finish[before], -1.0)], lower=0.0)
        if self.ranked:
            self._rank(pairs)

    def _rank(self, pairs: list[tuple[Slot, Slot]]) -> None:
        """Ops and slots in an order in which they can run; `pairs` of slots follow each other."""
        most = float(len(self.slots))
        program = self.program
        self.op_rank = [program.variable(0.0, most) for _ in self.part]
        self.slot_rank = {slot: program.variable(0.0, most) for slot in self.slots}
        for before, after in pairs:
            program.row([(self.slot_rank[after], 1.0), (self.slot_rank[before], -1.0)], lower=0.0)
        for producer, consumer in {(a, b) for a, _, b in self.edges}:
            program.row([(self.op_rank[consumer], 1.0), (self.op_rank[producer], -1.0)], lower=0.0)
        for slot in self.slots:
            rank = self.slot_rank[slot]
            for op in range(self.problem.op_count):
                if (x := self.inside(op, slot)) is not None:
                    far = [(x, most)]
                    program.row([(self.op_rank[op], 1.0), (rank, -1.0), *far], upper=most)
                    program.row([(rank, 1.0), (self.op_rank[op], -1.0), *far], upper=most)
            for tensor, comm in self.comm_in[slot].items():
                source = self.op_rank[int(self.problem.tensor_producer[tensor])]
                far = [(comm, -(most + 1.0))]
                program.row([(rank, 1.0), (source, -1.0), *far], lower=-most)

    def _break_symmetry(self) -> None:
        """Of equal accelerators, the next one takes no part before the one before it has one.

        Of the slots of an accelerator those that have ops come first.
        """
        for slot, following in pairwise(self.slots):
            if slot[0] == following[0]:
                there = [(here[slot], -1.0) for here in self.x if slot in here]
                for here in self.x:
                    if following in here:
                        self.program.row([(here[following], 1.0), *there], upper=0.0)
        for group in equal_accelerators(self.problem):
            for before, after in pairwise(group):
                earlier: list[Term] = []
                for parts in self._by_first_op():
                    for x in self.on(parts, after):
                        self.program.row([(x, 1.0), *earlier], upper=0.0)
                    earlier += [(x, -1.0) for x in self.on(parts, before)]

    def _by_first_op(self) -> Iterator[int]:
        """Each unit's first part, in topological order of the units' first ops."""
        seen: set[int] = set()
        for op in self.problem.topological_order.tolist():
            unit = int(self.problem.op_unit[op])
            if unit not in seen:
                seen.add(unit)
                yield self.unit_parts[unit][0]

    # -- solutions

    def hint(self, start: Timed) -> Floats | None:
        """The value of every variable in a plan, with equal accelerators named by first use.

        None with ranks, which have no values there.
        """
        if self.ranked:
            return None
        placement = self._renamed(start.placement)
        outcome = invoke(self.problem, placement)
        assert placement.subgraph is not None
        values = np.zeros(self.program.variable_count)
        pairs = zip(placement.device.tolist(), placement.subgraph.tolist(), strict=True)
        where: list[int | Slot] = [
            device if self.problem.is_cpu[device] else (device, number) for device, number in pairs
        ]
        values[self.latency] = outcome.op_finish / self.scale
        values[self.total] = outcome.value / self.scale
        for op, place in enumerate(where):
            values[self.x[self.part[op]][place]] = 1.0
        self._hint_times(values, outcome.invocations)
        self._hint_transfers(values, where)
        self._hint_ancestors(values, where)
        if self.training:
            self._hint_turns(values, where)
        return values

    def _hint_times(self, values: Floats, table: InvocationTable) -> None:
        end = table.start + table.incoming + table.compute + table.outgoing
        times = {
            (int(d), int(k)): (float(s), float(e))
            for d, k, s, e in zip(table.device, table.subgraph, table.start, end, strict=True)
        }
        free: dict[int, float] = defaultdict(float)
        for slot in self.slots:
            begin, finish = times.get(slot, (free[slot[0]], free[slot[0]]))
            free[slot[0]] = finish
            values[self.start[slot]] = begin / self.scale
            values[self.finish[slot]] = finish / self.scale

    def _hint_transfers(self, values: Floats, where: list[int | Slot]) -> None:
        for producer, tensor, consumer in self.edges:
            home, reader = where[producer], where[consumer]
            if home != reader:
                if isinstance(reader, tuple) and tensor in self.comm_in[reader]:
                    values[self.comm_in[reader][tensor]] = 1.0
                if isinstance(home, tuple) and tensor in self.comm_out[home]:
                    values[self.comm_out[home][tensor]] = 1.0

    def _hint_ancestors(self, values: Floats, where: list[int | Slot]) -> None:
        """z: the slot's ops and their ancestors."""
        consumers: dict[int, list[int]] = defaultdict(list)
        for producer, _, consumer in self.edges:
            consumers[producer].append(consumer)
        for slot in self.slots:
            z = self.z[slot]
            for op in reversed(self.problem.topological_order.tolist()):
                if where[op] == slot or any(values[z[each]] for each in consumers[op]):
                    values[z[op]] = 1.0

    def _hint_turns(self, values: Floats, where: list[int | Slot]) -> None:
        backward = {place for op, place in enumerate(where) if self.problem.is_backward[op]}
        used = set(where)
        for device in {slot[0] for slot in self.slots}:
            mine = [slot for slot in self.slots if slot[0] == device]
            forward = [slot for slot in mine if slot in used and slot not in backward]
            forward += [slot for slot in mine if slot not in used]
            for slot in forward[: self.forward_slots]:
                values[self.forward[slot]] = 1.0

    def _renamed(self, placement: Placement) -> Placement:
        """CPUs as the ones that have variables, equal accelerators in the order of first use."""
        problem = self.problem
        target = np.arange(problem.device_count)
        for device in np.flatnonzero(problem.is_cpu).tolist():
            if device not in self.cpus:
                target[device] = next(c for c in self.cpus if _same(problem, c, device))
        firsts = [op for part in self._by_first_op() for op in [self.part.index(part)]]
        used = list(dict.fromkeys(placement.device[firsts].tolist()))
        for group in equal_accelerators(problem):
            by_use = [d for d in used if d in group]
            by_use += [d for d in group if d not in used]
            target[by_use] = group
        return Placement(target[placement.device].astype(np.int32), subgraph=placement.subgraph)

    def decode(self, values: Floats) -> Placement:
        device = np.zeros(self.problem.op_count, dtype=np.int32)
        number = np.full(self.problem.op_count, -1, dtype=np.int32)
        for op, part in enumerate(self.part):
            place = max(self.x[part], key=lambda each: values[self.x[part][each]])
            if isinstance(place, tuple):
                device[op], number[op] = place
            else:
                device[op] = place
        return Placement(device, subgraph=numbered(device, number))


def binaries(problem: Problem) -> int:
    """How many yes-or-no variables the program has for where parts go, CPUs aside."""
    per_device = problem.options.subgraphs * (2 if problem.is_backward.any() else 1)
    parts = problem.unit_count if problem.options.subgraphs == 1 else problem.op_count
    return parts * int((~problem.is_cpu).sum()) * per_device


def value_of(problem: Problem, placement: Placement) -> float:
    """Seconds; infinite where the subgraphs wait for each other in a circle."""
    try:
        return invoke(problem, placement).value
    except GraphError:
        return math.inf


def _same(problem: Problem, one: int, other: int) -> bool:
    return np.array_equal(problem.op_time[:, one], problem.op_time[:, other])
