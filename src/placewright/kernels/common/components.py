"""Units that a contiguous stage cannot tear apart: strongly connected components."""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import kernel

UNSEEN = -1


@kernel(allocates=True)
def strong_components(unit_count, sources, targets):
    """`node[unit]`: its strongly connected component (Tarjan 1972), and how many there are.

    `sources` and `targets` are the ends of the edges between units. Nodes are numbered in a
    topological order: every edge between two of them goes to the higher number.
    """
    offsets, readers = adjacency(unit_count, sources, targets)
    number = np.full(unit_count, UNSEEN, dtype=np.int64)  # in the order units are first seen
    low = np.zeros(unit_count, dtype=np.int64)
    node = np.full(unit_count, UNSEEN, dtype=np.int64)
    stack = np.empty(unit_count, dtype=np.int64)  # seen, not yet in a node
    path = np.empty(unit_count, dtype=np.int64)
    place = offsets[:-1].copy()  # the next edge to look at
    seen = nodes = on_stack = 0
    for root in range(unit_count - 1, -1, -1):
        if number[root] != UNSEEN:
            continue
        depth = 1
        path[0] = root
        number[root] = low[root] = seen
        seen += 1
        stack[on_stack] = root
        on_stack += 1
        while depth > 0:
            unit = path[depth - 1]
            if place[unit] < offsets[unit + 1]:
                reader = readers[place[unit]]
                place[unit] += 1
                if number[reader] == UNSEEN:
                    number[reader] = low[reader] = seen
                    seen += 1
                    stack[on_stack] = reader
                    on_stack += 1
                    path[depth] = reader
                    depth += 1
                elif node[reader] == UNSEEN:
                    low[unit] = min(low[unit], number[reader])
                continue
            depth -= 1
            if depth > 0:
                low[path[depth - 1]] = min(low[path[depth - 1]], low[unit])
            if low[unit] == number[unit]:
                while True:
                    on_stack -= 1
                    member = stack[on_stack]
                    node[member] = nodes
                    if member == unit:
                        break
                nodes += 1
    # A node is complete after all that can be reached from it.
    return nodes - 1 - node, nodes


@kernel(allocates=True)
def adjacency(count, sources, targets):
    """CSR `(offsets[source], targets)` of a list of edges, in the order given."""
    offsets = np.zeros(count + 1, dtype=np.int64)
    for source in sources:
        offsets[source + 1] += 1
    for source in range(count):
        offsets[source + 1] += offsets[source]
    found = np.empty(len(targets), dtype=np.int64)
    place = offsets[:-1].copy()
    for edge in range(len(sources)):
        found[place[sources[edge]]] = targets[edge]
        place[sources[edge]] += 1
    return offsets, found
