"""The ideals of a problem's graph, and the steps from one to another that a subgraph may be.

*Cut nodes* are those that every other node leads to or depends on. The *level* of an ideal is how
many of them it holds: an ideal is part of every one of a higher level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.contracted import ContractedGraph, contracted_graph
from placewright.graph import Floats, Wide
from placewright.kernels.invocation.ideal_steps import (
    Lattice,
    Steps,
    count_steps,
    fill_steps,
    turn_round,
)
from placewright.kernels.throughput.ideal_listing import surviving_ideals
from placewright.kernels.throughput.ideals import Ideals as Listed
from placewright.kernels.throughput.ideals import Windows
from placewright.kernels.throughput.stage_loads import Nets
from placewright.problem import Problem

MOST_STEP_BYTES = 1 << 29
ROWS_AT_ONCE = 4_096


@dataclass(frozen=True, eq=False)
class Ideals:
    """Ideals by rising level, a subset never after a superset, from the empty one to all nodes.

    `holds[ideal, node]`, and as `bits`, 64 nodes a word; `level[ideal]`; `cut_tensors[ideal]` and
    `cut_bytes[ideal]` of the nets that it cuts; the `steps`: if `local`, those within a level, else
    all. Then a net that an ideal cuts has a reader in every ideal of a higher level, and its
    producer in none of a lower one. ``comparable[node]`` as bits the nodes that it leads to or
    depends on, and itself. `turned` if it goes from all nodes to none.
    """

    graph: ContractedGraph
    bits: NDArray[np.uint64]
    holds: NDArray[np.bool_]
    level: Wide
    cut_tensors: Floats
    cut_bytes: Floats
    steps: Steps
    local: bool
    comparable: NDArray[np.uint64]
    turned: bool = False

    @property
    def count(self) -> int:
        return len(self.level)

    def summed(self, weight: Floats) -> Floats:
        """`[row, ideal]` the sums of ``weight[row, node]`` over what is before an ideal."""
        total = np.empty((len(weight), self.count))
        for first in range(0, self.count, ROWS_AT_ONCE):
            rows = self.holds[first : first + ROWS_AT_ONCE].astype(np.float64)
            total[:, first : first + ROWS_AT_ONCE] = weight @ rows.T
        return total

    @cached_property
    def starts(self) -> Wide:
        """`[level]` its first ideal; last how many ideals there are."""
        return np.searchsorted(self.level, np.arange(int(self.level[-1]) + 2)).astype(np.int64)

    def backwards(self) -> tuple[Ideals, Wide]:
        """The same from the other end, and the order of its steps among these.

        What was inside an ideal is then still to be done.
        """
        offsets = np.zeros(self.count + 1, dtype=np.int64)
        targets, order = (np.zeros(len(self.steps.targets), dtype=np.int64) for _ in range(2))
        turn_round(self.steps.offsets, self.steps.targets, offsets, targets, order)
        critical, *crossing = (each[order] if len(each) else each for each in self.steps[3:])
        steps = Steps(offsets, targets, self.steps.nodes[order], critical, *crossing)
        turned = replace(
            self,
            bits=np.ascontiguousarray(~self.bits[::-1]),
            holds=np.ascontiguousarray(~self.holds[::-1]),
            level=self.level[-1] - self.level[::-1],
            cut_tensors=self.cut_tensors[::-1],
            cut_bytes=self.cut_bytes[::-1],
            steps=steps,
            turned=not self.turned,
        )
        return turned, order


def ideals_of(problem: Problem, seconds: Floats, most: int) -> Ideals | None:
    """All, if they are at most so many and the steps between them not too many; else None.

    ``seconds[op]`` is what an op takes at least.
    """
    graph = contracted_graph(problem)
    found = _listed(graph, most)
    if found is None:
        return None
    nets = graph.nets
    before, after = _comparable(graph)
    beside = [a | b | 1 << node for node, (a, b) in enumerate(zip(before, after, strict=True))]
    cut_nodes = [node for node, each in enumerate(beside) if each.bit_count() == graph.node_count]
    marked = sum(1 << node for node in cut_nodes)
    stretch = np.array([(each & marked).bit_count() for each in before])
    holds = _unpacked(found.bits, graph.node_count)
    level: Wide = holds[:, cut_nodes].sum(axis=1).astype(np.int64)
    order = np.argsort(level, kind="stable")
    offsets, cut = _rows(found.net_offsets, found.nets, order)
    lattice = Lattice(
        found.bits[order], level[order], offsets, cut, nets.producer.astype(np.int64),
        _reader_bits(graph), *graph.leaders,
        np.bincount(graph.op_node, seconds, graph.node_count).astype(np.float64),
    )  # fmt: skip
    pays = bool(problem.host_latency.any() or problem.host_seconds_per_byte.any())
    local = not pays or _all_local(graph, stretch, cut_nodes)
    steps = _steps(lattice, graph, within=local, pays=pays)
    if steps is None:
        return None
    row = np.repeat(np.arange(len(order)), np.diff(offsets))
    tensors, sizes = np.zeros(len(order)), np.zeros(len(order))
    np.add.at(tensors, row, nets.tensors[cut])
    np.add.at(sizes, row, nets.bytes[cut])
    return Ideals(
        graph,
        lattice.bits,
        holds[order],
        lattice.level,
        tensors,
        sizes,
        steps,
        local,
        _packed(beside, found.bits.shape[1]),
    )


def _listed(graph: ContractedGraph, most: int) -> Listed | None:
    """Every ideal, with the nets that it cuts."""
    count, nets = graph.node_count, graph.nets
    no_price, nothing = np.zeros((graph.net_count, 0)), np.zeros(0)
    unlimited = Windows(np.zeros((count, 0)), no_price, no_price, nothing, np.zeros((0, 1)), 1)
    visited, kept, found = surviving_ideals(
        graph.followers,
        np.bincount(graph.edge_target, minlength=count),
        Nets(*nets[:6], graph.reader_ways, *graph.node_nets),
        np.zeros((count, 0)),
        unlimited,
        most,
        most,
    )
    return None if visited < 0 or kept < 0 else found


def _comparable(graph: ContractedGraph) -> tuple[list[int], list[int]]:
    """`[node]` the sets, as bits, of nodes that lead to it and of those that it leads to."""
    before, after = ([0] * graph.node_count for _ in range(2))
    edges = list(zip(graph.edge_source.tolist(), graph.edge_target.tolist(), strict=True))
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        before[target] |= before[source] | 1 << source
    for source, target in sorted(edges, key=lambda edge: -edge[0]):
        after[source] |= after[target] | 1 << target
    return before, after


def _packed(sets: list[int], words: int) -> NDArray[np.uint64]:
    """`[row]` sets as bits, 64 nodes a word."""
    octets = b"".join(each.to_bytes(8 * words, "little") for each in sets)
    return np.frombuffer(octets, dtype="<u8").astype(np.uint64).reshape(-1, words)


def _all_local(graph: ContractedGraph, stretch: Wide, cut_nodes: list[int]) -> bool:
    """Whether no net leads past a cut node."""
    nets = graph.nets
    end = stretch[nets.producer] + np.isin(nets.producer, cut_nodes)
    net = np.repeat(np.arange(graph.net_count), np.diff(nets.offsets))
    return bool((stretch[nets.readers] == end[net]).all())


def _steps(lattice: Lattice, graph: ContractedGraph, *, within: bool, pays: bool) -> Steps | None:
    offsets = np.zeros(len(lattice.level) + 1, dtype=np.int64)
    count_steps(lattice, within, offsets)
    total = int(offsets[-1])
    columns = 4 * pays + 3
    if 8 * columns * total > MOST_STEP_BYTES:
        return None
    targets, nodes = (np.zeros(total, dtype=np.int64) for _ in range(2))
    inputs, input_bytes, outputs, output_bytes = (np.zeros(total if pays else 0) for _ in range(4))
    steps = Steps(
        offsets, targets, nodes, np.zeros(total), inputs, input_bytes, outputs, output_bytes
    )
    nets = graph.nets
    fill_steps(lattice, within, nets.tensors, nets.bytes, steps, np.zeros(graph.node_count))
    return steps


def _unpacked(bits: NDArray[np.uint64], count: int) -> NDArray[np.bool_]:
    """`[ideal, node]`, of 64 nodes a word."""
    octets = bits.astype("<u8").view(np.uint8)
    return np.unpackbits(octets, axis=1, count=count, bitorder="little").astype(np.bool_)


def _reader_bits(graph: ContractedGraph) -> NDArray[np.uint64]:
    """`[net]` its readers, 64 nodes a word."""
    bits = np.zeros((graph.net_count, (graph.node_count + 63) // 64), dtype=np.uint64)
    net = np.repeat(np.arange(graph.net_count), np.diff(graph.nets.offsets))
    reader = graph.nets.readers.astype(np.uint64)
    np.bitwise_or.at(
        bits,
        (net, (reader >> np.uint64(6)).astype(np.int64)),
        np.uint64(1) << (reader & np.uint64(63)),
    )
    return bits


def _rows(offsets: Wide, entries: Wide, order: Wide) -> tuple[Wide, Wide]:
    """CSR with its rows in another order."""
    size = np.diff(offsets)[order]
    begin = np.append(0, np.cumsum(size))
    place = np.arange(begin[-1]) - np.repeat(begin[:-1] - offsets[:-1][order], size)
    return begin.astype(np.int64), entries[place]
