"""Joining units that share nets: how a problem is made coarser at random."""

from __future__ import annotations

import numpy as np

from placewright.analysis.contracted import ContractedGraph
from placewright.graph import Floats, Ints

HEAVIEST_SHARE = 0.7  # of an even share of all work: what a contracted unit may have
POWERS = (0.5, 1.0, 2.0)  # of the weights: how much heavier nets come first


class Forest:
    """Units joined into groups, no group too big for the devices that allow it."""

    def __init__(self, graph: ContractedGraph, within: Ints | None) -> None:
        work = graph.time.sum(axis=0)
        fastest = np.where(graph.allowed, work, np.inf).min(axis=1)
        devices = work.shape[1]
        self.parent = list(range(graph.node_count))
        self.count = graph.node_count
        self.work = fastest.tolist()
        self.memory = graph.memory.tolist()
        self.allowed = [frozenset(np.flatnonzero(row).tolist()) for row in graph.allowed]
        self.within = None if within is None else within.tolist()
        self.heaviest = HEAVIEST_SHARE * float(fastest.sum()) / devices
        self.capacity = graph.problem.device_memory.tolist()

    def find(self, unit: int) -> int:
        while self.parent[unit] != unit:
            self.parent[unit] = self.parent[self.parent[unit]]
            unit = self.parent[unit]
        return unit

    def join(self, one: int, two: int) -> bool:
        one, two = self.find(one), self.find(two)
        if one == two or (self.within is not None and self.within[one] != self.within[two]):
            return False
        memory = self.memory[one] + self.memory[two]
        allowed = self.allowed[one] & self.allowed[two]
        if self.work[one] + self.work[two] > self.heaviest or not any(
            memory <= self.capacity[device] for device in allowed
        ):
            return False
        self.parent[two] = one
        self.work[one] += self.work[two]
        self.memory[one], self.allowed[one] = memory, allowed
        self.count -= 1
        return True

    def groups(self) -> Ints:
        roots = [self.find(unit) for unit in range(len(self.parent))]
        return np.unique(roots, return_inverse=True)[1].astype(np.int32)


def shared_nets(graph: ContractedGraph) -> tuple[Ints, Floats]:
    """Pairs of units in a net, and how heavy: what it costs to cut, over what the two take."""
    problem = graph.problem
    ways = (
        (problem.host_latency, problem.host_seconds_per_byte)
        if problem.staging == "host"
        else (problem.link_latency, problem.link_seconds_per_byte)
    )
    latency, per_byte = (float(way.max()) for way in ways)
    weight: dict[tuple[int, int], float] = {}
    for net in graph.each_net:
        seconds = (net.tensors * latency + net.bytes * per_byte) / len(net.readers)
        for reader, _ in net.readers:
            pair = (min(net.producer, reader), max(net.producer, reader))
            weight[pair] = weight.get(pair, 0.0) + seconds
    ends = np.array(list(weight), dtype=np.int32).reshape(-1, 2)
    work = np.where(graph.allowed, graph.time.sum(axis=0), np.inf).min(axis=1)
    mean = max(float(work.mean()), 1e-30)
    return ends, np.array(list(weight.values())) / (work[ends].sum(axis=1) + mean)


def in_random_order(ends: Ints, weight: Floats, rng: np.random.Generator) -> list[tuple[int, int]]:
    """The pairs, heavy ones more likely to come early."""
    if not len(weight):
        return []
    clock = rng.exponential(size=len(weight)) / np.maximum(weight, 1e-30) ** rng.choice(POWERS)
    pairs: list[tuple[int, int]] = ends[np.argsort(clock)].tolist()
    return pairs
