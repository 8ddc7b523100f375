"""DiviML's mixed-integer program (§IV-A, equations 1–7) for a batch of inputs.

Variables, in scaled time: C; x[unit, device, chunk], which chunks of inputs are where (a chunk in
place of the paper's single input, see `batch_instance`; ops of a unit share theirs); b[unit,
device, size], which batches there are; s[op, device], when they start; d[op, op, device], which of
two batches on a device is first; busy[device], whether there are any. d may differ from device to
device, also for ops on a path: inputs 1 and 2 can be at a late op on a device before inputs 3 and 4
come to an early one there.

Two places differ from the paper's text. Its equation 3 also holds up batches that share no input
(with x + x − 1 = −1 it reads s_iu + t − om/β ≤ s_jv); here y[i, j, u, v] says whether they share
one, and only then does the second wait. And equation 6 counts activations too, which our memory
does not: `Problem.op_memory` is what an op keeps on every device where a batch of it runs.
"""

from __future__ import annotations

import math

import numpy as np

from placewright.analysis.symmetry import Symmetry
from placewright.budget import Budget
from placewright.formulations.batch.instance import Batch, BatchIncumbent, BatchInstance
from placewright.formulations.batch.instance import chunk_devices as chunks_of
from placewright.formulations.fit import Chosen
from placewright.formulations.latency.sequence import sequence_by_time
from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.problem import Problem
from placewright.simulate.batch import expand
from placewright.solvers.mathopt import HORIZON, Program, Term

LARGEST_KEY = 1000  # of the rows that order chunks: larger coefficients trouble solvers


class BatchProgram:
    """The program, built by its constructor, and the ways to and from plans."""

    def __init__(self, instance: BatchInstance, symmetry: Symmetry, limit: Budget) -> None:
        self.instance = instance
        self.problem = instance.problem
        self.scale = instance.scale
        self.symmetry = symmetry
        self.program = Program(limit)
        self._variables()
        self._assignment()  # 1, 4, 5
        self._memory()  # 6
        self._latency()  # 2
        self._dependencies()  # 3
        self._no_overlap()  # 7
        self._alike()
        self.program.minimise(self.latency)

    # -- variables -------------------------------------------------------------------------------

    def _variables(self) -> None:
        instance, program = self.instance, self.program
        self.latency = program.variable(0.0, HORIZON)
        self.on: list[dict[int, list[int]]] = []
        self.size: list[dict[int, dict[int, int]]] = []
        for unit, known in enumerate(instance.known.tolist()):
            devices = instance.devices(unit)
            self.on.append({u: [self._chunk_on(u, where) for where in known] for u in devices})
            sizes = {u: instance.sizes_on(unit, u) for u in devices}
            self.size.append({u: {k: program.binary() for k in sizes[u]} for u in devices})
        self.start: list[dict[int, int]] = []
        for op, unit in enumerate(self.problem.op_unit.tolist()):
            head, latest = instance.head[op].tolist(), instance.latest_start[op].tolist()
            self.start.append({u: program.variable(head[u], latest[u]) for u in self.size[unit]})
        self.before = {rivals: program.binary() for rivals in instance.rivals()}

    def _chunk_on(self, device: int, known: int) -> int:
        """x for a chunk whose device is `known`, or not (-1)."""
        if known < 0:
            return self.program.binary()
        fixed = float(known == device)
        return self.program.variable(fixed, fixed, integer=True)

    @property
    def _chunks(self) -> range:
        return range(self.instance.chunks)

    def _sizes(self, op: int, device: int) -> dict[int, int]:
        return self.size[int(self.problem.op_unit[op])][device]

    def _used(self, op: int, device: int, weight: float = 1.0) -> list[Term]:
        """1 if a batch of the op runs on the device: Σ_l b_iul."""
        return [(b, weight) for b in self._sizes(op, device).values()]

    def _duration(self, op: int, device: int, weight: float = 1.0) -> list[Term]:
        """Σ_l b_iul t_iul."""
        times = self.instance.time[op, device]
        return [(b, weight * float(times[k])) for k, b in self._sizes(op, device).items()]

    # -- constraints -----------------------------------------------------------------------------

    def _assignment(self) -> None:
        """Each chunk in one place, as many as a batch there has, at most one batch there."""
        for on, size in zip(self.on, self.size, strict=True):
            for chunk in self._chunks:
                self.program.row([(x[chunk], 1.0) for x in on.values()], 1.0, 1.0)
            counts = []
            for u, x in on.items():
                count = [(b, -float(self.instance.sizes[k])) for k, b in size[u].items()]
                self.program.row([*((each, 1.0) for each in x), *count], 0.0, 0.0)
                self.program.row([(b, 1.0) for b in size[u].values()], upper=1.0)
                counts += count
            total = -float(self.instance.chunks)
            self.program.row(counts, total, total)

    def _memory(self) -> None:
        """Weights are on every device where a batch runs; left out where everything would fit."""
        problem = self.problem
        for device, capacity in enumerate(problem.device_memory.tolist()):
            here = [unit for unit, size in enumerate(self.size) if device in size]
            if problem.unit_memory[here].sum() > capacity:
                self.program.row(
                    [
                        (b, float(problem.unit_memory[unit]) / capacity)
                        for unit in here
                        for b in self.size[unit][device].values()
                    ],
                    upper=1.0,
                )

    def _latency(self) -> None:
        """C is no less than the end of a batch and what must follow, nor than a device's work.

        Where there is no batch its start is the head, and C may be less; nor does anything come
        before or after the work of a device that has none.
        """
        instance, program = self.instance, self.program
        work: dict[int, list[int]] = {}
        for op, starts in enumerate(self.start):
            for u, start in starts.items():
                head, tail = float(instance.head[op, u]), float(instance.tail[op, u])
                end = [*self._duration(op, u, -1.0), *self._used(op, u, -head - tail)]
                program.row([(self.latency, 1.0), (start, -1.0), *end], lower=-head)
                work.setdefault(u, []).append(op)
        self.busy: dict[int, int] = {}
        for u, ops in work.items():
            self.busy[u] = program.variable(0.0, 1.0)
            for op in ops:
                program.row([(self.busy[u], 1.0), *self._used(op, u, -1.0)], lower=0.0)
            outside = float(instance.head[ops, u].min() + instance.tail[ops, u].min())
            load = [term for op in ops for term in self._duration(op, u, -1.0)]
            program.row([(self.latency, 1.0), (self.busy[u], -outside), *load], lower=0.0)

    def _dependencies(self) -> None:
        for (i, j), move in self.instance.moves.items():
            for u in self.start[i]:
                sharing = [self._dependency(i, j, u, v, float(move[u, v])) for v in self.start[j]]
                chosen = [term for terms in sharing for term in terms]
                self.program.row([*chosen, *self._used(i, u, -1.0)], lower=0.0)

    def _dependency(self, i: int, j: int, u: int, v: int, move: float) -> list[Term]:
        """The batch of j on v waits for that of i on u if they share an input; "they do"."""
        unit = self.problem.op_unit
        if unit[i] == unit[j]:
            if u != v:
                return []
            sharing = self._used(i, u)
        else:
            y = self.program.variable(0.0, 1.0)
            for one, two in zip(self.on[unit[i]][u], self.on[unit[j]][v], strict=True):
                self.program.row([(y, 1.0), (one, -1.0), (two, -1.0)], lower=-1.0)
            sharing = [(y, 1.0)]
        instance = self.instance
        loose = float(instance.latest_finish[i, u]) + move - float(instance.head[j, v])
        if loose > 0:
            row = [(self.start[j][v], 1.0), (self.start[i][u], -1.0), *self._duration(i, u, -1.0)]
            row += [(variable, -loose * share) for variable, share in sharing]
            self.program.row(row, lower=move - loose)
        return sharing

    def _no_overlap(self) -> None:
        for one, two, device in self.instance.orders():
            row = [(self.start[two][device], 1.0), (self.start[one][device], -1.0)]
            row += self._duration(one, device, -1.0)
            loose = float(self.instance.latest_start[one, device])
            row += self._used(one, device, -loose)
            self.program.row(row, lower=-loose)
        for (one, two, device), order in self.before.items():
            self._apart(one, two, device, (order, 1.0))
            self._apart(two, one, device, (order, -1.0))

    def _apart(self, one: int, two: int, device: int, order: Term) -> None:
        """The batch of `one` ends before that of `two` starts, if both are on the device.

        And if the order says so: its variable with 1 if the value 1 does, −1 if 0 does.
        """
        instance = self.instance
        loose = float(instance.latest_finish[one, device] - instance.head[two, device])
        variable, sign = order
        switches = 3.0 if sign > 0 else 2.0
        row = [(self.start[two][device], 1.0), (self.start[one][device], -1.0)]
        row += self._duration(one, device, -1.0)
        row += self._used(one, device, -loose) + self._used(two, device, -loose)
        self.program.row([*row, (variable, -loose * sign)], lower=-loose * switches)

    def _alike(self) -> None:
        """Chunks in the order of where they go first; equal devices and hosts as `symmetry` says.

        Renaming devices leaves every plan as long as it was, and so does renaming chunks. To put
        the devices right first and then the chunks, does not undo the former.
        """
        keys = self._chunk_keys()
        for one, two in self.instance.alike():
            row = [(x[two], weight) for x, weight in keys]
            self.program.row([*row, *((x[one], -weight) for x, weight in keys)], lower=0.0)
        for weights in self.symmetry.rows(self.instance.time, self.instance.sizes):
            self.program.row(
                [
                    (self.size[unit][device][k], weight)
                    for (unit, device, k), weight in weights.items()
                    if k in self.size[unit].get(device, {})
                ],
                lower=0.0,
            )

    def _chunk_keys(self) -> list[tuple[list[int], float]]:
        """The devices of a chunk for the first units, read as the digits of one number."""
        units = dict.fromkeys(self.problem.op_unit[self.instance.precedence.order].tolist())
        free = [unit for unit in units if len(self.on[unit]) > 1]
        base = self.problem.device_count
        free = free[: int(math.log(LARGEST_KEY, max(base, 2)))]
        return [
            (x, float(u * base ** (len(free) - 1 - place)))
            for place, unit in enumerate(free)
            for u, x in self.on[unit].items()
        ]

    # -- from and to schedules -------------------------------------------------------------------

    def hint(self, incumbent: BatchIncumbent) -> Floats | None:
        """The value of every variable in the incumbent; None if that has no such values."""
        device = chunks_of(incumbent.placement.device, self.instance.chunk)
        if device is None:
            return None
        scale, batches = self.instance.scale, incumbent.schedule.batches
        when = {
            (int(op), int(u)): (start / scale, finish / scale)
            for op, u, start, finish in zip(
                batches.op, batches.device, batches.start, batches.finish, strict=True
            )
        }
        renamed = new_names(self.instance, self.symmetry, device)
        device = self.instance.arranged(renamed[device])
        values = np.zeros(self.program.variable_count)
        self._fill(values, device, {(op, int(renamed[u])): t for (op, u), t in when.items()})
        values[self.latency] = incumbent.value / scale
        return values

    def _fill(self, values: Floats, device: Ints, when: dict[Batch, tuple[float, float]]) -> None:
        first_op = [ops[0] for ops in self.instance.units]
        for u, busy in self.busy.items():
            values[busy] = (device == u).any()
        for unit, op in enumerate(first_op):
            for u in self.on[unit]:
                there = device[op] == u
                values[self.on[unit][u]] = there
                count = int(there.sum())
                for k, b in self.size[unit][u].items():
                    values[b] = self.instance.sizes[k] == count
        for op, starts in enumerate(self.start):
            for u, start in starts.items():
                values[start] = when.get((op, u), (self.instance.head[op, u],))[0]
        for (one, two, u), order in self.before.items():
            if (one, u) in when and (two, u) in when:
                values[order] = sum(when[one, u]) <= sum(when[two, u])

    def decode(self, values: Floats) -> Placement:
        """The placement, with its sequence, of a solution."""
        device = np.empty((self.problem.op_count, self.instance.chunks), dtype=np.int32)
        for unit, ops in enumerate(self.instance.units):
            on = self.on[unit]
            for chunk in self._chunks:
                device[ops, chunk] = max(on, key=lambda u: float(values[on[u][chunk]]))
        starts = {
            (op, u): float(values[start])
            for op, each in enumerate(self.start)
            for u, start in each.items()
        }
        return placement_of(self.problem, self.instance.chunk, device, starts, self.instance.scale)

    def forbid(self, chosen: Chosen) -> None:
        """Not all of these together (a cover inequality)."""
        used = [(b, 1.0) for unit, d in chosen for b in self.size[unit][d].values()]
        self.program.row(used, upper=len(chosen) - 1)


def new_names(instance: BatchInstance, symmetry: Symmetry, device: Ints) -> Ints:
    """`[device]` the name of each under which ``device[op, chunk]`` obeys the rows.

    In a neighbourhood the plan has its names already.
    """
    if (instance.known >= 0).any():
        return np.arange(instance.problem.device_count, dtype=np.int32)
    return symmetry.renaming(device, instance.time)


def placement_of(
    problem: Problem, chunk: int, device: Ints, starts: dict[Batch, float], scale: float
) -> Placement:
    """The placement of ``device[op, chunk]`` whose batches run in the order of their starts.

    These are in units of `scale` seconds.
    """
    inputs = np.repeat(device, chunk, axis=1)
    expansion = expand(problem, inputs)
    batches = list(zip(expansion.op.tolist(), expansion.device.tolist(), strict=True))
    start = np.array([starts[batch] for batch in batches])
    index = np.searchsorted(problem.batch_sizes, expansion.size)
    time = problem.batch_time[expansion.op, expansion.device, index] / scale
    sent = (start + time)[expansion.problem.edge_producer]
    return Placement(inputs, sequence_by_time(expansion.problem, start + time / 2, sent))
