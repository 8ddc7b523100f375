"""The best cuts of a linear order of the nodes (Tarnawski et al. §5.1.2, DPL).

A depth-first order of the nodes is cut into stages of neighbours: the paper's artificial path
through the graph, which leaves as many ideals as nodes. Quick on large graphs, and on most the
best contiguous split or close to it, which no bound says here.

More than `MOST_POSITIONS` nodes are first joined to that many runs of neighbours of about equal
work, each ending where least is cut; then the cuts found are moved among all positions near them.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from placewright.analysis.contracted import ContractedGraph, directions
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import Floats, Wide
from placewright.planners.base import Proposal
from placewright.planners.throughput.calibrated import beside_equal_shares, placed
from placewright.planners.throughput.ideal_search import Search
from placewright.planners.throughput.splits import Split, best_of_lines, evaluated, linear_orders
from placewright.planners.throughput.stages import stage_tables, too_many_states
from placewright.problem import Problem

MOST_POSITIONS = 3_000
MOST_EXACT = 1_500  # positions for which chains of stages are proved where cuts do not add up
ROUNDS = 8
NEGLIGIBLE = 1e-9  # of all work: what a piece without work counts for
MORE_ORDERS = 50  # where none of those asked for fits
MOST_WORK = 2_000_000_000  # without a limit of time, for one order; see `ideal_search.MOST_WORK`


class LinearDP:
    """Options: `orders`, how many depth-first orders are tried (1); the best of them counts.

    Where no cuts of these fit, more are tried until one has some that do.
    """

    name: ClassVar[str] = "linear-dp"
    objective: ClassVar[str] = "throughput"

    def __init__(self, orders: str | int = 1) -> None:
        try:
            self.orders = int(orders)
        except ValueError:
            self.orders = 0
        if self.orders < 1:
            raise OptionError(
                f"planner 'linear-dp': orders is '{orders}'; give a whole number above 0"
            )

    def supports(self, problem: Problem) -> str | None:
        return too_many_states(problem)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        best: Split | None = None
        with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
            for graph in directions(problem):
                for number, order in enumerate(linear_orders(graph, self.orders, seed)):
                    on_progress("orders", number / self.orders)
                    if best is None or budget.left > 0:
                        best = _better(best, best_cut(graph, order, budget, on_progress))
            best = best or first_cut(problem, budget, seed, on_progress)
        if best is None:
            raise InfeasibleError(
                f"planner '{self.name}' found no split that fits the devices (no cuts of its "
                f"{max(self.orders, MORE_ORDERS)} linear orders do); give them more memory, try "
                "more orders or planner 'ideal-dp'"
            )
        found = placed(best)
        return Proposal(beside_equal_shares(self, problem, found, budget, seed, on_progress))


def first_cut(problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Split | None:
    """The best cut of the first of many orders that has one."""
    for graph in directions(problem):
        for order in linear_orders(graph, MORE_ORDERS, seed):
            if budget.left <= 0:
                return None
            if found := best_cut(graph, order, budget, on_progress):
                return found
    return None


def _better(one: Split | None, two: Split | None) -> Split | None:
    if one is None or (two is not None and two.value < one.value):
        return two
    return one


def best_cut(
    graph: ContractedGraph, order: Wide, budget: Budget, on_progress: Progress
) -> Split | None:
    """The best split of one order into neighbours; exact up to `MOST_EXACT` nodes, and for more
    where each stage's load is known from the stage alone."""
    line = graph.contracted(_ranks(order))
    if line.node_count <= MOST_POSITIONS:
        return _on(graph, order, _cut(line, budget, on_progress))
    tables = stage_tables(line)
    position = _even_positions(line, MOST_POSITIONS)
    best: Split | None = None
    for _ in range(ROUNDS):
        group = np.searchsorted(position, np.arange(line.node_count), side="right")
        found = _cut(line.contracted(group), budget, on_progress)
        if found is None:
            return _on(graph, order, best)
        split = evaluated(tables, found.node_stage[group], found.stage_kind)
        if best is not None and split.value >= best.value:
            break
        best = split
        if budget.left <= 0:
            break
        position = _positions_near(split, MOST_POSITIONS)
    return _on(graph, order, best)


def _ranks(order: Wide) -> Wide:
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank


def _on(graph: ContractedGraph, order: Wide, split: Split | None) -> Split | None:
    """The split of the line as one of the nodes."""
    if split is None:
        return None
    return evaluated(stage_tables(graph), split.node_stage[_ranks(order)], split.stage_kind)


def _cut(line: ContractedGraph, budget: Budget, on_progress: Progress) -> Split | None:
    """The best split of nodes that follow each other in the order of their numbers."""
    order = np.arange(line.node_count)
    tables = stage_tables(line)
    if not tables.kinds:
        return None
    if (not tables.approximate and tables.passes == 1) or line.node_count > MOST_EXACT:
        return best_of_lines(tables, [order], np.inf)
    path = replace(line, edge_source=order[:-1], edge_target=order[1:])
    most = MOST_WORK if math.isinf(budget.left) else 0
    search = Search(budget, line.node_count + 2, on_progress, most_work=most)
    search.run([stage_tables(path)])
    return search.best if isinstance(search.best, Split) else None


def _even_positions(line: ContractedGraph, count: int) -> Wide:
    """`count` - 1 positions (the first node after a cut) of equal work apart, narrow cuts."""
    work = np.where(line.allowed, line.time.sum(axis=0), np.inf).min(axis=1)
    work = np.where(np.isfinite(work), work, 0.0) + NEGLIGIBLE * work[np.isfinite(work)].sum()
    bucket = (np.cumsum(work) / work.sum() * count).astype(np.int64)[:-1]
    cut = _cut_bytes(line)[1:]
    by_bucket = np.lexsort((cut, bucket))
    first = np.flatnonzero(np.diff(bucket[by_bucket], prepend=-1))
    return np.sort(by_bucket[first] + 1)


def _cut_bytes(line: ContractedGraph) -> Floats:
    """`[position]` bytes of the nets that a cut before it goes through."""
    first = np.minimum(
        line.nets.producer, np.minimum.reduceat(line.nets.readers, line.nets.offsets[:-1])
    )
    last = np.maximum(
        line.nets.producer, np.maximum.reduceat(line.nets.readers, line.nets.offsets[:-1])
    )
    change = np.zeros(line.node_count + 1)
    weight = line.nets.bytes + line.nets.tensors
    np.add.at(change, first + 1, weight)
    np.add.at(change, last + 1, -weight)
    return np.asarray(np.cumsum(change)[:-1])


def _positions_near(split: Split, count: int) -> Wide:
    """Positions around the cuts of a split, as many for each."""
    stage = split.node_stage
    cuts = np.flatnonzero(np.diff(stage)) + 1
    reach = max(count // (2 * max(len(cuts), 1)), 1)
    near = (cuts[:, None] + np.arange(-reach, reach)[None, :]).ravel()
    return np.unique(near[(near > 0) & (near < len(stage))])
