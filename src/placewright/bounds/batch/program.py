"""The linear program of `together`: splits, when inputs come to each op, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placewright.bounds.batch.arrivals import Arrivals
from placewright.budget import Budget
from placewright.graph import Flags, Floats, Wide
from placewright.problem import Problem

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt

TOO_LITTLE = 10.0
"""What memory costs that is not there, in all times together: splits without enough of it have
prices too."""


@dataclass(frozen=True)
class Prices:
    """Dual values: λ, and μ in seconds for all of a kind's memory, `[kind]`; f `[op]`.

    `through`, `[edge between units]`, is what of the flow goes along; `potential`, ``[edge between
    units, kind, count]``, is π, infinite for counts that the producer never has.
    """

    weight: Floats
    flow: Floats
    memory: Floats
    through: Floats
    potential: Floats


@dataclass(frozen=True)
class Tables:
    """What a device adds to a split; every time in times of all units together.

    Of each kind there are so many `devices`. With so many chunks each of them takes
    ``work[unit, kind, count]`` and makes a path longer by ``mean[op, kind, count]``, if it is
    ``usable[unit, kind, count]``; ``memory[unit, kind]`` is the part of the memory of all.
    """

    devices: Wide
    work: Floats
    mean: Floats
    usable: Flags
    memory: Floats
    arrivals: Arrivals


class SplitsProgram:
    """The program over the splits that were added."""

    def __init__(self, problem: Problem, tables: Tables) -> None:
        from ortools.math_opt.python import mathopt

        self._problem, self._tables = problem, tables
        self._members = [np.flatnonzero(problem.op_unit == u) for u in range(problem.unit_count)]
        self._seen: set[tuple[int, bytes]] = set()
        self._model = model = mathopt.Model()
        self._total = model.add_variable(lb=0.0)
        model.minimize(self._total)
        self._whole = [
            model.add_linear_constraint(lb=1.0, ub=1.0) for _ in range(problem.unit_count)
        ]
        self._add_kinds()
        self._add_paths()
        self._add_arrivals()

    def _add_kinds(self) -> None:
        """No more work than all devices of a kind can do, nor memory than they have."""
        model, kinds = self._model, range(len(self._tables.devices))
        self._load = [model.add_linear_constraint(lb=0.0) for _ in kinds]
        self._memory = [model.add_linear_constraint(lb=-1.0) for _ in kinds]
        for kind in kinds:
            devices = float(self._tables.devices[kind])
            self._load[kind].set_coefficient(self._total, devices)
            missing = model.add_variable(lb=0.0)
            model.objective.set_linear_coefficient(missing, TOO_LITTLE)
            self._memory[kind].set_coefficient(missing, 1.0)

    def _add_paths(self) -> None:
        """When inputs come to an op, and after it to its consumers, or to the end."""
        model, problem = self._model, self._problem
        begins = [model.add_variable(lb=0.0) for _ in range(problem.op_count)]
        self._edges = [model.add_linear_constraint(lb=0.0) for _ in range(problem.edge_count)]
        self._after: list[list[mathopt.LinearConstraint]] = [[] for _ in begins]
        ends = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
        for row, (producer, consumer) in zip(self._edges, ends, strict=True):
            row.set_coefficient(begins[consumer], 1.0)
            row.set_coefficient(begins[producer], -1.0)
            self._after[producer].append(row)
        for op, after in enumerate(self._after):
            if not after:
                last = model.add_linear_constraint(lb=0.0)
                last.set_coefficient(self._total, 1.0)
                last.set_coefficient(begins[op], -1.0)
                after.append(last)

    def _add_arrivals(self) -> None:
        """Devices that have so many chunks of a producer, `_from`, and of its consumer, `_to`.

        Rows by ``edge between units, kind, count``; what devices with one and the other add is on
        the edge's path. `_out_of` and `_into`, by unit, are the edges between units.
        """
        arrivals, usable = self._tables.arrivals, self._tables.usable
        self._from: dict[tuple[int, int, int], mathopt.LinearConstraint] = {}
        self._to: dict[tuple[int, int, int], mathopt.LinearConstraint] = {}
        self._into: list[list[int]] = [[] for _ in self._members]
        self._out_of: list[list[int]] = [[] for _ in self._members]
        for number, edge in enumerate(arrivals.edge.tolist()):
            producer, consumer = int(arrivals.producer[number]), int(arrivals.consumer[number])
            self._out_of[producer].append(number)
            self._into[consumer].append(number)
            for kind in range(len(self._tables.devices)):
                before = np.flatnonzero(usable[producer, kind]).tolist()
                after = np.flatnonzero(usable[consumer, kind]).tolist()
                self._add_pairs(number, edge, kind, before, after)

    def _add_pairs(
        self, number: int, edge: int, kind: int, before: list[int], after: list[int]
    ) -> None:
        model, cost = self._model, self._tables.arrivals.cost[number, kind]
        for count in before:
            self._from[number, kind, count] = model.add_linear_constraint(lb=0.0)
        for count in after:
            row = self._to[number, kind, count] = model.add_linear_constraint(lb=0.0)
            for had in [0, *before]:
                devices = model.add_variable(lb=0.0)
                row.set_coefficient(devices, 1.0)
                if had:
                    self._from[number, kind, had].set_coefficient(devices, -1.0)
                if cost[had, count]:
                    self._edges[edge].set_coefficient(devices, -float(cost[had, count]))

    def add(self, splits: Iterable[tuple[int, Wide]]) -> int:
        """Add a unit's splits ``devices[kind, count]``; how many of them are new."""
        before = len(self._seen)
        for unit, split in splits:
            key = unit, split.tobytes()
            if key not in self._seen:
                self._seen.add(key)
                self._add_split(unit, split)
        return len(self._seen) - before

    def _add_split(self, unit: int, split: Wide) -> None:
        tables, share = self._tables, self._model.add_variable(lb=0.0)
        self._whole[unit].set_coefficient(share, 1.0)
        work, used = (tables.work[unit] * split).sum(axis=1), split[:, 1:].sum(axis=1)
        for kind in np.flatnonzero(used).tolist():
            self._load[kind].set_coefficient(share, -float(work[kind]))
            part = float(used[kind] * tables.memory[unit, kind])
            self._memory[kind].set_coefficient(share, -part)
        for op in self._members[unit].tolist():
            mean = float((tables.mean[op] * split).sum())
            for row in self._after[op]:
                row.set_coefficient(share, -mean)
        for kind, count in np.argwhere(split[:, 1:]).tolist():
            devices = float(split[kind, count + 1])
            for number in self._out_of[unit]:
                self._from[number, kind, count + 1].set_coefficient(share, devices)
            for number in self._into[unit]:
                self._to[number, kind, count + 1].set_coefficient(share, -devices)

    def solve(self, budget: Budget) -> tuple[float, Prices] | None:
        """The value and the prices of an optimum; None where the solver finds none in time."""
        from placewright.solvers.mathopt import linear_optimum

        result = linear_optimum(self._model, budget)
        if result is None:
            return None
        dual = result.dual_values()

        def prices(rows: list[mathopt.LinearConstraint]) -> Floats:
            return np.maximum([dual[row] for row in rows], 0.0)

        arrivals, devices = self._tables.arrivals, self._tables.devices
        weight = prices(self._load)
        weight /= max(float(weight @ devices), 1.0)
        after = [prices(rows) for rows in self._after]
        amount = 1.0 - float(weight @ devices)
        flow, through = flow_of(self._problem, prices(self._edges), after, amount)
        potential = np.full(arrivals.cost.shape[:3], np.inf)
        potential[:, :, 0] = 0.0
        for place, row in self._from.items():
            potential[place] = max(dual[row], 0.0)
        return result.objective_value(), Prices(
            weight, flow, prices(self._memory), through[arrivals.edge], potential
        )


def flow_of(
    problem: Problem, through: Floats, after: list[Floats], amount: float
) -> tuple[Floats, Floats]:
    """What passes through each op, and along each edge, of a flow of `amount` that goes as dual
    values say.

    They are a flow but for the solver's tolerances: `through` the edges, and in `after` each op.
    """
    out = np.array([float(each.sum()) for each in after])
    into = np.bincount(problem.consumers, through, problem.op_count)
    found: Floats = np.maximum(out - into, 0.0)
    along = np.zeros(problem.edge_count)
    if not found.any():
        return found, along
    found *= max(amount, 0.0) / found.sum()
    leaving: list[list[int]] = [[] for _ in after]
    for edge, producer in enumerate(problem.edge_producer.tolist()):
        leaving[producer].append(edge)
    for op in problem.topological_order.tolist():
        for edge in leaving[op] if out[op] > 0 else ():
            along[edge] = found[op] * through[edge] / out[op]
            found[problem.consumers[edge]] += along[edge]
    return found, along
