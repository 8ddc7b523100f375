"""Nodes of a block given to several accelerators that work on it at the same time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from placewright.analysis.contracted import ContractedGraph
from placewright.graph import Floats, Wide

MOST_CHOICES = 5_000


def shared_out(
    graph: ContractedGraph, nodes: Wide, devices: Sequence[int], time: Floats
) -> dict[int, int]:
    """The device of each node: those that hang together on one, so that the busiest is done first.

    ``time[node, device]`` seconds. Every choice is tried where there are few, else the longest goes
    first to where it ends first. What does not fit a device's memory is not chosen, but for want of
    anything else.
    """
    parts = _together(graph, nodes)
    load = np.array([[time[part, device].sum() for device in devices] for part in parts])
    kept = np.array([graph.memory[part].sum() for part in parts])
    room = graph.problem.device_memory[list(devices)]
    few = len(devices) ** len(parts) <= MOST_CHOICES
    chosen = (_best_of_all if few else _longest_first)(load, kept, room)
    return {
        node: devices[place]
        for part, place in zip(parts, chosen, strict=True)
        for node in part.tolist()
    }


def _together(graph: ContractedGraph, nodes: Wide) -> list[Wide]:
    """The nodes in parts that no edge leads from one to another of."""
    import rustworkx as rx

    place = np.full(graph.node_count, -1)
    place[nodes] = np.arange(len(nodes))
    source, target = place[graph.edge_source], place[graph.edge_target]
    inside = (source >= 0) & (target >= 0)
    found = rx.PyGraph()
    found.add_nodes_from(range(len(nodes)))
    pairs = np.column_stack([source, target])[inside].tolist()
    found.add_edges_from_no_data([(a, b) for a, b in pairs])
    return [nodes[sorted(members)] for members in rx.connected_components(found)]


def _best_of_all(load: Floats, kept: Floats, room: Floats) -> Sequence[int]:
    parts, places = np.arange(len(load)), load.shape[1]

    def seconds(chosen: tuple[int, ...]) -> tuple[bool, float]:
        where = np.array(chosen)
        over = np.bincount(where, kept, places) > room
        return bool(over.any()), float(np.bincount(where, load[parts, where], places).max())

    return min(itertools.product(range(places), repeat=len(load)), key=seconds)


def _longest_first(load: Floats, kept: Floats, room: Floats) -> Sequence[int]:
    ends, free = np.zeros(load.shape[1]), room.copy()
    chosen = [0] * len(load)
    for part in np.argsort(-load.min(axis=1), kind="stable").tolist():
        total = np.where(kept[part] <= free, ends + load[part], math.inf)
        place = int((ends + load[part] if np.isinf(total).all() else total).argmin())
        chosen[part] = place
        ends[place] += load[part, place]
        free[place] -= kept[part]
    return chosen
