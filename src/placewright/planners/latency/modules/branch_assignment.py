"""Branch assignment: how many of equal branches have each op on each device, by a program.

With n[i, d] branches whose place i is on device d and z[e, d, f] whose edge e goes from d to f,

    min w · (T + what bytes cost) + Σ seconds of transfers
    such that   Σ n[i, ·] = branches,   Σ z[e, d, ·] = n[tail of e, d],
                Σ z[e, ·, f] = n[head of e, f],
                what n, z keep any device or channel busy ≤ T.

Branches are not told apart, so that forty heads are no harder than four. What lies outside them
stays where it is; of a tensor that several branches read there is one transfer to a device, or one
for each edge, as the problem has it. Within a branch, each edge counts as a transfer of its own.

A device that gets a copy of such a tensor is idle until it is there, which on slow links is a good
part of T. Copies are taken to leave before anything else, for fast devices first; what a device and
its own channels do comes after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.planners.latency.modules.equal_branches import Twins
from placewright.problem import Problem
from placewright.solvers.mathopt import HORIZON, Program, Term, solve_program

WEIGHT, SPREAD = 6.0, 10.0  # of T, in seconds of transfers: at least, and how much more by seed
ENOUGH = 0.02  # of the objective: a gap that is as good as none
NODES = 100
LONGEST = 100.0  # that T may be, in horizons

Transfer = tuple[int, int, float, int]
"""From, to, seconds, and the variable that says how often."""


@dataclass(frozen=True)
class Edge:
    """From place `tail` to `head` of a branch; -1 for outside of it, which is on `device`.

    A tensor with a number `shared` comes from outside to several branches.
    """

    tail: int
    head: int
    bytes: float
    device: int = -1
    shared: int = -1

    @property
    def is_inner(self) -> bool:
        return self.device < 0


def shared_out(
    problem: Problem,
    twins: Twins,
    unit_device: Ints,
    seconds: float,
    seed: int,
    price: Floats | None = None,
) -> Ints | None:
    """`[branch, place]` devices, other units on `unit_device[unit]`; None if none were found.

    `seconds` may be infinite: the solver's nodes are limited as well. A byte costs
    ``price[device]`` seconds, nothing by default.
    """
    price = np.zeros(problem.device_count) if price is None else price
    return _Sharing(_Branch(problem, twins, unit_device), price).solved(seconds, seed)


@dataclass(eq=False)
class _Branch:
    """The first of the branches, and where what it is joined to is."""

    problem: Problem
    twins: Twins
    unit_device: Ints

    @cached_property
    def is_open(self) -> Flags:
        """`[place, device]`."""
        is_open: Flags = self.problem.unit_allowed[self.twins.unit[0]]
        return is_open

    @cached_property
    def time(self) -> Floats:
        """`[place, device]` seconds; 0 where it cannot be."""
        problem = self.problem
        rows = [problem.op_time[problem.op_unit == unit].sum(axis=0) for unit in self.twins.unit[0]]
        return np.where(self.is_open, np.array(rows), 0.0)

    @cached_property
    def slowness_rank(self) -> NDArray[np.intp]:
        """`[device]` how many are faster for a branch."""
        return np.argsort(np.argsort(self.time.sum(axis=0), kind="stable"))

    @cached_property
    def edges(self) -> list[Edge]:
        p, place = self.problem, {int(unit): k for k, unit in enumerate(self.twins.unit[0])}
        inside = np.isin(p.op_unit, self.twins.unit)
        found = []
        for tensor, producer in enumerate(p.tensor_producer.tolist()):
            tail = place.get(int(p.op_unit[producer]), -1)
            readers = p.consumers[p.consumer_offsets[tensor] : p.consumer_offsets[tensor + 1]]
            from_outside = not inside[producer]
            by_device = p.options.transfer_unit == "tensor" and inside[readers].sum() > 1
            for reader in readers.tolist():
                head = place.get(int(p.op_unit[reader]), -1)
                if tail == head or (tail < 0 and not from_outside):
                    continue
                if tail >= 0 and head < 0 and inside[reader]:
                    continue
                end = producer if tail < 0 else reader
                device = -1 if min(tail, head) >= 0 else int(self.unit_device[p.op_unit[end]])
                shared = tensor if from_outside and by_device else -1
                found.append(Edge(tail, head, float(p.tensor_bytes[tensor]), device, shared))
        return found

    def move(self, edge: Edge) -> Floats:
        """`[source, target]` seconds."""
        p = self.problem
        seconds: Floats = p.link_latency + edge.bytes * p.link_seconds_per_byte
        return np.where(np.eye(p.device_count, dtype=np.bool_), 0.0, seconds)


@dataclass(eq=False)
class _Sharing:
    """The program; what the branches take on the best single device is the horizon."""

    branch: _Branch
    price: Floats
    program: Program = field(default_factory=Program)

    @cached_property
    def scale(self) -> float:
        branch = self.branch
        alone = np.where(branch.is_open.all(axis=0), branch.time.sum(axis=0), np.inf)
        horizon = alone.min() if np.isfinite(alone.min()) else branch.time.sum()
        return HORIZON / (self.count * float(horizon)) if horizon > 0.0 else 1.0

    @property
    def count(self) -> int:
        return self.branch.twins.count

    def solved(self, seconds: float, seed: int) -> Ints | None:
        n = self._counts()
        z = {k: self._pairs(edge, n) for k, edge in enumerate(self.branch.edges) if edge.is_inner}
        latest = self.program.variable(0.0, LONGEST * HORIZON)
        sent = self._loads(n, z, latest)
        self._memories(n)
        total = self.program.variable(0.0, np.inf)
        weight = WEIGHT * SPREAD ** np.random.default_rng(seed).random()
        paid = [(x, weight * cost) for x, cost in self._costs(n)]
        self.program.row([(total, -1.0), (latest, weight), *sent, *paid], upper=0.0)
        self.program.minimise(total)
        answer = solve_program(
            self.program, "highs", seconds, nodes=NODES, seed=seed % 2**31, gap=ENOUGH
        )
        if answer.values is None:
            return None
        value = np.rint(answer.values).astype(np.int64)
        return _rows(self.branch.edges, value[n], {e: value[pairs] for e, pairs in z.items()})

    def _counts(self) -> Wide:
        """`[place, device]` variables."""
        n = np.array(
            [
                [self._count(self.count if is_open else 0) for is_open in row]
                for row in self.branch.is_open.tolist()
            ]
        )
        for row in n.tolist():
            self.program.row([(x, 1.0) for x in row], self.count, self.count)
        return n

    def _count(self, most: int) -> int:
        return self.program.variable(0.0, float(most), integer=True)

    def _pairs(self, edge: Edge, n: Wide) -> Wide:
        """`[tail's device, head's device]` variables."""
        devices = self.branch.problem.device_count
        pairs = np.array(
            [[self._count(self.count) for _ in range(devices)] for _ in range(devices)]
        )
        for d in range(devices):
            for total, terms in ((n[edge.tail, d], pairs[d]), (n[edge.head, d], pairs[:, d])):
                row = [(int(x), 1.0) for x in terms]
                self.program.row([(int(total), -1.0), *row], 0.0, 0.0)
        return pairs

    def _loads(self, n: Wide, z: dict[int, Wide], latest: int) -> list[Term]:
        """No device or channel is busy for longer than `latest`; returns what transfers take."""
        problem, time = self.branch.problem, self.branch.time * self.scale
        copies = self._copies(n)
        idle = [self._until_copies_are_there(copies, d) for d in range(problem.device_count)]
        for d in range(problem.device_count):
            work = list(zip(n[:, d].tolist(), time[:, d].tolist(), strict=True))
            self.program.row([*work, *idle[d], (latest, -1.0)], upper=0.0)
        busy: dict[int, list[Term]] = {}
        sent = []
        for source, target, seconds, times in [*copies.values(), *self._transfers(n, z)]:
            sent.append((times, seconds * self.scale))
            for channel in self._channels(source, target):
                busy.setdefault(channel, []).append(sent[-1])
        owner = _owners(problem)
        for channel, terms in busy.items():
            before = idle[owner[channel]] if owner[channel] >= 0 else []
            self.program.row([*terms, *before, (latest, -1.0)], upper=0.0)
        return sent

    def _copies(self, n: Wide) -> dict[tuple[int, int], Transfer]:
        """By tensor that several branches read, and device: whether it goes there."""
        copies: dict[tuple[int, int], Transfer] = {}
        for edge in self.branch.edges:
            if edge.shared < 0:
                continue
            for d in range(n.shape[1]):
                if d == edge.device:
                    continue
                if (edge.shared, d) not in copies:
                    seconds = float(self.branch.move(edge)[edge.device, d])
                    copies[edge.shared, d] = edge.device, d, seconds, self.program.binary()
                copied = copies[edge.shared, d][-1]
                readers = int(n[edge.head, d])
                self.program.row([(readers, 1.0), (copied, -self.count)], upper=0.0)
        return copies

    def _until_copies_are_there(
        self, copies: dict[tuple[int, int], Transfer], device: int
    ) -> list[Term]:
        """What the copies to it take, and those before them on the same channels."""
        rank = self.branch.slowness_rank
        return [
            (times, seconds * self.scale)
            for source, target, seconds, times in copies.values()
            if target == device
            or (
                rank[target] < rank[device]
                and self._channels(source, target) & self._channels(source, device)
            )
        ]

    def _channels(self, source: int, target: int) -> set[int]:
        problem = self.branch.problem
        offsets, channels, _ = problem.active_channels
        pair = source * problem.device_count + target
        return set(channels[offsets[pair] : offsets[pair + 1]].tolist())

    def _transfers(self, n: Wide, z: dict[int, Wide]) -> Iterator[Transfer]:
        """All but the copies for several branches."""
        for number, edge in enumerate(self.branch.edges):
            move = self.branch.move(edge)
            if edge.is_inner:
                for (source, target), times in np.ndenumerate(z[number]):
                    if source != target:
                        yield source, target, float(move[source, target]), int(times)
            elif edge.shared < 0:
                for d in range(len(move)):
                    source, target = (edge.device, d) if edge.tail < 0 else (d, edge.device)
                    if source != target:
                        there = int(n[max(edge.tail, edge.head), d])
                        yield source, target, float(move[source, target]), there

    def _costs(self, n: Wide) -> list[Term]:
        """What the bytes of a branch's units cost."""
        memory = self.branch.problem.unit_memory[self.branch.twins.unit[0]]
        cost = np.outer(memory, self.price) * self.scale
        return list(zip(n.ravel().tolist(), cost.ravel().tolist(), strict=True))

    def _memories(self, n: Wide) -> None:
        """No more than units elsewhere leave."""
        p, twins = self.branch.problem, self.branch.twins
        others = np.setdiff1d(np.arange(p.unit_count), twins.unit)
        taken = np.bincount(
            self.branch.unit_device[others], p.unit_memory[others], minlength=p.device_count
        )
        memory = p.unit_memory[twins.unit[0]]
        for d, left in enumerate((p.device_memory - taken).tolist()):
            if memory.sum() * self.count > left:
                share = (memory / max(left, 1.0) * HORIZON).tolist()
                self.program.row(zip(n[:, d].tolist(), share, strict=True), upper=HORIZON)


def _owners(problem: Problem) -> Ints:
    """`[channel]` the device that alone sends over it, -1 if several may."""
    offsets, channels, names = problem.active_channels
    pair = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    first = np.full(len(names), problem.device_count, dtype=np.int64)
    last = np.full(len(names), -1, dtype=np.int64)
    np.minimum.at(first, channels, pair // problem.device_count)
    np.maximum.at(last, channels, pair // problem.device_count)
    owner: Ints = np.where(first == last, first, -1)
    return owner


def _rows(edges: list[Edge], n: Wide, z: dict[int, Wide]) -> Ints:
    """`[branch, place]` devices with these counts, those of a kind spread over all branches.

    Places are joined along edges, each to those before it; where a branch has more edges than a
    tree, the counts of some do not come out.
    """
    places, devices = n.shape
    row = np.full((int(n[0].sum()), places), -1, dtype=np.int32)
    beside: list[list[tuple[int, Wide]]] = [[] for _ in range(places)]
    for number, pairs in z.items():
        edge = edges[number]
        beside[edge.tail].append((edge.head, pairs))
        beside[edge.head].append((edge.tail, pairs.T))
    for root in range(places):
        if row[0, root] >= 0:
            continue
        row[:, root] = np.repeat(np.arange(devices), n[root])
        waiting = [root]
        while waiting:
            place = waiting.pop()
            for other, pairs in beside[place]:
                if row[0, other] < 0:
                    for device in range(devices):
                        row[row[:, place] == device, other] = np.repeat(
                            np.arange(devices), pairs[device]
                        )
                    waiting.append(other)
    return _mixed(row)


def _mixed(row: Ints) -> Ints:
    """Equal rows as far from each other as they can be.

    >>> _mixed(np.array([[0], [0], [0], [0], [1], [1]])).ravel().tolist()
    [0, 0, 1, 0, 0, 1]
    """
    _, kind, count = np.unique(row, axis=0, return_inverse=True, return_counts=True)
    kind = kind.ravel()
    order = np.argsort(kind, kind="stable")
    first = np.cumsum(count) - count
    nth = np.empty(len(row))
    nth[order] = np.arange(len(row)) - first[kind[order]]
    mixed: Ints = row[np.argsort((nth + 0.5) / count[kind], kind="stable")]
    return mixed
