"""The problem as a network with one start and one end, for the kernels of these bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.devices import channel_uses, swaps_links
from placewright.graph import Flags, Floats
from placewright.kernels.latency.dual_ascent import Part, Routes
from placewright.problem import Problem

Indices = NDArray[Any]
"""Whole numbers of any width."""

PENALTY = 4.0  # times what a part takes one after another at its slowest


class Net(NamedTuple):
    """Ops 0 (start) … n − 1 (end) numbered topologically; edges by tail."""

    time: Any
    tail: Any
    head: Any
    size: Any
    fixed: Any
    out_offsets: Any
    in_offsets: Any
    in_edges: Any


@dataclass(frozen=True, eq=False)
class Network:
    """`problem` with a start that feeds all sources and an end that reads all sinks.

    `order[k]` is the op of the problem that k is, -1 for start and end, which take no time; nor
    do edges from and to them (`net.fixed` 0, no bytes). `closed[k, device]` where an op cannot
    be, `edge[e]` the number of the problem's edge, or -1.
    """

    problem: Problem
    net: Net
    order: Indices
    edge: Indices
    closed: Flags
    share: Floats

    @property
    def count(self) -> int:
        return len(self.order)

    @property
    def device_count(self) -> int:
        return self.problem.device_count

    @cached_property
    def routes(self) -> Routes:
        offsets, channels, names = self.problem.active_channels
        problem = self.problem
        return Routes(
            problem.link_latency, problem.link_seconds_per_byte, offsets, channels, len(names)
        )

    @cached_property
    def like(self) -> Indices:
        """`[device]` the first of as much memory that can change names with it, routes the same.

        Those that can change names with one can with each other: two changes of names are one.
        """
        problem = self.problem
        names = np.arange(self.device_count, dtype=np.int32)
        uses = channel_uses(problem, names)
        like = names.copy()
        for device in names.tolist():
            for other in np.unique(like[:device]).tolist():
                renamed = names.copy()
                renamed[[device, other]] = other, device
                if (
                    problem.device_memory[other] == problem.device_memory[device]
                    and swaps_links(problem.link_latency, other, device)
                    and swaps_links(problem.link_seconds_per_byte, other, device)
                    and channel_uses(problem, renamed) == uses
                ):
                    like[device] = other
                    break
        return like

    @cached_property
    def tensor(self) -> Indices:
        """`[e]` its tensor; negative numbers of their own for edges of start and end."""
        tensor = -1 - np.arange(len(self.edge))
        inside = self.edge >= 0
        tensor[inside] = self.problem.edge_tensor[self.edge[inside]]
        return tensor

    def part(self, ops: Indices, timeless: tuple[int, ...] = (), alone: bool = True) -> Part:
        """The part of `ops` (rising) and the edges between them; some take no time or memory.

        `alone` if no other edges are charged beside those of the part; see `weights`.
        """
        net = self.net
        edges, tail, head = self.edges_between(ops)
        time, share = net.time[ops], self.share[ops]
        for op in timeless:
            time[ops == op], share[ops == op] = 0.0, 0.0
        penalty = self._penalty(time, edges)
        closed = np.where(self.closed[ops], penalty, 0.0)
        at = np.arange(len(ops) + 1)
        entering = np.argsort(head, kind="stable")
        return Part(
            time, closed, share, tail, head, net.size[edges], net.fixed[edges],
            self.weights(edges, alone), np.searchsorted(tail, at),
            np.searchsorted(head[entering], at), entering, penalty,
        )  # fmt: skip

    def edges_between(self, ops: Indices) -> tuple[Indices, Indices, Indices]:
        """Edges by tail, and the places of their tails and heads among `ops` (rising)."""
        net = self.net
        counts = net.out_offsets[ops + 1] - net.out_offsets[ops]
        starts = np.repeat(net.out_offsets[ops] - np.cumsum(counts) + counts, counts)
        edges = starts + np.arange(counts.sum())
        place = np.searchsorted(ops, net.head[edges])
        inside = ops[np.minimum(place, len(ops) - 1)] == net.head[edges]
        return edges[inside], np.repeat(np.arange(len(ops)), counts)[inside], place[inside]

    def _penalty(self, time: Floats, edges: Indices) -> float:
        """Where an op cannot be: more than all else can cost, and no more than rounding allows."""
        net, routes = self.net, self.routes
        moved = net.size[edges] * routes.per_byte.max() + net.fixed[edges] * routes.latency.max()
        return PENALTY * float(time.max(axis=1).sum() + moved.sum()) or 1.0

    def weights(self, edges: Indices, alone: bool) -> Floats:
        """`[edge]` how much of a transfer its channels are charged for.

        All of it where each edge is sent by itself. A tensor that goes once to each device is
        sent there if any of its readers is there: of k readers each is charged a k-th. Readers
        are those by `edges` if they are charged `alone`, else all.
        """
        if self.problem.options.transfer_unit == "edge" or not len(edges):
            return np.ones(len(edges))
        tensors = self.tensor[edges]
        if not alone:
            weight = np.ones(len(edges))
            known = tensors >= 0
            weight[known] /= np.diff(self.problem.consumer_offsets)[tensors[known]]
            return weight
        _, inverse, readers = np.unique(tensors, return_inverse=True, return_counts=True)
        share: Floats = 1.0 / readers[inverse]
        return share


def network_of(problem: Problem) -> Network:
    """See `Network`. Ops are only where their whole unit can be."""
    n = problem.op_count
    order = np.concatenate([[-1], problem.topological_order, [-1]]).astype(np.int64)
    inner = order[1:-1]
    place = np.empty(n, dtype=np.int64)
    place[inner] = np.arange(1, n + 1)
    closed = np.zeros((n + 2, problem.device_count), dtype=np.bool_)
    closed[1:-1] = ~problem.unit_allowed[problem.op_unit[inner]]
    time = np.zeros(closed.shape)
    time[1:-1] = np.where(closed[1:-1], 0.0, problem.op_time[inner])
    limited = np.isfinite(problem.device_memory) & (problem.device_memory > 0)
    capacity = np.where(limited, problem.device_memory, np.inf)
    share = np.zeros(closed.shape)
    share[1:-1] = problem.op_memory[inner][:, None] / capacity[None, :]
    tail, head, size, fixed, edge = _edges(problem, place)
    at = np.arange(n + 3)
    entering = np.argsort(head, kind="stable")
    net = Net(
        time, tail, head, size, fixed, np.searchsorted(tail, at),
        np.searchsorted(head[entering], at), entering,
    )  # fmt: skip
    return Network(problem, net, order, edge, closed, share)


def _edges(problem: Problem, place: Indices) -> tuple[Any, Any, Any, Any, Any]:
    """Tails, heads, bytes, whether latency is due, numbers; by tail, then head."""
    n = problem.op_count
    fed, feeds = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    fed[problem.consumers] = True
    feeds[problem.edge_producer] = True
    sources, sinks = place[np.flatnonzero(~fed)], place[np.flatnonzero(~feeds)]
    outer = np.zeros(len(sources) + len(sinks))
    tail = np.concatenate(
        [place[problem.edge_producer], np.zeros(len(sources), dtype=np.int64), sinks]
    )
    head = np.concatenate(
        [place[problem.consumers], sources, np.full(len(sinks), n + 1, dtype=np.int64)]
    )
    size = np.concatenate([problem.tensor_bytes[problem.edge_tensor], outer])
    fixed = np.concatenate([np.ones(problem.edge_count), outer])
    edge = np.concatenate([np.arange(problem.edge_count), outer.astype(np.int64) - 1])
    by_tail = np.lexsort((head, tail))
    return tuple(each[by_tail] for each in (tail, head, size, fixed, edge))  # type: ignore[return-value]
