"""A good split where ideals are too many: dynamic programming over ideals of coarser graphs.

Nodes are joined along edges that are the only one out of a node or into one, light pairs first,
which leaves no circle: whatever enters such a pair from outside can be followed inside to where it
leaves again. Where pairs leave nearly all nodes, as around one that many read, a node is joined
with all neighbours of which its edge is the only one, for which the same holds. The coarsest graph
is searched first; what it finds is the limit for the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from placewright.analysis.contracted import ContractedGraph
from placewright.analysis.reductions.circles import contracted_in_order
from placewright.graph import Wide
from placewright.planners.throughput.ideal_search import Answer, Search
from placewright.planners.throughput.stages import stage_tables

FEWEST_NODES = 12  # of a graph that is made coarser still
MOST_IDEALS = 400_000  # looked at in one graph
MOST_WORK = 30_000_000
MOST_LEFT = 0.95  # of the nodes, by pairs
HEAVY = 0.3  # of the limit: nodes joined take no longer, so that stages can still be cut apart


def coarse_split(search: Search, graphs: Sequence[ContractedGraph]) -> Answer | None:
    """The best split of coarser graphs; None unless it is better than what `search` has."""
    found = Search(
        search.budget,
        MOST_IDEALS,
        search.on_progress,
        limit=search.limit,
        most_work=MOST_WORK,
        lower_limits=False,
    )
    for graph in graphs:
        for coarse in reversed(_coarser(graph, HEAVY * search.limit)):
            found = replace(found, work=0)
            if found.prove(stage_tables(coarse)) < found.below():
                break
    search.seen += found.seen
    return found.best


def _coarser(graph: ContractedGraph, heavy: float) -> list[ContractedGraph]:
    """Graphs with fewer and fewer nodes."""
    found: list[ContractedGraph] = []
    while graph.node_count > FEWEST_NODES:
        group = _joined(graph, heavy, most=2)
        if int(group.max()) + 1 > MOST_LEFT * graph.node_count:
            group = _joined(graph, heavy, most=graph.node_count)
        if int(group.max()) + 1 == graph.node_count:
            break
        graph = contracted_in_order(graph, group)
        found.append(graph)
    return found


def _joined(graph: ContractedGraph, heavy: float, most: int) -> Wide:
    """`[node]` its group: a node and up to `most` - 1 neighbours, the lightest first.

    Edges from the node are the only ones into these neighbours, or edges to it the only ones out of
    them: all of either sort.
    """
    source, target, count = graph.edge_source, graph.edge_target, graph.node_count
    only_in = np.bincount(target, minlength=count)[target] == 1
    alone = only_in | (np.bincount(source, minlength=count)[source] == 1)
    seconds = np.where(graph.allowed, graph.time.sum(axis=0), np.inf).min(axis=1)
    memory, room = graph.memory.copy(), graph.problem.device_memory.max() / 2
    weight = seconds[source] + seconds[target]
    fits = memory[source] + memory[target] <= room
    runs = (graph.allowed[source] & graph.allowed[target]).any(axis=1)
    edges = np.flatnonzero(alone & fits & runs & (weight <= heavy))
    group, size = np.arange(count), np.ones(count, dtype=np.int64)
    inward = np.zeros(count, dtype=np.bool_)
    for edge in edges[np.argsort(weight[edges], kind="stable")].tolist():
        hub, other = source[edge], target[edge]
        if not only_in[edge]:
            hub, other = other, hub
        free = size[hub] == 1 or (size[hub] < most and inward[hub] == only_in[edge])
        if size[other] > 1 or group[other] != other or group[hub] != hub or not free:
            continue
        if seconds[hub] + seconds[other] > heavy or memory[hub] + memory[other] > room:
            continue
        seconds[hub] += seconds[other]
        memory[hub] += memory[other]
        group[other], inward[hub] = hub, only_in[edge]
        size[hub] += 1
    return np.asarray(np.unique(group, return_inverse=True)[1], dtype=np.int64)
