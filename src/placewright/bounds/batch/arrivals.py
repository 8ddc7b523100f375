"""The least that inputs wait for their tensors, where a device has more of them than before.

An edge leads from one unit of ops to another. If a device computes n inputs of the first and n' of
the second, at least r = n' − n come from elsewhere, and the mean over all L inputs of what they
wait for their tensor is at least r τ / L for a transfer of τ seconds. Inputs that go together wait
for all that goes with them: k inputs, for k b seconds beside the latency a. From m devices r inputs
wait least if as many come from each: r a + r² b / m. No more than m devices can have the other
L − n inputs, if none has fewer than the smallest batch; and a and b are the least of all links to
the device.

The cost of an edge is the sum over devices. For every amount g ≥ 0 and every potential π(n) ≥ 0
with π(0) = 0, it is g times that sum

    ≥  Σ_d ρ(n'_d) − π(n_d),    ρ(n') = min over n of π(n) + g · cost(n, n'),

so that each unit can be split by itself, with what it saves or costs the other priced (the dual of
a transport problem; Kantorovich, 1942).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placewright.graph import Flags, Floats, Wide
from placewright.kernels.batch.arrays import batches_of
from placewright.problem import Problem


@dataclass(frozen=True)
class Arrivals:
    """Edges between units of their own, as numbers of `problem`'s edges.

    ``cost[edge, kind, before, after]`` is the mean over the inputs, in seconds, that a device of
    the kind adds which has so many chunks of the producer and of the consumer.
    """

    edge: Wide
    producer: Wide  # unit
    consumer: Wide  # unit
    cost: Floats

    @classmethod
    def of(cls, problem: Problem) -> Arrivals:
        unit = problem.op_unit
        ends = unit[problem.edge_producer], unit[problem.consumers]
        edge = np.flatnonzero(ends[0] != ends[1])
        producer, consumer = (each[edge].astype(np.int64) for each in ends)
        return cls(edge, producer, consumer, _costs(problem, edge, producer))

    @classmethod
    def none(cls, problem: Problem) -> Arrivals:
        """Nobody waits."""
        kinds, counts = batches_of(problem).time.shape[1:]
        edge = np.zeros(0, dtype=np.int64)
        return cls(edge, edge, edge, np.zeros((0, kinds, counts, counts)))

    def lowered(self, potential: Floats, amount: Floats) -> Floats:
        """``ρ[edge, kind, after]`` for ``potential[edge, kind, before]`` and ``amount[edge]``."""
        cost = amount[:, None, None, None] * self.cost
        least: Floats = (potential[:, :, :, None] + cost).min(axis=2)
        return least


def _costs(problem: Problem, edge: Wide, producer: Wide) -> Floats:
    b = batches_of(problem)
    chunks = b.time.shape[2] - 1
    before, after = np.arange(chunks + 1)[:, None], np.arange(chunks + 1)
    more = np.maximum(after - before, 0) * b.chunk
    latency, per_byte = _best_links(problem)
    nbytes = problem.tensor_bytes[problem.edge_tensor[edge]][:, None, None, None]
    together = more.astype(float)
    if b.together:
        smallest = _smallest_batches(problem)[producer]
        holders = np.maximum((chunks - before) // smallest[:, None, None], 1)
        sources = np.minimum(holders, max(problem.device_count - 1, 1))
        together = (more * more / sources)[:, None]
    waiting = more * latency[:, None, None] + nbytes * per_byte[:, None, None] * together
    cost: Floats = waiting / problem.options.batch
    return cost


def _best_links(problem: Problem) -> tuple[Floats, Floats]:
    """`[kind]` the least latency, and the least seconds per byte, of links from other devices.

    0 of a kind that no link leads to.
    """
    kind = batches_of(problem).kind
    linked = np.isfinite(problem.link_latency) & np.isfinite(problem.link_seconds_per_byte)
    linked &= ~np.eye(problem.device_count, dtype=bool)
    least = np.full((2, int(kind.max()) + 1), np.inf)
    for number, table in enumerate((problem.link_latency, problem.link_seconds_per_byte)):
        np.minimum.at(least[number], kind, np.where(linked, table, np.inf).min(axis=0))
    least[~np.isfinite(least)] = 0.0
    return least[0], least[1]


def _smallest_batches(problem: Problem) -> Wide:
    """`[unit]` chunks of the smallest batch that a device takes."""
    some: Flags = np.any(batches_of(problem).allowed, axis=1)
    smallest: Wide = 1 + some[:, 1:].argmax(axis=1)
    return smallest
