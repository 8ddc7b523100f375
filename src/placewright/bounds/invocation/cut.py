"""The least that a subgraph takes which has one part of a path, and within a memory.

See `bounds.invocation.path` for what a run of a path is, and why nothing that has it costs less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placewright.graph import Floats, Whole
from placewright.kernels.invocation.hulls import FREE, INSIDE, OUTSIDE
from placewright.kernels.invocation.timing import READS, WRITES
from placewright.problem import LONG_ROUNDING, ROUNDING, Problem

RESOLUTION = 2**40  # whole units that all work and transfers together come to
ENDLESS = 4 * RESOLUTION
PRICE_STEPS = 8


@dataclass(frozen=True, eq=False)
class Accelerator:
    """One of several equal accelerators, with `read[tensor]` and `write[tensor]` seconds."""

    device: int
    time: Floats
    read: Floats
    write: Floats

    @classmethod
    def of(cls, problem: Problem, device: int) -> Accelerator:
        read, write = (
            problem.host_latency[way, device]
            + problem.tensor_bytes * problem.host_seconds_per_byte[way, device]
            for way in (READS, WRITES)
        )
        return cls(device, problem.op_time[:, device], read, write)


class LeastCut:
    """The network of one run: node 0 is the inside, node 1 the outside, then ops and tensors.

    An op on the source's side belongs to the subgraph. Cut are: op → 1, what it takes to compute;
    tensor's reading node → producer, if some reader is in and the producer out; producer →
    writing node, if the producer is in and some reader out.
    """

    def __init__(
        self, problem: Problem, kind: Accelerator, state: Whole, way: int, tied: bool
    ) -> None:
        self.state, self.way, self.problem = state, way, problem
        self.names = np.where(state == INSIDE, 0, 1)
        self.free = np.flatnonzero(state == FREE)
        self.names[self.free] = 2 + np.arange(len(self.free))
        self.time = np.where(state == OUTSIDE, 0.0, kind.time)
        self.kept = _kept_bytes(problem, way)
        total = float(self.time.sum() + kind.read.sum() + kind.write.sum())
        self.scale = RESOLUTION / total if total > 0 else 1.0
        self.tail, self.head, self.capacity = self._edges(kind, tied)

    def _edges(self, kind: Accelerator, tied: bool) -> tuple[Whole, Whole, Whole]:
        """All edges but those of computing."""
        problem, names = self.problem, self.names
        reading = 2 + len(self.free) + np.arange(problem.tensor_count)
        writing = reading + problem.tensor_count
        of, consumer = problem.edge_tensor, names[problem.consumers]
        producer = names[problem.tensor_producer]
        endless = np.full(len(of), ENDLESS)
        tails = [consumer, reading, producer, writing[of]]
        heads = [reading[of], producer, writing, consumer]
        capacities = [endless, self._whole(kind.read), self._whole(kind.write), endless]
        if tied:
            one, other = _mates(problem, self.way)
            tails += [names[one], names[other]]
            heads += [names[other], names[one]]
            capacities += [np.full(len(one), ENDLESS)] * 2
        tail, head, capacity = (np.concatenate(each) for each in (tails, heads, capacities))
        used = (tail != head) & (tail != 1) & (head != 0) & (capacity > 0)
        return tail[used], head[used], capacity[used]

    def least_within(self, capacity: float) -> float:
        """Seconds that any subgraph takes at least that keeps no more than `capacity` bytes.

        Each subgraph S is a line over the price μ, cost(S) + μ · (memory(S) - capacity); a cut
        finds the lowest at one μ. The next μ is where the lowest lines known on both sides meet.
        """
        price, best = 0.0, 0.0
        too_large = fitting = None
        for _ in range(1 + PRICE_STEPS):
            value, kept = self.solve(price)
            best = max(best, value - price * capacity)
            line = value - price * kept, kept
            too_large, fitting = (line, fitting) if kept > capacity else (too_large, line)
            following = next_price(price, too_large, fitting, capacity)
            if following is None:
                break
            price = following
        return best

    def solve(self, price: float) -> tuple[float, float]:
        """Least seconds at `price` seconds per byte kept, and the bytes then kept."""
        from ortools.graph.python import max_flow

        charged = self.time + price * self.kept
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(
            np.concatenate([self.tail, self.names[self.free]]),
            np.concatenate([self.head, np.ones(len(self.free), dtype=np.int64)]),
            np.concatenate([self.capacity, self._whole(charged[self.free])]),
        )
        inside = self.state == INSIDE
        compute = float(charged[inside].sum()) * (1 - ROUNDING)
        if not (self.tail == 0).any() or (not (self.head == 1).any() and not len(self.free)):
            return compute, float(self.kept[inside].sum())
        if flow.solve(0, 1) != flow.OPTIMAL:  # nothing is proved
            return 0.0, 0.0
        names = np.array(flow.get_source_side_min_cut())
        inside |= np.isin(self.names, names[names >= 2])
        return compute + flow.optimal_flow() / self.scale, float(self.kept[inside].sum())

    def _whole(self, seconds: Floats) -> Whole:
        """Rounded down, so that a cut is never too long."""
        return np.minimum(np.floor(seconds * self.scale), ENDLESS).astype(np.int64)


def capacity_of(problem: Problem, memory: float) -> float:
    """Bytes that so much memory holds: of the model at most all, also if it is endless."""
    return min(memory, float(problem.unit_memory.sum())) * (1 + LONG_ROUNDING)


Line = tuple[float, float]
"""Seconds of something, and the bytes that it keeps: what it costs at every price."""


def next_price(
    price: float, too_large: Line | None, fitting: Line | None, capacity: float
) -> float | None:
    """Seconds per byte at which the lowest lines known on both sides of `capacity` meet.

    More than `price` where there is none yet that fits; None where there is nothing to gain.
    """
    if too_large is None:
        return None
    if fitting is None:
        return 4.0 * price or (too_large[0] / capacity if capacity > 0 else 1.0)
    following = (fitting[0] - too_large[0]) / (too_large[1] - fitting[1])
    if not following > 0 or abs(following - price) <= LONG_ROUNDING * price:
        return None
    return following


def _mates(problem: Problem, way: int) -> tuple[Whole, Whole]:
    """Pairs of ops of one unit and way, enough to join them all."""
    ops = np.flatnonzero(problem.is_backward == bool(way))
    ops = ops[np.argsort(problem.op_unit[ops], kind="stable")]
    same = problem.op_unit[ops[1:]] == problem.op_unit[ops[:-1]]
    return ops[:-1][same], ops[1:][same]


def _kept_bytes(problem: Problem, way: int) -> Floats:
    """`[op]` its unit's memory, shared out over the unit's ops of this way."""
    mine = problem.is_backward == bool(way)
    count = np.bincount(problem.op_unit[mine], minlength=problem.unit_count)
    kept = problem.unit_memory[problem.op_unit] / np.maximum(count[problem.op_unit], 1)
    return np.where(mine, kept, 0.0)
