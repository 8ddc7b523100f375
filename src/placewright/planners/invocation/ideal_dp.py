"""Dynamic programming over ideals, for invocation latency: the best row of subgraphs, and a bound.

After Tarnawski et al. 2020, §5.1.1, who do so for the largest load. `ideal_table` says what is
filled in, and why it bounds plans whose subgraphs are not all in a row.

Accelerators of one pace are first taken for one kind, which leaves few numbers of those in use;
prices of memory tell them apart where they differ in that. What this table says is still to be done
after an ideal leaves out, in the exact one, all that cannot lead to a better plan than the best
known.
"""

from __future__ import annotations

import contextlib
import math
from typing import ClassVar

import numpy as np

from placewright.analysis.slots import placement_of, slot_of
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Whole
from placewright.kernels.invocation.timing import equal_accelerators
from placewright.planners.base import Proposal, whole_number
from placewright.planners.invocation.base import InvocationPlanner, nothing_fits
from placewright.planners.invocation.blocks import shared_out
from placewright.planners.invocation.ideal_blocks import blocks_of
from placewright.planners.invocation.ideal_floors import Floors
from placewright.planners.invocation.ideal_table import Table
from placewright.planners.invocation.ideals import Ideals, ideals_of
from placewright.planners.invocation.kinds import Kinds
from placewright.problem import LONG_ROUNDING, ROUNDING, Problem, once_per_problem
from placewright.simulate import evaluate

SOURCE = "dynamic programming over ideals"
MOST_IDEALS = 60_000
MOST_MEMBERS = 40_000_000  # ideals × nodes
MOST_CODES = 256


class IdealDP(InvocationPlanner):
    """The best row of subgraphs, exactly, and a bound on all plans.

    Where the bound is below the row's latency, several subgraphs may work at the same time in a
    better plan: in the one that the bound stands for, where it can be made, or one of a search.

    Options: `ideals`, how many there may be (60,000).
    """

    name: ClassVar[str] = "ideal-dp"

    def __init__(self, ideals: str | int | None = None) -> None:
        self.most = MOST_IDEALS if ideals is None else whole_number(self.name, "ideals", ideals)

    def supports(self, problem: Problem) -> str | None:
        if problem.options.subgraphs > 1:
            return "it is for one subgraph per accelerator"
        if problem.is_backward.any():
            return "it is for graphs without backward ops"
        if problem.is_cpu.any():
            return "it is for clusters without CPUs"
        if (codes := Kinds(problem, equal_accelerators(problem)).codes) > MOST_CODES:
            return (
                f"there are {codes:,} choices of accelerators that differ, more than the "
                f"{MOST_CODES:,} it looks at"
            )
        found = _ideals(problem)
        if found is None or found.count > self.most:
            return (
                f"the graph has more ideals than the {self.most:,} it looks at, or too many pairs "
                "of them; coarsen it or take planner 'annealing'"
            )
        return None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        if reason := self.supports(problem):
            raise InfeasibleError(f"planner '{self.name}' cannot plan this: {reason}")
        search = _Search(problem, budget, on_progress)
        with contextlib.suppress(KeyboardInterrupt):
            search.run()
        if search.best is None:
            raise nothing_fits(self.name)
        return Proposal(search.best, min(search.proved, search.value), SOURCE)


@once_per_problem
def _ideals(problem: Problem) -> Ideals | None:
    may_be = np.isfinite(problem.unit_time[problem.op_unit])
    seconds = np.where(may_be, problem.op_time, np.inf).min(axis=1)
    return ideals_of(problem, seconds, min(MOST_IDEALS, MOST_MEMBERS // problem.op_count))


class _Search:
    """The best plan so far, `value` seconds, and what is proved."""

    def __init__(self, problem: Problem, budget: Budget, on_progress: Progress) -> None:
        self.problem, self.budget, self.on_progress = problem, budget, on_progress
        found = _ideals(problem)
        assert found is not None  # as `supports` has seen
        self.ideals = found
        self.best = budget.start
        self.value = math.inf if self.best is None else evaluate(problem, self.best).value
        self.proved = 0.0
        self.kinds = Kinds(problem, equal_accelerators(problem))

    def run(self) -> None:
        several = blocks_of(self.ideals, self.kinds)
        floors = Floors(self.ideals, self.kinds, several, self.budget)
        self._prove(floors.proved)
        alone = [None] if self.best is None else []  # else a row is hardly better
        for blocks in (*alone, several):
            if self.proved >= self.value * (1 - LONG_ROUNDING):
                return
            table = Table(self.ideals, self.kinds, np.zeros(len(self.kinds)), blocks)
            if not self._fill(table, floors, "rows" if blocks is None else "blocks"):
                return
            least = float(table.value[:, -1].min())
            if blocks is not None:
                self._prove(least * (1 - LONG_ROUNDING))
            if least < self.value:
                self._take(table)

    def _fill(self, table: Table, floors: Floors, what: str) -> bool:
        """All codes, but for what leads to nothing better; False if time is up."""
        codes = self.kinds.codes
        for code in range(1, codes):
            if self.budget.left <= 0:
                return False
            self.on_progress(f"{what} of subgraphs", code / codes)
            floor = floors.at(code)
            table.fill(code, table.fitting(code) & (floor <= self.value))
            row = table.value[code]
            row[row + floor > self.value] = np.inf
        return True

    def _take(self, table: Table) -> None:
        """The plan of the least value in the table, if it fits and is the best."""
        device = self._devices(table, int(table.value[:, -1].argmin()))
        kept = np.bincount(device, self.problem.op_memory, self.problem.device_count)
        if (kept > self.problem.device_memory * (1 + ROUNDING)).any():
            return
        found = placement_of(self.problem, slot_of(self.problem, device))
        value = evaluate(self.problem, found).value
        if value < self.value:
            self.best, self.value = found, value
            self.budget.listener.found(found)

    def _devices(self, table: Table, code: int) -> Whole:
        """`[op]` the device of the piece that it is in."""
        graph, holds = self.ideals.graph, self.ideals.holds
        free = [list(group) for group in self.kinds.devices]
        node_device = np.zeros(graph.node_count, dtype=np.int64)
        time = np.zeros((graph.node_count, self.problem.device_count))
        np.add.at(time, graph.op_node, self.problem.op_time)
        for piece in table.pieces(code):
            nodes = np.flatnonzero(holds[piece.high] & ~holds[piece.low])
            devices = [free[kind].pop() for kind in table.kinds_of(piece)]
            for node, device in shared_out(graph, nodes, devices, time).items():
                node_device[node] = device
        return node_device[graph.op_node]

    def _prove(self, seconds: float) -> None:
        proved = min(seconds, self.value)
        if proved > self.proved:
            self.proved = proved
            self.budget.listener.proved(proved, SOURCE)
