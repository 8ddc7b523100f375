"""Nodes of an ONNX model in an order in which they can run.

ONNX asks for one, but ONNX Runtime does without, and tools write models that have none (its own
conversion to float16 does).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

from placewright.importers.onnx.files import subgraphs
from placewright.importers.onnx.ops import captured

if TYPE_CHECKING:
    from onnx import GraphProto


def put_in_order(graph: GraphProto) -> None:
    """List each node of `graph`, and of the graphs within, behind those whose outputs it reads.

    Nodes stay as near to their places as that allows; all stay where they are if some wait for
    each other.
    """
    for node in graph.node:
        for subgraph in subgraphs(node):
            put_in_order(subgraph)
    maker = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
    sources = [
        {maker[name] for name in (*node.input, *captured(node)) if name in maker}
        for node in graph.node
    ]
    if all(max(each, default=-1) < number for number, each in enumerate(sources)):
        return
    order = _order(sources)
    if len(order) == len(graph.node):
        nodes = [type(graph.node[0]).FromString(graph.node[n].SerializeToString()) for n in order]
        del graph.node[:]
        graph.node.extend(nodes)


def _order(sources: Sequence[set[int]]) -> list[int]:
    """Numbers behind all of their `sources`, the least first; some are missing if in a circle."""
    readers: list[list[int]] = [[] for _ in sources]
    waits = [len(each) for each in sources]
    for number, each in enumerate(sources):
        for source in each:
            readers[source].append(number)
    ready = [number for number, count in enumerate(waits) if not count]
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for reader in readers[number]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, reader)
    return order
