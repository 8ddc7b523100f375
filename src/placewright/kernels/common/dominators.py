"""Dominator trees of a graph of ops: what lies behind, or leads to, one op alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Flags, Ints
from placewright.kernels.compiled import inlined, kernel


def dominator_tree(
    order: Ints, offsets: NDArray[Any], neighbours: Ints, counts: Flags
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """`(first, size)`: the ops that `op` dominates are ``at[first[op] : first[op] + size[op]]``.

    Returns `(parent, at, first, size)`. An op dominates those that no path from a source reaches
    without it, itself among them. `order` is topological; op i's producers are
    ``neighbours[offsets[i]:offsets[i + 1]]`` (consumers, with the order reversed, give
    post-dominators: all whose every path to the end leads through the op). Producers without
    `counts[op]` are overlooked. `parent[op]` is the closest op that dominates it, -1 if there is
    none; `at` is a preorder of the tree, the children of an op in the order of `order`.
    """
    n = len(order)
    parent = np.full(n + 1, n, dtype=np.int64)  # op n is above all
    ancestor = np.full(n + 1, n, dtype=np.int64)
    depth = np.zeros(n + 1, dtype=np.int64)
    _find_parents(order, offsets, neighbours, counts, parent, ancestor, depth)
    size = np.ones(n + 1, dtype=np.int64)
    first, following = np.zeros(n + 1, dtype=np.int64), np.zeros(n + 1, dtype=np.int64)
    at = np.empty(n, dtype=np.int32)
    _number(order, parent, size, first, following, at)
    parent[parent == n] = -1
    return parent[:n], at, first[:n], size[:n]


@kernel
def _find_parents(order, offsets, neighbours, counts, parent, ancestor, depth):
    """`ancestor[op]` is one of those above, so far up that steps along them are few."""
    n = len(order)
    for op in order:
        found = -1
        for k in range(offsets[op], offsets[op + 1]):
            producer = neighbours[k]
            if counts[producer]:
                found = producer if found < 0 else _meet(parent, ancestor, depth, found, producer)
        above = n if found < 0 else found
        parent[op] = above
        depth[op] = depth[above] + 1
        far = ancestor[above]
        # As far as the two steps above together, if these are equally long: log n steps in all.
        equal = depth[above] - depth[far] == depth[far] - depth[ancestor[far]]
        ancestor[op] = ancestor[far] if equal else above


@kernel
def _number(order, parent, size, first, following, at):
    """Sizes of subtrees, and where each begins in the preorder `at`."""
    for k in range(len(order) - 1, -1, -1):
        size[parent[order[k]]] += size[order[k]]
    for op in order:
        above = parent[op]
        first[op] = following[above]
        following[above] += size[op]
        following[op] = first[op] + 1
        at[first[op]] = op


@inlined
def _meet(parent, ancestor, depth, one, other):
    """The closest op above both, or either of them."""
    if depth[one] < depth[other]:
        one, other = other, one
    while depth[one] > depth[other]:
        one = ancestor[one] if depth[ancestor[one]] >= depth[other] else parent[one]
    while one != other:
        if ancestor[one] != ancestor[other]:
            one, other = ancestor[one], ancestor[other]
        else:
            one, other = parent[one], parent[other]
    return one
