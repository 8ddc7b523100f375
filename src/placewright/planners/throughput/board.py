"""What planners for graphs and clusters of any size look at: nodes, without tables per device.

Where stages are contiguous, the nodes of `directions`; otherwise units, each a node of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.contracted import ContractedGraph, contracted_graph, directions
from placewright.graph import Floats, Ints, Wide
from placewright.kernels.common.components import strong_components
from placewright.kernels.throughput.arrays import PipelineArrays
from placewright.kernels.throughput.loads import Loads, value
from placewright.planners.throughput.splits import by_layers, depth_first_orders
from placewright.problem import Problem
from placewright.units import format_bytes


@dataclass(frozen=True, eq=False)
class Board:
    """Nodes to put on devices."""

    problem: Problem
    graph: ContractedGraph

    @property
    def arrays(self) -> PipelineArrays:
        return self.graph.arrays

    def loads(self, node_device: Ints) -> Loads:
        return self.graph.loads(node_device)

    def value(self, node_device: Ints) -> float:
        """Seconds per input, whether it fits or not."""
        return float(value(self.loads(node_device)))

    def units_of(self, node_device: Ints) -> Ints:
        """`[unit]` devices of a split of the nodes."""
        _, first = np.unique(self.problem.op_unit, return_index=True)
        return np.asarray(node_device[self.graph.op_node[first]], dtype=np.int32)

    def nodes_on(self, unit_device: Ints) -> Ints | None:
        """`[node]` devices, None if a node's units are on several."""
        device = unit_device[self.problem.op_unit]
        found = np.zeros(self.graph.node_count, dtype=np.int32)
        found[self.graph.op_node] = device
        return found if np.array_equal(found[self.graph.op_node], device) else None

    def fits(self) -> NDArray[np.bool_]:
        """`[node, class]` whether a device of the class can hold the node."""
        graph = self.graph
        capacity = self.problem.device_memory[[devices[0] for devices in graph.class_devices]]
        return np.asarray(graph.allowed & (graph.memory[:, None] <= capacity[None]))

    def misfit(self) -> str | None:
        """Why some node can be nowhere, or None."""
        nowhere = np.flatnonzero(~self.fits().any(axis=1))
        if not len(nowhere):
            return None
        ops = np.flatnonzero(self.graph.op_node == nowhere[0])
        name = self.problem.op_names[ops[0]]
        return (
            f"op '{name}' shares a stage with {len(ops) - 1} others, "
            f"{format_bytes(self.graph.memory[nowhere[0]])} in all, which no device can hold"
        )

    def row_rank(self, node_device: Ints) -> Ints | None:
        """`[device]` places in a row that all edges go up, idle devices anywhere; None if none is.

        Empty where stages need not be contiguous.
        """
        if not self.problem.options.contiguous:
            return np.zeros(0, dtype=np.int32)
        return places_in_row(self.graph, node_device, self.problem.device_count)

    def orders(self, number: int, seed: int) -> list[Wide]:
        """Linear orders of the nodes, along the data."""
        if self.problem.options.contiguous:
            graph = self.graph
            ends = graph.edge_source, graph.edge_target
            return _orders(graph.node_count, *ends, number, seed)
        return _unit_orders(self.problem, self.graph, number, seed)


def places_in_row(graph: ContractedGraph, node_stage: Ints, count: int) -> Ints | None:
    """`[stage]` places, of `count` stages, that all edges between nodes go up; None if none are."""
    import rustworkx as rx

    source = node_stage[graph.edge_source].astype(np.int64)
    target = node_stage[graph.edge_target].astype(np.int64)
    pairs = np.unique((source * count + target)[source != target])
    digraph = rx.PyDiGraph()
    digraph.add_nodes_from(range(count))
    digraph.add_edges_from_no_data([(int(pair // count), int(pair % count)) for pair in pairs])
    if not rx.is_directed_acyclic_graph(digraph):
        return None
    rank = np.empty(count, dtype=np.int32)
    rank[list(rx.topological_sort(digraph))] = np.arange(count)
    return rank


def boards(problem: Problem) -> list[Board]:
    """One per reading of which way backward data goes, most nodes first (see `directions`)."""
    if problem.options.contiguous:
        return [Board(problem, graph) for graph in directions(problem, by_links=False)]
    return [units_board(problem)]


def units_board(problem: Problem) -> Board:
    return Board(problem, contracted_graph(problem, contiguous=False, by_links=False))


def _unit_orders(problem: Problem, graph: ContractedGraph, number: int, seed: int) -> list[Wide]:
    """Units along the data, each where its longest op is.

    Ops are put in a line together with their twins of the backward pass, backward edges turned
    round; other ops that are colocated (tied parameters) may be far apart in it.
    """
    ops = np.arange(problem.op_count)
    op_group = np.where(problem.forward_twin >= 0, problem.forward_twin, ops)
    one, two = problem.edge_producer, problem.consumers
    backward = problem.is_backward[one]
    counts = backward == problem.is_backward[two]
    source, target = np.where(backward, two, one)[counts], np.where(backward, one, two)[counts]
    source, target = op_group[source].astype(np.int64), op_group[target].astype(np.int64)
    apart = source != target
    group_knot, count = strong_components(len(ops), source[apart], target[apart])
    knot = group_knot[op_group]
    edges = knot[one][counts], knot[two][counts]
    key = np.unique(np.minimum(*edges) * count + np.maximum(*edges))
    source, target = key // count, key % count
    source, target = source[source != target], target[source != target]
    time = np.where(np.isfinite(problem.op_time[:, 0]), problem.op_time[:, 0], 0.0)
    by_unit = np.lexsort((-time, problem.op_unit))
    longest = by_unit[np.searchsorted(problem.op_unit[by_unit], np.arange(problem.unit_count))]
    found = []
    for order in _orders(count, source, target, number, seed):
        place = np.empty(count, dtype=np.int64)
        place[order] = np.arange(count)
        found.append(np.argsort(place[knot[longest]], kind="stable"))
    return found


def _orders(count: int, source: Wide, target: Wide, number: int, seed: int) -> list[Wide]:
    """As numbered, depth first, by layers, and more of depth first."""
    found = depth_first_orders(count, source, target, max(number, 2), seed)
    return [*found[:2], by_layers(count, source, target), *found[2:]][:number]


def mean_seconds(board: Board, row: Ints) -> Floats:
    """`[node]` on the devices of the row that allow it, on average."""
    arrays, graph = board.arrays, board.graph
    many = np.bincount(arrays.device_class[row], minlength=graph.class_count)
    weight = many[None, :] * graph.allowed
    total = (arrays.time.sum(axis=0) * weight).sum(axis=1)
    return np.asarray(total / np.maximum(weight.sum(axis=1), 1))
