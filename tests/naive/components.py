"""Slow, obvious twins of `kernels.common.components` and of nets by node: sets and searches."""

from __future__ import annotations


def reachable(edges, node):
    """What can be reached from a node, itself included."""
    found, waiting = {node}, [node]
    while waiting:
        at = waiting.pop()
        for source, target in edges:
            if source == at and target not in found:
                found.add(target)
                waiting.append(target)
    return found


def strong_components(count, edges):
    """The sets of nodes that can all be reached from one another."""
    reach = [reachable(edges, node) for node in range(count)]
    return {
        frozenset(other for other in reach[node] if node in reach[other]) for node in range(count)
    }


def neighbours(count, edges):
    """`[node]` the targets of its edges, in the order of the edges."""
    return [[target for source, target in edges if source == node] for node in range(count)]


def nets_of(node, producers, readers, ways):
    """`(net, way)` of each net that a node produces, with way 0, or reads."""
    made = {(net, 0) for net, producer in enumerate(producers) if producer == node}
    read = {
        (net, way)
        for net, nodes in enumerate(readers)
        for reader, way in zip(nodes, ways[net], strict=True)
        if reader == node
    }
    return made | read
