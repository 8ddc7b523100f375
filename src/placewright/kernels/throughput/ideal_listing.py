"""The ideals that a split below a given load can pass through, listed."""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import inner, kernel
from placewright.kernels.throughput.dominance import parts_of
from placewright.kernels.throughput.ideal_walk import MORE_CHOICES, MORE_IDEALS, Cut, Walk, walk
from placewright.kernels.throughput.ideals import Ideals


@kernel(allocates=True)
def surviving_ideals(followers, waiting, nets, columns, windows, most_visited, most_kept):
    """`(visited, kept, Ideals)`: every ideal that is `passable`, in the order `Ideals` says.

    `followers` is CSR over nodes in topological order, `waiting[node]` how many edges come into
    each, `columns[node, column]` what is summed. Beyond `most_visited` ideals or `most_kept`
    survivors it gives up: then `visited` or `kept` is -1.
    """
    count, conditions = len(waiting), windows.price.shape[1]
    led, behind = _led(followers, count), _behind(followers, windows.price)
    cut = _nothing_cut(len(nets.producer), conditions)
    state = _at_the_root(followers, waiting, columns.shape[1], windows)
    ideals = _no_ideals(count, columns.shape[1], conditions)
    choices = np.empty(4 * count + 64, dtype=np.int64)
    for node in range(count):
        if waiting[node] == 0:
            choices[state.end[0]] = node
            state.end[0] += 1
    state.place[0] = state.end[0]
    while True:
        stopped = walk(
            state, choices, ideals, cut, followers, led, behind, nets, columns, windows,
            most_visited, most_kept,
        )  # fmt: skip
        if stopped == MORE_IDEALS:
            ideals = _with_capacity(ideals, state.kept[0], cut.size[0])
        elif stopped == MORE_CHOICES:
            choices = _twice_as_long(choices)
        else:
            break
    visited, kept = state.visited[0], state.kept[0]
    ideals = _first_of(ideals, min(kept, most_kept))
    return (
        -1 if visited > most_visited else visited,
        -1 if kept > most_kept else kept,
        ideals,
    )


@inner(allocates=True)
def _at_the_root(followers, waiting, columns, windows):
    """A walk that has yet to visit the empty ideal."""
    count, conditions = len(waiting), windows.price.shape[1]
    words = (count + 63) // 64
    whole = np.zeros(conditions)
    for node in range(count):
        for w in range(conditions):
            whole[w] += windows.price[node, w]
    most_followers = 0
    for node in range(count):
        most_followers = max(most_followers, followers[0][node + 1] - followers[0][node])
    return Walk(
        np.zeros(1, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        most_followers,
        waiting.copy(),
        np.zeros(words, dtype=np.uint64),
        np.zeros((count + 1, words), dtype=np.uint64),
        np.zeros((count + 1, columns)),
        np.zeros((count + 1, conditions)),
        np.zeros((count + 2, conditions)),
        np.zeros(count + 2, dtype=np.int64),
        np.zeros(count + 2, dtype=np.int64),
        np.zeros(count + 2, dtype=np.int64),
        np.empty(count + 1, dtype=np.int64),
        whole,
        np.empty(conditions),
        np.empty(conditions),
    )


@inner(allocates=True)
def _led(followers, count):
    """``[node]`` the nodes that it follows, as bits."""
    offsets, targets = followers
    led = np.zeros((count, (count + 63) // 64), dtype=np.uint64)
    for node in range(count):
        for k in range(offsets[node], offsets[node + 1]):
            led[targets[k], node >> 6] |= np.uint64(1) << np.uint64(node & 63)
    return led


@inner(allocates=True)
def _behind(followers, price):
    """`[node, condition]` what a node and all that comes after it need."""
    offsets, targets = followers
    count, conditions = price.shape
    words = (count + 63) // 64
    after = np.zeros((count, words), dtype=np.uint64)
    behind = np.zeros((count, conditions))
    for node in range(count - 1, -1, -1):
        after[node, node >> 6] |= np.uint64(1) << np.uint64(node & 63)
        for k in range(offsets[node], offsets[node + 1]):
            for word in range(node >> 6, words):
                after[node, word] |= after[targets[k], word]
        for other in range(node, count):
            if after[node, other >> 6] >> np.uint64(other & 63) & np.uint64(1):
                for w in range(conditions):
                    behind[node, w] += price[other, w]
    return behind


@inner(allocates=True)
def _nothing_cut(nets, conditions):
    return Cut(
        np.zeros(nets, dtype=np.int64),
        np.zeros(nets, dtype=np.bool_),
        np.empty(nets, dtype=np.int64),
        np.full(nets, -1, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        np.zeros(conditions),
        np.zeros(conditions),
    )


@inner(allocates=True)
def _no_ideals(nodes, columns, conditions):
    """None yet, with capacity for some."""
    size = 256
    return Ideals(
        np.empty((size, (nodes + 63) // 64), dtype=np.uint64),
        np.empty((size, columns)),
        np.empty((size, conditions)),
        np.empty((size, conditions)),
        np.zeros(size + 1, dtype=np.int64),
        np.empty(16 * size, dtype=np.int64),
        np.empty((size, (nodes + 63) // 64), dtype=np.uint64),
        np.zeros(1, dtype=np.int64),
        np.empty(0, dtype=np.int64),
        np.empty(0, dtype=np.int64),
    )


@inner(allocates=True)
def _with_capacity(ideals, kept, cut_nets):
    """The same arrays, or longer ones, with capacity for one more ideal that cuts so many nets."""
    bits, added, below, above, offsets, nets, last = ideals[:7]
    size = len(bits)
    if kept == size:
        bits, added, below, above = _longer(bits), _longer(added), _longer(below), _longer(above)
        last = _longer(last)
        longer = np.zeros(2 * size + 1, dtype=np.int64)
        longer[: size + 1] = offsets
        offsets = longer
    used = offsets[kept]
    if used + cut_nets > len(nets):
        longer = np.empty(2 * (used + cut_nets), dtype=np.int64)
        longer[:used] = nets[:used]
        nets = longer
    return Ideals(bits, added, below, above, offsets, nets, last, *ideals[7:])


@inner(allocates=True)
def _longer(rows):
    longer = np.empty((2 * rows.shape[0], rows.shape[1]), dtype=rows.dtype)
    longer[: rows.shape[0]] = rows
    return longer


@inner(allocates=True)
def _first_of(ideals, kept):
    bits, last = ideals.bits[:kept], ideals.last[:kept]
    return Ideals(
        bits, ideals.added[:kept], ideals.below[:kept], ideals.above[:kept],
        ideals.net_offsets[: kept + 1], ideals.nets, last, *parts_of(bits, last),
    )  # fmt: skip


@inner(allocates=True)
def _twice_as_long(choices):
    longer = np.empty(2 * len(choices), dtype=np.int64)
    longer[: len(choices)] = choices
    return longer
