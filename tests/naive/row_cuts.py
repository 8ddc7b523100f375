"""Slow obvious twins of `kernels.throughput.row_cuts`, `loads` and `annealing`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from placewright.plan import Placement
from placewright.simulate.throughput import loads


def cuts_of(graph, order, row) -> Iterator[np.ndarray]:
    """`[node]` devices of every way to cut the order over the row, devices left out or not."""
    for steps in itertools.product(range(len(row)), repeat=len(order)):
        if list(steps) == sorted(steps):
            device = np.empty(len(order), dtype=np.int32)
            device[order] = np.asarray(row)[list(steps)]
            yield device


def value_of(problem, graph, node_device) -> float:
    """Seconds per sample, infinite where it does not fit."""
    device = node_device[graph.op_node]
    if not np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all():
        return math.inf
    pinned = problem.op_pinned
    if ((pinned >= 0) & (pinned != device)).any():
        return math.inf
    used = np.bincount(device, problem.op_memory, problem.device_count)
    if (used > problem.device_memory * (1 + 1e-12)).any():
        return math.inf
    return loads(problem, Placement(device)).value


def best_cut(problem, graph, order, row) -> float:
    """The least value of all cuts of the order over the row."""
    found = (value_of(problem, graph, each) for each in cuts_of(graph, order, row))
    return min(found, default=math.inf)


def naive_crossing(problem, graph, order, latency, per_byte) -> np.ndarray:
    position = np.empty(len(order), dtype=int)
    position[order] = np.arange(len(order))
    total = np.zeros(len(order) + 1)
    for net in range(graph.net_count):
        first, last = graph.nets.offsets[net : net + 2]
        ends = [graph.nets.producer[net], *graph.nets.readers[first:last]]
        places = sorted(position[ends])
        seconds = graph.nets.tensors[net] * latency + graph.nets.bytes[net] * per_byte
        total[places[0] + 1 : places[-1] + 1] += seconds
    return total


def naive_copies(graph, node_stage) -> np.ndarray:
    """`[net, lower or higher]` stages that read the net beside its producer's, 1 at the least."""
    copies = np.ones((graph.net_count, 2))
    for net in range(graph.net_count):
        first, last = graph.nets.offsets[net : net + 2]
        home = node_stage[graph.nets.producer[net]]
        others = set(node_stage[graph.nets.readers[first:last]].tolist()) - {home}
        copies[net, 0] = max(sum(each < home for each in others), 1)
        copies[net, 1] = max(sum(each > home for each in others), 1)
    return copies
