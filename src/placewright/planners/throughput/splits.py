"""Contiguous splits: what one comes to, and the best over linear orders of the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placewright.analysis.contracted import ContractedGraph
from placewright.budget import Budget
from placewright.graph import Flags, Wide
from placewright.kernels.common.components import adjacency
from placewright.kernels.latency.sequential import breadth_first_order, depth_first_order
from placewright.kernels.throughput.ideals import open_places
from placewright.kernels.throughput.line_dp import best_cuts
from placewright.kernels.throughput.stage_loads import chain_rows
from placewright.plan import Placement
from placewright.planners.throughput.shares import balanced
from placewright.planners.throughput.stages import StageTables
from placewright.planners.throughput.windows import WindowTables

SLACK = 1.3  # the first cutoff of a search over lines, in shares of the least load there can be


@dataclass(frozen=True, eq=False)
class Split:
    """Nodes on stages: `node_stage[node]`, `stage_kind[stage]` (`StageTables.kinds`).

    `thresholds` are the largest loads of a stage, of both passes or of each under ``gpipe``;
    `value` seconds, their sum. Where tables are `relaxed` it is what any shares come to at least.
    """

    tables: StageTables
    node_stage: Wide
    stage_kind: Wide
    thresholds: tuple[float, ...]
    value: float

    def stage_devices(self) -> list[tuple[int, ...]]:
        """The devices of each stage: of each class in order."""
        left = [list(devices) for devices in self.tables.graph.class_devices]
        return [
            tuple(
                left[each].pop(0)
                for each, number in enumerate(self.tables.kinds[kind])
                for _ in range(number)
            )
            for kind in self.stage_kind.tolist()
        ]

    def placement(self) -> Placement:
        """Its stages on their devices, with shares of their own where replicas have such."""
        devices = self.stage_devices()
        stage_device = np.array([each[0] for each in devices], dtype=np.int32)
        node_device = stage_device[self.node_stage[self.tables.graph.op_node]]
        replicas = tuple(each for each in devices if len(each) > 1)
        return balanced(self.tables.graph.problem, Placement(node_device, replicas=replicas))


def evaluated(tables: StageTables, node_stage: Wide, stage_kind: Wide) -> Split:
    """The split with what it comes to."""
    rows = chain_rows(
        tables.nets, tables.costs, tables.chain, node_stage, stage_kind, len(stage_kind)
    )[:, : len(tables.rows)].max(axis=0)
    thresholds = tuple(float(rows[tables.threshold == each].max()) for each in range(tables.passes))
    return Split(tables, node_stage, stage_kind, thresholds, sum(thresholds))


def best_of_lines(
    tables: StageTables,
    orders: Sequence[Wide],
    cutoff: float,
    budget: Budget | None = None,
    windows: WindowTables | None = None,
) -> Split | None:
    """The best split into neighbours of one of the orders, if one is below `cutoff`.

    When the budget is over the orders are left out that come after the first that has one.
    `windows` are those of the tables, if they are known.

    Exact for each order where nothing but the union of the other stages matters to a stage and
    passes count together (see `StageTables.approximate`); a good start elsewhere.
    """
    best: Split | None = None
    windows = windows or WindowTables(tables)
    limits = tables.limits([np.inf, np.inf])
    for order in orders:
        if best is not None and budget is not None and budget.left <= 0:
            break
        bound = cutoff if best is None else min(cutoff, best.value)
        for tried in _cutoffs(tables, bound) if best is None else [bound]:
            value, starts, kinds = best_cuts(
                order, tables.nets, tables.costs, limits, tables.threshold, tables.lead_count,
                len(tables.states), tried, open_positions(windows, order, tried),
            )  # fmt: skip
            if value < np.inf:
                split = _cut(tables, order, starts, kinds)
                if split.value < bound:
                    best = split
                break
    return best


def open_positions(windows: WindowTables, order: Wide, cutoff: float) -> Flags:
    """`[place]` whether a split below the cutoff may have a stage that begins there."""
    found = np.ones(len(order) + 1, dtype=np.bool_)
    if cutoff < np.inf:
        open_places(windows.within([cutoff] * windows.tables.passes), order, found)
    return found


def _cutoffs(tables: StageTables, bound: float) -> list[float]:
    """Rising cutoffs up to `bound`: low ones are looked through faster."""
    least = least_load(tables)
    cutoffs = [least * SLACK, least * SLACK**2, least * SLACK**4, least * SLACK**8]
    return [each for each in cutoffs if 0 < each < bound] + [bound]


def least_load(tables: StageTables) -> float:
    """Computing shared out in fractions over the fastest devices: no split is below."""
    graph = tables.graph
    seconds = np.where(graph.allowed, graph.time.sum(axis=0), np.inf).min(axis=1)
    return float(seconds.sum()) / graph.problem.device_count


def most_load(tables: StageTables) -> float:
    """Above every load: all nodes on one stage that pays all transfers, doubled."""
    costs, graph = tables.costs, tables.graph
    worst = np.abs(costs.coefficient).max(axis=(0, 1, 2)) if costs.coefficient.size else np.zeros(2)
    between = np.maximum(worst, tables.chain.between.max(axis=(0, 1, 2)))
    readers = np.diff(graph.nets.offsets) + 1
    transfers = ((between[0] * graph.nets.tensors + between[1] * graph.nets.bytes) * readers).sum()
    seconds = tables.added[:, :, : len(tables.rows)].sum(axis=(0, 2)).max(initial=0.0)
    return 2.0 * float(seconds + 2.0 * transfers) or 1.0


def _cut(tables: StageTables, order: Wide, starts: Wide, kinds: Wide) -> Split:
    position_stage = np.zeros(len(order), dtype=np.int64)
    position_stage[starts[1:]] = 1
    node_stage = np.empty(len(order), dtype=np.int64)
    node_stage[order] = np.cumsum(position_stage)
    return evaluated(tables, node_stage, kinds)


def linear_orders(graph: ContractedGraph, number: int, seed: int = 0) -> list[Wide]:
    """`number` depth-first linear orders of the nodes, different ones first."""
    return depth_first_orders(graph.node_count, graph.edge_source, graph.edge_target, number, seed)


def depth_first_orders(
    count: int, edge_source: Wide, edge_target: Wide, number: int, seed: int = 0
) -> list[Wide]:
    """`number` linear orders of what is numbered in one; edges go up.

    As numbered; depth first from the start and from the end, neighbours in the order of their
    numbers and in the reverse; then neighbours shuffled.
    """
    random = np.random.default_rng(seed)
    found = [np.arange(count)][:number]
    step = 0
    while len(found) < number:
        backwards, reverse = step % 2 == 0, step % 4 < 2
        ends = (edge_source, edge_target)
        source, target = ends[::-1] if backwards else ends
        rank = np.arange(count) if step < 4 else random.permutation(count)
        if reverse:
            rank = rank[::-1]
        found.append(_depth_first(count, source, target, rank, backwards))
        step += 1
    return found


def _depth_first(count: int, source: Wide, target: Wide, rank: Wide, backwards: bool) -> Wide:
    by_source = np.lexsort((rank[target], source))
    offsets = np.searchsorted(source[by_source], np.arange(count + 1))
    waiting = np.bincount(target, minlength=count)
    roots = np.flatnonzero(waiting == 0)
    roots = roots[np.argsort(rank[roots])].astype(np.int32)
    order: Wide = depth_first_order(offsets, target[by_source], waiting, roots).astype(np.int64)
    return order[::-1].copy() if backwards else order


def by_layers(count: int, source: Wide, target: Wide) -> Wide:
    """A linear order of what is numbered in one, in which each comes as it became ready."""
    offsets, followers = adjacency(count, source, target)
    waiting = np.bincount(target, minlength=count)
    roots = np.flatnonzero(waiting == 0).astype(np.int32)
    order: Wide = breadth_first_order(offsets, followers, waiting, roots).astype(np.int64)
    return order
