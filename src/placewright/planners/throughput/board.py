"""What planners for graphs and clusters of any size look at: pieces, without tables per device.

Where stages are contiguous, the pieces of `directions`; otherwise units, each a piece of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.nets import LOADS
from placewright.analysis.pieces import Pieces, directions, pieces_of
from placewright.graph import Floats, Ints, Wide, frozen
from placewright.kernels.common.pieces import connected_pieces
from placewright.kernels.throughput.arrays import PipelineArrays, nets_of_pieces
from placewright.kernels.throughput.loads import Loads, loads_of, value
from placewright.planners.throughput.splits import by_layers, depth_first_orders
from placewright.problem import Problem
from placewright.units import format_bytes


@dataclass(frozen=True, eq=False)
class Board:
    """Pieces to put on devices, and `arrays` that say the same to compiled code."""

    problem: Problem
    pieces: Pieces

    @cached_property
    def arrays(self) -> PipelineArrays:
        problem, pieces = self.problem, self.pieces
        ways = 2 if problem.options.schedule == "gpipe" and problem.is_backward.any() else 1
        time, net_way = pieces.piece_time, pieces.net_way
        forward = (pieces.net_reader_ways & 1).astype(np.bool_)
        if ways == 1:
            time, net_way = time.sum(axis=0, keepdims=True), np.zeros_like(net_way)
            forward = np.ones_like(forward)
        made_and_read = nets_of_pieces(
            pieces.piece_count, pieces.net_producer, pieces.net_offsets, pieces.net_readers
        )
        return PipelineArrays(
            frozen(time, np.float64),
            frozen(pieces.piece_allowed, np.bool_),
            frozen(pieces.piece_memory, np.float64),
            pieces.net_producer.astype(np.int32),
            net_way.astype(np.int32),
            pieces.net_tensors,
            pieces.net_bytes,
            pieces.net_offsets.astype(np.int64),
            pieces.net_readers.astype(np.int32),
            forward,
            *made_and_read,
            *_narrow(pieces.followers),
            *_narrow(pieces.leaders),
            pieces.device_class,
            problem.device_memory,
            problem.link_latency,
            problem.link_seconds_per_byte,
            problem.host_latency,
            problem.host_seconds_per_byte,
            problem.staging == "host",
            LOADS.index(problem.options.load),
            ways,
        )

    def loads(self, piece_device: Ints) -> Loads:
        return loads_of(self.arrays, piece_device)

    def value(self, piece_device: Ints) -> float:
        """Seconds per input, whether it fits or not."""
        return float(value(self.loads(piece_device)))

    def units_of(self, piece_device: Ints) -> Ints:
        """`[unit]` devices of a split of the pieces."""
        _, first = np.unique(self.problem.op_unit, return_index=True)
        return np.asarray(piece_device[self.pieces.op_piece[first]], dtype=np.int32)

    def pieces_on(self, unit_device: Ints) -> Ints | None:
        """`[piece]` devices, None if a piece's units are on several."""
        device = unit_device[self.problem.op_unit]
        found = np.zeros(self.pieces.piece_count, dtype=np.int32)
        found[self.pieces.op_piece] = device
        return found if np.array_equal(found[self.pieces.op_piece], device) else None

    def fits(self) -> NDArray[np.bool_]:
        """`[piece, class]` whether a device of the class can hold the piece."""
        pieces = self.pieces
        capacity = self.problem.device_memory[[devices[0] for devices in pieces.class_devices]]
        return np.asarray(pieces.piece_allowed & (pieces.piece_memory[:, None] <= capacity[None]))

    def misfit(self) -> str | None:
        """Why some piece can be nowhere, or None."""
        nowhere = np.flatnonzero(~self.fits().any(axis=1))
        if not len(nowhere):
            return None
        ops = np.flatnonzero(self.pieces.op_piece == nowhere[0])
        name = self.problem.op_names[ops[0]]
        return (
            f"op '{name}' shares a stage with {len(ops) - 1} others, "
            f"{format_bytes(self.pieces.piece_memory[nowhere[0]])} in all, which no device can hold"
        )

    def row_rank(self, piece_device: Ints) -> Ints | None:
        """`[device]` places in a row that all edges go up, idle devices anywhere; None if none is.

        Empty where stages need not be contiguous.
        """
        import rustworkx as rx

        if not self.problem.options.contiguous:
            return np.zeros(0, dtype=np.int32)
        count = self.problem.device_count
        source = piece_device[self.pieces.edge_source].astype(np.int64)
        target = piece_device[self.pieces.edge_target].astype(np.int64)
        pairs = np.unique((source * count + target)[source != target])
        digraph = rx.PyDiGraph()
        digraph.add_nodes_from(range(count))
        digraph.add_edges_from_no_data([(int(pair // count), int(pair % count)) for pair in pairs])
        if not rx.is_directed_acyclic_graph(digraph):
            return None
        rank = np.empty(count, dtype=np.int32)
        rank[list(rx.topological_sort(digraph))] = np.arange(count)
        return rank

    def orders(self, number: int, seed: int) -> list[Wide]:
        """Linear orders of the pieces, along the data."""
        if self.problem.options.contiguous:
            pieces = self.pieces
            ends = pieces.edge_source, pieces.edge_target
            return _orders(pieces.piece_count, *ends, number, seed)
        return _unit_orders(self.problem, self.pieces, number, seed)


def boards(problem: Problem) -> list[Board]:
    """One per reading of which way backward data goes, most pieces first (see `directions`)."""
    if problem.options.contiguous:
        return [Board(problem, pieces) for pieces in directions(problem, by_links=False)]
    return [units_board(problem)]


def units_board(problem: Problem) -> Board:
    return Board(problem, pieces_of(problem, contiguous=False, by_links=False))


def _narrow(csr: tuple[Wide, Wide]) -> tuple[Wide, Ints]:
    return csr[0].astype(np.int64), csr[1].astype(np.int32)


def _unit_orders(problem: Problem, pieces: Pieces, number: int, seed: int) -> list[Wide]:
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
    group_knot, count = connected_pieces(len(ops), source[apart], target[apart])
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
    """`[piece]` on the devices of the row that allow it, on average."""
    arrays, pieces = board.arrays, board.pieces
    many = np.bincount(arrays.device_class[row], minlength=pieces.class_count)
    weight = many[None, :] * pieces.piece_allowed
    total = (arrays.time.sum(axis=0) * weight).sum(axis=1)
    return np.asarray(total / np.maximum(weight.sum(axis=1), 1))
