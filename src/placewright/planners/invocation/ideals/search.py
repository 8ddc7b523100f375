"""The search for one pass, or for two that are one turned round: tables filled, a plan taken."""

from __future__ import annotations

import contextlib
import math

import numpy as np

from placewright.analysis.contracted import contracted_graph
from placewright.analysis.slots import placement_of, slot_of
from placewright.budget import Budget, Progress, no_progress
from placewright.errors import InfeasibleError
from placewright.graph import Ints, Whole, Wide
from placewright.kernels.invocation.timing import equal_accelerators, latency
from placewright.planners.invocation.ideals.blocks import Blocks, blocks_of
from placewright.planners.invocation.ideals.floors import Floors
from placewright.planners.invocation.ideals.kinds import Kinds
from placewright.planners.invocation.ideals.listing import Ideals, ideals_of
from placewright.planners.invocation.ideals.sharing import shared_out
from placewright.planners.invocation.ideals.table import Table
from placewright.planners.invocation.search import LinearDp
from placewright.problem import LONG_ROUNDING, ROUNDING, Problem, once_per_problem
from placewright.simulate import evaluate

SOURCE = "dynamic programming over ideals"
MOST_IDEALS = 60_000
MOST_MEMBERS = 40_000_000  # ideals × nodes
MOST_CODES = 256
FIRST_ORDERS = 10
QUICK_WORK = 30_000_000  # codes × steps, of rows that are looked for beside a plan to start from


def refusal(problem: Problem, most: int) -> str | None:
    """Why the search cannot take a problem; `most`, how many ideals it may have."""
    if (codes := Kinds(problem, equal_accelerators(problem)).codes) > MOST_CODES:
        return (
            f"there are {codes:,} choices of accelerators that differ, more than the "
            f"{MOST_CODES:,} it looks at"
        )
    if problem.is_cpu.any() and _tied(problem):
        return "with CPUs it is for graphs whose ops of a pass are not colocated, nor in circles"
    found = _ideals(problem)
    if found is None or found.count > most:
        return (
            f"the graph has more ideals than the {most:,} it looks at, or too many pairs of them; "
            "coarsen it or take planner 'annealing'"
        )
    return None


@once_per_problem
def _tied(problem: Problem) -> bool:
    """Whether a node has several ops of one pass: on CPUs they would not be together."""
    node = contracted_graph(problem).op_node * 2 + problem.is_backward
    return bool(np.bincount(node).max() > 1)


def may_be(problem: Problem, device: Whole) -> bool:
    """Whether ops are where they may be, and fit; ``device[op]``."""
    if not problem.unit_allowed[problem.op_unit, device].all():
        return False
    kept = np.bincount(device, problem.op_memory, problem.device_count)
    return bool((kept <= problem.device_memory * (1 + ROUNDING)).all())


def ranks(problem: Problem, device: Ints) -> Wide:
    """`[device]` from 1, in the order of accelerators in the forward pass; 0 of all others."""
    import rustworkx as rx

    alone = problem.device_count + np.arange(problem.op_count)
    node = np.where(problem.is_cpu[device], alone, device)
    graph = rx.PyDiGraph()
    graph.add_nodes_from(range(problem.device_count + problem.op_count))
    forward = ~problem.is_backward[problem.consumers]
    pairs = np.column_stack([node[problem.edge_producer], node[problem.consumers]])[forward]
    graph.add_edges_from_no_data([(a, b) for a, b in pairs.tolist() if a != b])
    used = {*node.tolist()}
    order = [each for each in rx.topological_sort(graph) if each in used]
    rank = np.zeros(problem.device_count, dtype=np.int64)
    accelerators = [each for each in order if each < problem.device_count]
    rank[accelerators] = 1 + np.arange(len(accelerators))
    return rank


@once_per_problem
def _ideals(problem: Problem) -> Ideals | None:
    allowed = problem.unit_allowed[problem.op_unit]
    seconds = np.where(allowed, problem.op_time, np.inf).min(axis=1)
    return ideals_of(problem, seconds, min(MOST_IDEALS, MOST_MEMBERS // problem.op_count))


class Search:
    """The best plan so far, `value` seconds, and what is proved."""

    def __init__(self, problem: Problem, budget: Budget, on_progress: Progress) -> None:
        self.problem, self.budget, self.on_progress = problem, budget, on_progress
        found = _ideals(problem)
        assert found is not None  # or `refusal` would have said so
        self.ideals = found
        self.best = budget.start
        self.value = math.inf if self.best is None else evaluate(problem, self.best).value
        self.proved = 0.0
        self.kinds = Kinds(problem, equal_accelerators(problem))

    def run(self) -> None:
        begins = self.best is None
        if begins:
            self._begin()
        work = self.kinds.codes * len(self.ideals.steps.targets)
        if (begins or work <= QUICK_WORK) and not self._look(None, None):
            return
        blocks = blocks_of(self.ideals, self.kinds)
        floors = Floors(self.ideals, self.kinds, blocks, self.budget)
        self._prove(floors.proved)
        if self.proved < self.value * (1 - LONG_ROUNDING):
            self._look(blocks, floors)

    def _begin(self) -> None:
        """With segments of a few orders, for a plan at once."""
        with contextlib.suppress(InfeasibleError):
            found = LinearDp(FIRST_ORDERS, 0).plan(self.problem, self.budget, 0, no_progress)
            self.best = found.placement
            self.value = evaluate(self.problem, self.best).value

    def _look(self, blocks: Blocks | None, floors: Floors | None) -> bool:
        """For rows of subgraphs, or of blocks of them, to the end; False if time is up."""
        table = Table(self.ideals, self.kinds, np.zeros(len(self.kinds)), blocks)
        codes, what = self.kinds.codes, "rows" if blocks is None else "blocks"
        for code in range(1, codes):
            if self.budget.left <= 0:
                return False
            self.on_progress(f"{what} of subgraphs", code / codes)
            floor = 0.0 if floors is None else floors.at(code)
            table.fill(code, table.fitting(code) & (floor <= self.value))
            row = table.value[code]  # without what leads to nothing better
            row[row + floor > self.value] = np.inf
        least = float(table.value[:, -1].min())
        if blocks is not None:
            self._prove(least * (1 - LONG_ROUNDING))
        if least < self.value:
            self._take(table)
        return True

    def _take(self, table: Table) -> None:
        """The plan of the least value in the table, if it fits and is the best."""
        device = self._devices(table, int(table.value[:, -1].argmin()))
        if not may_be(self.problem, device):
            return
        slots = slot_of(self.problem, device)
        value = latency(self.problem, slots)
        if value < self.value:
            self.best, self.value = placement_of(self.problem, slots), value
            self.budget.listener.found(self.best)

    def _devices(self, table: Table, code: int) -> Whole:
        """`[op]` the device of the piece that it is in."""
        graph, holds = self.ideals.graph, self.ideals.holds
        cpus = np.flatnonzero(self.problem.is_cpu)
        free = [list(group) for group in self.kinds.devices]
        node_device = np.zeros(graph.node_count, dtype=np.int64)
        time = np.zeros((graph.node_count, self.problem.device_count))
        possible = self.problem.unit_allowed[self.problem.op_unit]
        np.add.at(time, graph.op_node, np.where(possible, self.problem.op_time, np.inf))
        for piece in table.pieces(code):
            nodes = np.flatnonzero(holds[piece.high] & ~holds[piece.low])
            devices = [free[kind].pop() for kind in table.kinds_of(piece)]
            if not devices:
                node_device[nodes] = cpus[time[nodes][:, cpus].argmin(axis=1)]
                continue
            for node, device in shared_out(graph, nodes, devices, time).items():
                node_device[node] = device
        return node_device[graph.op_node]

    def _prove(self, seconds: float) -> None:
        proved = min(seconds, self.value)
        if self.proved < proved < math.inf:
            self.proved = proved
            self.budget.listener.proved(proved, SOURCE)
