"""Nodes that one device alone can run share its stage.

Let a class have a single device, and let v and w be nodes that no other class can run: not
supported, pinned, or without room for what they keep. A stage runs a node only if all its devices
can, so the stage of v has that device and no other, and so has that of w. A device has one stage.
So v and w share it in every split, and with them what lies between them, for stages are contiguous.
No split is lost, whatever the options; where what is together then fits nowhere, there is none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placewright.analysis.contracted import ContractedGraph
from placewright.analysis.reductions.circles import contracted_in_order
from placewright.problem import ROUNDING


def with_sole_devices(graph: ContractedGraph) -> ContractedGraph:
    """The graph with what each single device alone can run in one node, by what has room."""
    room = graph.problem.device_memory[[devices[0] for devices in graph.class_devices]]
    allowed = graph.allowed & (graph.memory[:, None] <= room * (1 + ROUNDING))
    if (allowed != graph.allowed).any():
        graph = replace(graph, allowed=allowed, time=graph.time * allowed)
    single = np.array([len(devices) == 1 for devices in graph.class_devices])
    group = np.arange(graph.node_count)
    alone = allowed.sum(axis=1) == 1
    for each in np.flatnonzero(single).tolist():
        members = np.flatnonzero(alone & allowed[:, each])
        group[members] = members.min(initial=graph.node_count)
    if (group == np.arange(graph.node_count)).all():
        return graph
    return contracted_in_order(graph, np.unique(group, return_inverse=True)[1])
