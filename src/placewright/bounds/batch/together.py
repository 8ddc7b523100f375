"""The mean path of an input and the work of the devices, weighed against each other.

A larger batch takes less time for each input, and more for the batch: what spares work makes paths
longer. `mean_path` and `work` price one of the two each. Let f be a flow of α along the edges, that
may begin and end at any op, f_o what of it passes through op o; λ_d ≥ 0 weights of the devices with
α + Σ_d λ_d ≤ 1; and μ_d ≥ 0 prices of memory. A flow is made of paths, so

    α T  ≥  Σ_o f_o Σ_d (n_d / L) t[o, d, n_d],

with Σ_d n_d = L as in `mean_path`; and λ_d T ≥ λ_d load_d as in `work`. Added up, over units u of
ops that are split alike and keep m_u bytes,

    T  ≥  Σ_u min over splits n of Σ_d c[u, d, n_d]  −  Σ_d μ_d M_d,
    c[u, d, n_d]  =  Σ_{o∈u} (λ_d + f_o n_d / L) t[o, d, n_d]  +  μ_d m_u [n_d > 0].

The best right side is the value of a linear program: a share of each split of each unit, and when
inputs come to each op on average, such that no device has more work or memory than there is. It is
solved over the splits seen so far. Its dual values are f, λ and μ, and the splits that are cheapest
under these are added, until none is new (column generation; Gilmore & Gomory, 1961). Every round
gives a bound: what the solver's tolerances change is how good it is, not whether it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.bounds.batch.splits import ROOM, Splits, priced
from placewright.bounds.bound import Bound
from placewright.graph import Floats, Wide
from placewright.kernels.batch.arrays import batches_of
from placewright.problem import LONG_ROUNDING, Problem

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt

SOURCE = "path and work together"
MOST_ROUNDS, CLOSE = 40, 1e-4
MOST_ROWS, MOST_STEPS = 3_000, 2e7  # of the program; of a search for the cheapest splits
TOO_LITTLE = 10.0  # what memory costs that is not there, in all times together


def path_and_work(problem: Problem) -> Bound:
    """The bound of the module's text; 0 seconds for a program that is too large."""
    rows = problem.op_count + problem.edge_count + problem.unit_count
    units, _, counts = batches_of(problem).unit_time.shape
    if rows > MOST_ROWS or units * problem.device_count * counts**2 > MOST_STEPS:
        return Bound(0.0, SOURCE)
    return _bound(_Units(problem))


def _bound(units: _Units) -> Bound:
    if not units.seconds:
        return Bound(0.0, SOURCE)
    problem = units.problem
    program, prices, best = _Program(units), _first_prices(problem), 0.0
    for _ in range(MOST_ROUNDS):
        value, counts = units.cheapest(prices)
        best = max(best, value)
        if not np.isfinite(value) or not program.add(counts):
            break
        solved = program.solve()
        if solved is None or solved[0] <= best * (1 + CLOSE):
            break
        prices = solved[1]
    return Bound(best * (1 - LONG_ROUNDING), SOURCE)


@dataclass(frozen=True)
class _Prices:
    """λ `[device]`, f `[op]`, and μ `[device]` in seconds for all of the device's memory."""

    weight: Floats
    flow: Floats
    memory: Floats


def _first_prices(problem: Problem) -> _Prices:
    devices = problem.device_count
    even = np.full(devices, 1.0 / devices)
    return _Prices(even, np.zeros(problem.op_count), np.zeros(devices))


class _Units:
    """The units with their times: ``time[unit, device, count]``, ``op_time[op, device, count]``.

    0 where a count is not allowed. ``part[unit, device]`` of its memory a device needs for it.
    """

    def __init__(self, problem: Problem) -> None:
        b = batches_of(problem)
        self.problem = problem
        self.allowed = b.allowed[:, b.kind]
        self.time = np.where(self.allowed, b.unit_time[:, b.kind], 0.0)
        of_op = b.allowed[problem.op_unit][:, b.kind]
        self.op_time = np.where(of_op, b.time[:, b.kind], 0.0)
        self.share = np.arange(self.time.shape[2]) / (self.time.shape[2] - 1)
        each = np.arange(problem.unit_count, dtype=np.int32)
        self._splits = Splits(self.time, problem.unit_memory, each)
        self.part = self._splits.memory_parts(problem)[1]
        self.seconds = float(self.time.max(axis=(1, 2), initial=0.0).sum())

    def cheapest(self, prices: _Prices) -> tuple[float, Wide]:
        """The bound of these prices, and ``counts[unit, device]`` of the cheapest splits."""
        problem, cost = self.problem, self.time * prices.weight[:, None]
        on_path = prices.flow[:, None, None] * self.op_time * self.share
        np.add.at(cost, problem.op_unit, on_path)
        cost = priced(np.where(self.allowed, cost, np.inf), self.part, prices.memory)
        values, counts = self._splits.cheapest(cost)
        return float(values.sum() - ROOM * prices.memory.sum()), counts


class _Program:
    """The linear program over the splits that were added, times in units of all times together."""

    def __init__(self, units: _Units) -> None:
        from ortools.math_opt.python import mathopt

        self._units, problem = units, units.problem
        self._members = [np.flatnonzero(problem.op_unit == u) for u in range(problem.unit_count)]
        self._seen: set[tuple[int, bytes]] = set()
        self._model = model = mathopt.Model()
        self._total = model.add_variable(lb=0.0)
        model.minimize(self._total)
        self._whole = [model.add_linear_constraint(lb=1.0) for _ in range(problem.unit_count)]
        self._load = [model.add_linear_constraint(lb=0.0) for _ in range(problem.device_count)]
        self._memory = [model.add_linear_constraint(lb=-1.0) for _ in range(problem.device_count)]
        for load, memory in zip(self._load, self._memory, strict=True):
            load.set_coefficient(self._total, 1.0)
            missing = model.add_variable(lb=0.0)
            model.objective.set_linear_coefficient(missing, TOO_LITTLE)
            memory.set_coefficient(missing, 1.0)
        self._add_paths()

    def _add_paths(self) -> None:
        """When inputs come to an op, and after it to its consumers, or to the end."""
        model, problem = self._model, self._units.problem
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

    def add(self, counts: Wide) -> int:
        """Add the splits ``counts[unit, device]``; how many of them are new."""
        before = len(self._seen)
        for unit, split in enumerate(counts):
            key = unit, split.tobytes()
            if key not in self._seen:
                self._seen.add(key)
                self._add_split(unit, split)
        return len(self._seen) - before

    def _add_split(self, unit: int, split: Wide) -> None:
        units, share = self._units, self._model.add_variable(lb=0.0)
        self._whole[unit].set_coefficient(share, 1.0)
        used = np.flatnonzero(split)
        for device, count in zip(used.tolist(), split[used].tolist(), strict=True):
            seconds = float(units.time[unit, device, count])
            self._load[device].set_coefficient(share, -seconds / units.seconds)
            self._memory[device].set_coefficient(share, -float(units.part[unit, device]))
        for op in self._members[unit].tolist():
            mean = float(units.op_time[op, used, split[used]] @ units.share[split[used]])
            for row in self._after[op]:
                row.set_coefficient(share, -mean / units.seconds)

    def solve(self) -> tuple[float, _Prices] | None:
        """The value (seconds) and the prices of an optimum; None where the solver finds none."""
        from ortools.math_opt.python import mathopt

        from placewright.solvers.mathopt import run_solver

        try:
            result = run_solver(self._model, mathopt.SolverType.GLOP)
        except RuntimeError:
            return None
        if result.termination.reason != mathopt.TerminationReason.OPTIMAL:
            return None
        dual = result.dual_values()

        def prices(rows: list[Any]) -> Floats:
            return np.maximum([dual[row] for row in rows], 0.0)

        weight = prices(self._load)
        weight /= max(float(weight.sum()), 1.0)
        after = [prices(rows) for rows in self._after]
        flow = _flow(self._units.problem, prices(self._edges), after, 1.0 - float(weight.sum()))
        seconds = self._units.seconds
        return result.objective_value() * seconds, _Prices(
            weight, flow, prices(self._memory) * seconds
        )


def _flow(problem: Problem, through: Floats, after: list[Floats], amount: float) -> Floats:
    """``[op]`` what passes through each of a flow of `amount` that goes as dual values say.

    They are a flow but for the solver's tolerances: `through` the edges, and in `after` each op.
    """
    out = np.array([float(each.sum()) for each in after])
    into = np.bincount(problem.consumers, through, problem.op_count)
    found: Floats = np.maximum(out - into, 0.0)
    if not found.any():
        return found
    found *= max(amount, 0.0) / found.sum()
    leaving: list[list[int]] = [[] for _ in after]
    for edge, producer in enumerate(problem.edge_producer.tolist()):
        leaving[producer].append(edge)
    for op in problem.topological_order.tolist():
        for edge in leaving[op] if out[op] > 0 else ():
            found[problem.consumers[edge]] += found[op] * through[edge] / out[op]
    return found
