"""A part of a problem as a problem of its own, its optimum, and the way back."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from placewright.graph import Flags, Ints, frozen
from placewright.plan import Placement
from placewright.planners.base import Budget
from placewright.planners.milp.incumbent import Incumbent
from placewright.planners.milp.instance import Instance
from placewright.planners.milp.sequence import sequence_by_time
from placewright.planners.milp.solver import HORIZON
from placewright.problem import Problem


@dataclass(frozen=True, eq=False)
class Subproblem:
    """`problem` has some ops of another; `ops[op]` and `edges[edge]` say which they are there."""

    problem: Problem
    ops: Ints
    edges: Ints

    def items(self, placement: Placement, skipped: int = 0) -> Ints:
        """The placement's sequence in the numbers of the whole, less its first `skipped` ops.

        The edges of the ops that are left out stay. ValueError without a sequence.
        """
        if placement.sequence is None:
            raise ValueError("the placement has no sequence")
        sequence = placement.sequence[(placement.sequence < 0) | (placement.sequence >= skipped)]
        is_op = sequence >= 0
        items = np.empty_like(sequence)
        items[is_op] = self.ops[sequence[is_op]]
        items[~is_op] = -1 - self.edges[-1 - sequence[~is_op]]
        return frozen(items, np.int32)

    def key(self) -> tuple[bytes, ...]:
        """Equal where two parts of one problem differ in names and numbers only."""
        problem = self.problem
        return tuple(
            array.tobytes()
            for array in (
                problem.op_time, problem.op_memory, problem.op_unit, problem.op_pinned,
                problem.tensor_producer, problem.tensor_bytes, problem.consumer_offsets,
                problem.consumers, problem.device_memory,
            )
        )  # fmt: skip


def subproblem(problem: Problem, ops: Ints) -> Subproblem:
    """The problem of `ops` alone, numbered in the order given, with the edges between them.

    Tensors keep their bytes and lose the consumers outside; those without any left are gone.
    Pins and colocation stay, the devices and the options are the same.

    >>> subproblem(problem, np.array([1, 2])).problem.op_names     # of a → b → c
    ('b', 'c')
    """
    number = np.full(problem.op_count, -1, dtype=np.int32)
    number[ops] = np.arange(len(ops))
    inside = (number[problem.edge_producer] >= 0) & (number[problem.consumers] >= 0)
    edges = np.flatnonzero(inside)
    # Parts that look the same are to have the same arrays: by producer, then as they were.
    edges = edges[np.argsort(number[problem.edge_producer[edges]], kind="stable")]
    tensors, first = np.unique(problem.edge_tensor[edges], return_index=True)
    tensors = tensors[np.argsort(first)]
    starts = np.append(np.sort(first), len(edges))
    twin = problem.forward_twin[ops]
    part = replace(
        problem,
        op_names=tuple(problem.op_names[op] for op in ops.tolist()),
        op_types=tuple(problem.op_types[op] for op in ops.tolist()),
        op_modules=tuple(problem.op_modules[op] for op in ops.tolist()),
        op_time=problem.op_time[ops],
        op_memory=problem.op_memory[ops],
        is_backward=problem.is_backward[ops],
        forward_twin=np.where(twin >= 0, number[twin], -1),
        colocation=problem.colocation[ops],
        op_pinned=problem.op_pinned[ops],
        op_sync_bytes=problem.op_sync_bytes[ops],
        batch_time=problem.batch_time[ops],
        tensor_producer=number[problem.tensor_producer[tensors]],
        tensor_bytes=problem.tensor_bytes[tensors],
        consumer_offsets=starts,
        consumers=number[problem.consumers[edges]],
    )
    return Subproblem(part, frozen(ops, np.int32), frozen(edges, np.int32))


# -- the optimum of a small problem ----------------------------------------------------------------

UNITS = 1e5  # integers a unit of `solver.HORIZON` is cut into
ROOM = 1e9  # integers a device's memory is cut into
# Of any product of a float and `UNITS`, which is then rounded down: never up by a float's error.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Found:
    """What a solver has: the best placement or None, and a bound on every one, in seconds."""

    placement: Placement | None
    lower_bound: float


class ConstraintProgram:
    """The problem for CP-SAT, which proves small modules far sooner than a MILP solver does.

    An op is an interval whose length follows from its device, optional on each device; a
    transfer waits for its op and delays its readers, and under contention is an optional
    interval on every channel of its route. Times are whole numbers, durations rounded *down*:
    the starts of any schedule, rounded down, obey every constraint (s_b ≥ s_a + p_a implies
    ⌊s_b⌋ ≥ ⌊s_a⌋ + ⌊p_a⌋), so the bound holds for the problem itself.

    With `free` ops given, the others stay on their devices in the incumbent, in its order.
    """

    def __init__(
        self, problem: Problem, incumbent: Incumbent | None, free: Ints | None = None
    ) -> None:
        from ortools.sat.python import cp_model

        self.problem, self.incumbent = problem, incumbent
        self.instance = Instance(problem, incumbent)
        self.model = cp_model.CpModel()
        self.is_free = np.ones(problem.op_count, dtype=np.bool_)
        if free is not None:
            self.is_free[:] = False
            self.is_free[free] = True
        self.horizon = int(HORIZON * UNITS) + 1
        self.end = self.model.new_int_var(0, self.horizon, "")
        self._place()
        self._run()
        self._move()
        self.model.minimize(self.end)
        self._hint()

    # -- the parts -------------------------------------------------------------------------------

    def _place(self) -> None:
        """`on[unit][device]` literals; all of a fixed op's unit stays where it is."""
        problem, model = self.problem, self.model
        allowed = self.instance.allowed.copy()
        for op in np.flatnonzero(~self.is_free):
            assert self.incumbent is not None
            device, unit = int(self.incumbent.placement.device[op]), int(problem.op_unit[op])
            allowed[unit] = np.arange(problem.device_count) == device
        self.on = [
            {int(d): model.new_bool_var("") for d in np.flatnonzero(each)} for each in allowed
        ]
        for literals in self.on:
            model.add_exactly_one(literals.values())
        for device, capacity in enumerate(problem.device_memory.tolist()):
            here = [(unit, on[device]) for unit, on in enumerate(self.on) if device in on]
            if sum(problem.unit_memory[unit] for unit, _ in here) > capacity:
                share = problem.unit_memory * (ROOM / capacity * (1 - ROUNDING))
                model.add(sum(int(share[unit]) * x for unit, x in here) <= int(ROOM))

    def _run(self) -> None:
        problem, model, instance = self.problem, self.model, self.instance
        rows: list[list[Any]] = [[] for _ in range(problem.device_count)]
        loads: list[list[Any]] = [[] for _ in range(problem.device_count)]
        meets = self._may_meet_free()
        self.start: list[Any] = []
        self.finish: list[Any] = []
        for op in range(problem.op_count):
            on = self._on(op)
            length = {d: _down(instance.op_time[op, d]) for d in on}
            low, high = _down(instance.earliest_start[op]), _down(instance.latest_start[op]) + 2
            start = model.new_int_var(low, min(high, self.horizon), "")
            finish = start + sum(length[d] * x for d, x in on.items())
            self.start.append(start)
            self.finish.append(finish)
            model.add(self.end >= finish)
            for d, x in on.items():
                if meets[op]:
                    interval = model.new_optional_fixed_size_interval_var(start, length[d], x, "")
                    rows[d].append(interval)
                loads[d].append(length[d] * x)
        for row, load in zip(rows, loads, strict=True):
            model.add_no_overlap(row)
            model.add(self.end >= sum(load))
        self._keep_order()

    def _may_meet_free(self) -> Flags:
        """`[op]` whether it may run while some free op may; fixed ops have their order anyway."""
        early, late = self.instance.earliest_start, self.instance.latest_finish
        free = self.is_free
        meets: Flags = free | ((late >= early[free].min()) & (early <= late[free].max()))
        return meets

    def _keep_order(self) -> None:
        """Fixed ops of one device follow one another as they did."""
        if self.is_free.all():
            return
        assert self.incumbent is not None
        placed, schedule = self.incumbent.placement.device, self.incumbent.schedule
        middle = schedule.op_start + schedule.op_finish
        rank = np.empty(self.problem.op_count)
        rank[self.problem.topological_order] = np.arange(self.problem.op_count)
        fixed = np.flatnonzero(~self.is_free)
        fixed = fixed[np.lexsort((rank[fixed], middle[fixed]))]
        for device in range(self.problem.device_count):
            for one, two in pairwise(fixed[placed[fixed] == device].tolist()):
                self.model.add(self.start[two] >= self.finish[one])

    def _move(self) -> None:
        problem, model = self.problem, self.model
        offsets, channels, names = problem.active_channels
        busy: list[list[Any]] = [[] for _ in names]
        shared: dict[tuple[int, int, int, int], Any] = {}
        for edge in range(problem.edge_count):
            producer, consumer = int(problem.edge_producer[edge]), int(problem.consumers[edge])
            model.add(self.start[consumer] >= self.finish[producer])
            if problem.op_unit[producer] == problem.op_unit[consumer]:
                continue
            time = self.instance.route_time(edge)
            for (a, x), (b, y) in product(self._on(producer).items(), self._on(consumer).items()):
                if a == b:
                    continue
                length, pair = _down(time[a, b]), a * problem.device_count + b
                over = channels[offsets[pair] : offsets[pair + 1]].tolist()
                if not over:
                    arrival = self.finish[producer] + length
                    model.add(self.start[consumer] >= arrival).only_enforce_if(x, y)
                    continue
                by_tensor = problem.options.transfer_unit == "tensor"
                key = int(problem.edge_tensor[edge]), -1 if by_tensor else edge, a, b
                if key not in shared:
                    begin = model.new_int_var(0, self.horizon, "")
                    sent = model.new_bool_var("")
                    interval = model.new_optional_fixed_size_interval_var(begin, length, sent, "")
                    model.add(begin >= self.finish[producer]).only_enforce_if(sent)
                    shared[key] = begin, sent
                    for channel in over:
                        busy[channel].append(interval)
                begin, sent = shared[key]
                model.add_bool_or(x.negated(), y.negated(), sent)
                model.add(self.start[consumer] >= begin + length).only_enforce_if(x, y)
        for row in busy:
            if len(row) > 1:
                model.add_no_overlap(row)
        self.sent = shared

    def _hint(self) -> None:
        if self.incumbent is None:
            return
        schedule, unit = self.incumbent.schedule, self.problem.op_unit
        for op, device in enumerate(self.incumbent.placement.device.tolist()):
            start = _down(schedule.op_start[op] / self.instance.scale)
            self.model.add_hint(self.start[op], start)
            if op == int(np.argmax(unit == unit[op])):
                for d, x in self._on(op).items():
                    self.model.add_hint(x, d == device)

    def _on(self, op: int) -> dict[int, Any]:
        literals: dict[int, Any] = self.on[int(self.problem.op_unit[op])]
        return literals

    # -- solving ---------------------------------------------------------------------------------

    def solve(
        self,
        seconds: float,
        level: int = 0,
        seed: int = 0,
        conflicts: int = 0,
        effort: float = math.inf,
    ) -> Found:
        """The best found and proved, in one thread, with linearisation `level`.

        The limits: seconds; `conflicts` (0 for none) and `effort`, in CP-SAT's deterministic
        time, after which the answer is the same on every machine. KeyboardInterrupt on Ctrl-C.
        """
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.num_workers, parameters.random_seed = 1, seed
        parameters.linearization_level = level
        parameters.catch_sigint_signal = False
        if conflicts:
            parameters.max_number_of_conflicts = conflicts
        elif math.isfinite(effort):
            parameters.max_deterministic_time = effort
        limit = Budget(seconds)
        while True:
            parameters.max_time_in_seconds = max(limit.left, 0.0)
            status = run_solver(solver, self.model)
            if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                # Infeasible is no more than: nothing is shorter than the incumbent.
                bound = 0.0 if status != cp_model.UNKNOWN else solver.best_objective_bound
                return Found(None, self._seconds(bound))
            device = self._devices(solver)
            if not self._forbid_overfull(device):
                break
        placement = Placement(device, self._sequence(solver, device))
        return Found(placement, self._seconds(solver.best_objective_bound))

    def _seconds(self, units: float) -> float:
        return max(0.0, units / UNITS * self.instance.scale * (1 - ROUNDING))

    def _devices(self, solver: Any) -> Ints:
        unit = [next(d for d, x in on.items() if solver.boolean_value(x)) for on in self.on]
        return np.array(unit, dtype=np.int32)[self.problem.op_unit]

    def _sequence(self, solver: Any, device: Ints) -> Ints:
        start = np.array([solver.value(each) for each in self.start], dtype=np.float64)
        finish = np.array([solver.value(each) for each in self.finish], dtype=np.float64)
        problem = self.problem
        middle = finish[problem.edge_producer]
        for (tensor, edge, a, b), (begin, _) in self.sent.items():
            home = int(problem.tensor_producer[tensor])
            if device[home] == a:
                low, high = problem.consumer_offsets[tensor : tensor + 2]
                edges = np.arange(low, high) if edge < 0 else np.array([edge])
                middle[edges[device[problem.consumers[edges]] == b]] = solver.value(begin)
        return sequence_by_time(problem, (start + finish) / 2, middle)

    def _forbid_overfull(self, device: Ints) -> bool:
        """Whether shares rounded down let too much on some device; then that is cut off."""
        problem, found = self.problem, False
        unit_device = np.empty(problem.unit_count, dtype=np.int32)
        unit_device[problem.op_unit] = device
        for number, capacity in enumerate(problem.device_memory.tolist()):
            units = np.flatnonzero(unit_device == number)
            if problem.unit_memory[units].sum() > capacity * (1 + ROUNDING):
                cover = [u for u in units.tolist() if problem.unit_memory[u] > 0]
                self.model.add_bool_or(*(self.on[u][number].negated() for u in cover))
                found = True
        return found


def run_solver(solver: Any, model: Any) -> Any:
    """In a second thread: Python sees Ctrl-C only between its own instructions."""
    status: list[Any] = []
    thread = threading.Thread(target=lambda: status.append(solver.solve(model)), daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
    except KeyboardInterrupt:
        solver.stop_search()
        thread.join()
        raise
    return status[0]


def _down(time: float) -> int:
    """Scaled time as a whole number that is no more."""
    return int(time * (UNITS * (1 - ROUNDING)))
