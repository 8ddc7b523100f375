"""Slow obvious twins of `kernels.throughput.dominance`: ideals as sets, a stage net by net."""

from __future__ import annotations

from itertools import combinations

import numpy as np


def ideals_of(graph) -> list[frozenset[int]]:
    """All sets of nodes that hold with a node all before it, the smaller first."""
    edges = list(zip(graph.edge_source.tolist(), graph.edge_target.tolist(), strict=True))
    nodes = range(graph.node_count)
    return [
        frozenset(chosen)
        for size in range(graph.node_count + 1)
        for chosen in combinations(nodes, size)
        if all(a in chosen for a, b in edges if b in chosen)
    ]


def last_of(graph, ideal) -> set[int]:
    """Its nodes none of whose followers is in it."""
    edges = zip(graph.edge_source.tolist(), graph.edge_target.tolist(), strict=True)
    return set(ideal) - {a for a, b in edges if b in ideal}


def parts_of(graph, ideals) -> list[set[tuple[int, int]]]:
    """Of each ideal `(node, number)`: the ideals of the list that lack one of its last nodes."""
    number = {ideal: k for k, ideal in enumerate(ideals)}
    return [
        {
            (node, number[ideal - {node}])
            for node in last_of(graph, ideal)
            if ideal - {node} in number
        }
        for ideal in ideals
    ]


def stage_seconds(tables, move, lower, stage) -> np.ndarray:
    """`[row]` what a stage of the move is charged whose lower stages hold `lower`."""
    costs = tables.costs
    kind, coefficient = costs.move_kind[move], costs.coefficient[costs.move_variant[move]]
    seconds = costs.added[sorted(stage), kind, : costs.time_rows].sum(axis=0)
    for net in tables.graph.each_net:
        readers = dict(net.readers)
        inside = {node for node in readers if node in stage}
        below = {node for node in readers if node in lower}
        above = set(readers) - inside - below
        bits = []
        if net.producer in stage:
            bits += [(0, net.way, 0)] if below else []
            bits += [(0, net.way, 1)] if above and not (below and costs.once) else []
        elif inside:
            in_forward_pass = any(readers[node] for node in inside)
            bits = [(1, 0 if in_forward_pass else 1, 0 if net.producer in lower else 1)]
        for direction, way, side in bits:
            group = costs.group[4 * direction + 2 * way + side]
            seconds = seconds + coefficient[:, group] @ (net.tensors, net.bytes)
    return seconds
