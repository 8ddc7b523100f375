"""Which nodes of a contracted graph may be joined, and how much two that share a net gain by it."""

from __future__ import annotations

import numpy as np

from placewright.analysis.contracted import ContractedGraph
from placewright.graph import Floats, Ints
from placewright.planners.joining import Forest

HEAVIEST_SHARE = 0.7  # of an even share of all work: what a contracted unit may have


class Nodes(Forest):
    """Nodes joined into groups, no group too big for the devices that allow it."""

    def __init__(self, graph: ContractedGraph, within: Ints | None) -> None:
        super().__init__(graph.node_count, within)
        work = graph.time.sum(axis=0)
        fastest = np.where(graph.allowed, work, np.inf).min(axis=1)
        devices = work.shape[1]
        self.work = fastest.tolist()
        self.memory = graph.memory.tolist()
        self.allowed = [frozenset(np.flatnonzero(row).tolist()) for row in graph.allowed]
        self.heaviest = HEAVIEST_SHARE * float(fastest.sum()) / devices
        self.capacity = graph.problem.device_memory.tolist()

    def joined(self, one: int, two: int) -> bool:
        memory = self.memory[one] + self.memory[two]
        allowed = self.allowed[one] & self.allowed[two]
        if self.work[one] + self.work[two] > self.heaviest or not any(
            memory <= self.capacity[device] for device in allowed
        ):
            return False
        self.work[one] += self.work[two]
        self.memory[one], self.allowed[one] = memory, allowed
        return True


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
