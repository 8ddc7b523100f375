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
from placewright.analysis.precedence import leading
from placewright.graph import Floats, Wide
from placewright.kernels.invocation.ideal_steps import (
    AGAIN,
    BACKWARD,
    FORWARD,
    Lattice,
    Steps,
    count_steps,
    fill_steps,
    turn_round,
)
from placewright.kernels.throughput.ideal_listing import surviving_ideals
from placewright.kernels.throughput.ideals import Ideals as Listed
from placewright.kernels.throughput.ideals import Windows, packed, unpacked
from placewright.kernels.throughput.stage_loads import Nets
from placewright.planners.invocation.ideals.crossings import Crossings, all_local, crossings_of
from placewright.planners.invocation.ideals.kinds import Kinds, cpu_times, host_rates
from placewright.problem import Problem

MOST_STEP_BYTES = 1 << 29
ROWS_AT_ONCE = 4_096


@dataclass(frozen=True, eq=False)
class Ideals:
    """Ideals by rising level, a subset never after a superset, from the empty one to all nodes.

    `holds[ideal, node]`, and as `bits`, 64 nodes a word; `level[ideal]`; the `steps`: if `local`,
    those within a level, else all. Transfers in columns: inputs, their bytes, outputs and theirs:
    ``always[node, column]`` of a node in any set; ``done[column, ideal]`` of nets that are read
    again, up to an ideal; and of a step to another level ``begin[column, ideal]`` for what crosses
    where it begins, ``end[column, ideal]`` where it ends; `hosts[row, column]` seconds for these,
    a row as in `Steps.crossing`. ``comparable[node]`` as bits the nodes that a node leads to or
    depends on, and itself. ``on_cpu[node]`` seconds there, empty without CPUs; `stretch[node]`, the
    level between whose cut nodes it is, or that a cut node ends; -1 - that of a cut node.
    """

    graph: ContractedGraph
    bits: NDArray[np.uint64]
    holds: NDArray[np.bool_]
    level: Wide
    steps: Steps
    local: bool
    always: Floats
    done: Floats
    begin: Floats
    end: Floats
    hosts: Floats
    comparable: NDArray[np.uint64]
    on_cpu: Floats
    stretch: Wide

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

    def node_time(self, kinds: Kinds) -> Floats:
        """`[node, kind]` seconds of computing, and of transfers that it has in any set."""
        time = np.zeros((self.graph.node_count, len(kinds)))
        np.add.at(time, self.graph.op_node, kinds.op_time)
        return np.asarray(time + self.always @ kinds.host.T)

    def slowest(self, time: Floats) -> float:
        """Seconds of all nodes where they take longest, by ``time[node, kind]`` or on CPUs."""
        every = np.column_stack([time, self.on_cpu]) if len(self.on_cpu) else time
        return float(np.where(np.isfinite(every), every, 0.0).max(axis=1).sum())

    def host_row(self, kinds: Kinds) -> Wide:
        """`[kind]` its row of `hosts`, -1 where transfers take no time."""
        if not len(self.hosts):
            return np.full(len(kinds), -1)
        same = (kinds.host[:, None, :] == self.hosts).all(axis=2)
        return np.asarray(same.argmax(axis=1))

    @cached_property
    def starts(self) -> Wide:
        """`[level]` its first ideal; last how many ideals there are."""
        return np.searchsorted(self.level, np.arange(int(self.level[-1]) + 2)).astype(np.int64)

    def backwards(self) -> tuple[Ideals, Wide]:
        """The same from the other end, and the order of its steps among these.

        What was inside an ideal is then still to be done.
        """
        offsets = np.zeros(self.count + 1, dtype=np.int64)
        targets = np.zeros_like(self.steps.targets)
        order = np.zeros(len(targets), dtype=np.int64)
        turn_round(self.steps.offsets, self.steps.targets, offsets, targets, order)
        steps = Steps(
            offsets,
            targets,
            self.steps.nodes[order],
            self.steps.critical[order],
            self.steps.on_cpu[order] if len(self.steps.on_cpu) else self.steps.on_cpu,
            np.ascontiguousarray(self.steps.crossing[:, order]),
        )
        turned = replace(
            self,
            bits=np.ascontiguousarray(~self.bits[::-1]),
            holds=np.ascontiguousarray(~self.holds[::-1]),
            level=self.level[-1] - self.level[::-1],
            steps=steps,
            done=self.done[:, -1:] - self.done[:, ::-1],
            begin=np.ascontiguousarray(self.end[:, ::-1]),
            end=np.ascontiguousarray(self.begin[:, ::-1]),
            stretch=_turned(self.stretch, int(self.level[-1])),
        )
        return turned, order


def ideals_of(problem: Problem, seconds: Floats, most: int) -> Ideals | None:
    """All, if they are at most so many and the steps between them not too many; else None.

    ``seconds[op]`` is what an op takes at least.
    """
    graph = contracted_graph(problem)
    crossings = crossings_of(problem, graph)
    found = _listed(graph, crossings.nets, most)
    if found is None:
        return None
    leads = leading(graph.node_count, graph.edge_source, graph.edge_target)
    comparable = leads | leads.T | np.eye(graph.node_count, dtype=np.bool_)
    cut_nodes = np.flatnonzero(comparable.all(axis=1))
    stretch: Wide = leads[:, cut_nodes].sum(axis=1).astype(np.int64)
    holds = unpacked(found.bits, graph.node_count)
    level: Wide = holds[:, cut_nodes].sum(axis=1).astype(np.int64)
    order = np.argsort(level, kind="stable")
    lattice = Lattice(
        found.bits[order], level[order], *_rows(found.net_offsets, found.nets, order),
        crossings.nets.producer, packed(_readers(crossings, graph.node_count)), crossings.flow,
        crossings.written, *graph.leaders,
        np.bincount(graph.op_node, seconds, graph.node_count).astype(np.float64),
        _on_cpu(problem, graph),
    )  # fmt: skip
    rates = host_rates(problem)[~problem.is_cpu]
    hosts = np.unique(rates, axis=0) if rates.any() else rates[:0]
    local = not len(hosts) or all_local(crossings, stretch, cut_nodes)
    steps = _steps(lattice, crossings.nets, hosts, within=local)
    if steps is None:
        return None
    holds = holds[order]
    return Ideals(
        graph, lattice.bits, holds, lattice.level, steps, local, crossings.always,
        _read_again(crossings, holds), *_crossing(crossings, lattice), hosts,
        packed(comparable), lattice.on_cpu, _marked(stretch, cut_nodes),
    )  # fmt: skip


def _on_cpu(problem: Problem, graph: ContractedGraph) -> Floats:
    """`[node]` seconds on the best CPU; empty if there is none."""
    if not problem.is_cpu.any():
        return np.zeros(0)
    total = np.zeros(graph.node_count)
    np.add.at(total, graph.op_node, cpu_times(problem))
    return total


def _marked(stretch: Wide, cut_nodes: Wide) -> Wide:
    """`[node]` how many cut nodes lead to it; -1 - that of a cut node."""
    marked = stretch.copy()
    marked[cut_nodes] = -1 - stretch[cut_nodes]
    return marked


def _turned(marked: Wide, levels: int) -> Wide:
    """The same from the other end: what was between cut nodes still is, in the other order."""
    return np.where(marked >= 0, levels - marked, -1 - levels - marked)


def _listed(graph: ContractedGraph, nets: Nets, most: int) -> Listed | None:
    """Every ideal, with the nets that it cuts."""
    count = graph.node_count
    no_price, nothing = np.zeros((len(nets.producer), 0)), np.zeros(0)
    unlimited = Windows(np.zeros((count, 0)), no_price, no_price, nothing, np.zeros((0, 1)), 1)
    waiting = np.bincount(graph.edge_target, minlength=count)
    visited, kept, found = surviving_ideals(
        graph.followers, waiting, nets, np.zeros((count, 0)), unlimited, most, most
    )
    return None if visited < 0 or kept < 0 else found


def _read_again(crossings: Crossings, holds: NDArray[np.bool_]) -> Floats:
    """`[column, ideal]` of the nets that are read again, those with a reader in the ideal."""
    done, nets = np.zeros((4, len(holds))), crossings.nets
    reads = _readers(crossings, holds.shape[1])
    for net in np.flatnonzero(crossings.flow == AGAIN).tolist():
        touched = holds[:, reads[net]].any(axis=1)
        done[0] += nets.tensors[net] * touched
        done[1] += nets.bytes[net] * touched
    return done


def _crossing(crossings: Crossings, lattice: Lattice) -> tuple[Floats, Floats]:
    """`[column, ideal]` for steps that begin at an ideal and for those that end at it."""
    count = len(lattice.level)
    begin, end = np.zeros((4, count)), np.zeros((4, count))
    ideal = np.repeat(np.arange(count), np.diff(lattice.net_offsets))
    flow, written = (each[lattice.nets] for each in (crossings.flow, crossings.written))
    for side, column, counts in (
        (begin, 0, flow != BACKWARD),
        (begin, 2, (flow == BACKWARD) & written),
        (end, 0, flow == BACKWARD),
        (end, 2, (flow == FORWARD) & written),
    ):
        for row, amount in enumerate((crossings.nets.tensors, crossings.nets.bytes), column):
            np.add.at(side[row], ideal[counts], amount[lattice.nets[counts]])
    return begin, end


def _readers(crossings: Crossings, nodes: int) -> NDArray[np.bool_]:
    """`[net, node]` whether it is one of its readers."""
    nets, again = crossings.nets, np.flatnonzero(crossings.flow == AGAIN)
    reads = np.zeros((len(crossings.flow), nodes), dtype=np.bool_)
    reads[np.repeat(np.arange(len(reads)), np.diff(nets.offsets)), nets.readers] = True
    reads[again, nets.producer[again]] = True
    return reads


def _steps(lattice: Lattice, nets: Nets, hosts: Floats, *, within: bool) -> Steps | None:
    offsets = np.zeros(len(lattice.level) + 1, dtype=np.int64)
    count_steps(lattice, within, offsets)
    total = int(offsets[-1])
    cpus = bool(len(lattice.on_cpu))
    if total * (4 + 2 + 8 + 8 * cpus + 8 * len(hosts)) > MOST_STEP_BYTES:
        return None
    targets, nodes = np.zeros(total, dtype=np.int32), np.zeros(total, dtype=np.int16)
    steps = Steps(
        offsets, targets, nodes, np.zeros(total), np.zeros(total * cpus),
        np.zeros((len(hosts), total)),
    )  # fmt: skip
    read, write = (
        hosts[:, [way]] * nets.tensors + hosts[:, [way + 1]] * nets.bytes for way in (0, 2)
    )
    count = len(lattice.seconds)
    nodes_there, longest = np.zeros(count, dtype=np.int64), np.zeros(count)
    fill_steps(lattice, within, read, write, steps, nodes_there, longest)
    return steps


def _rows(offsets: Wide, entries: Wide, order: Wide) -> tuple[Wide, Wide]:
    """CSR with its rows in another order."""
    size = np.diff(offsets)[order]
    begin = np.append(0, np.cumsum(size))
    place = np.arange(begin[-1]) - np.repeat(begin[:-1] - offsets[:-1][order], size)
    return begin.astype(np.int64), entries[place]
