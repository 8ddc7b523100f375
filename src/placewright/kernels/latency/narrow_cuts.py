"""Places where few edges of a graph cross from before to after."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placewright.graph import Wide
from placewright.kernels.common.rows import copy_into
from placewright.kernels.compiled import inner, kernel


class Network(NamedTuple):
    """A DAG whose ops are numbered in topological order; edges are sorted by their tail.

    Edge e leads from ``tail[e]`` to ``readers[e]``; an op's edges are ``reader_offsets[op]`` up
    to ``reader_offsets[op + 1]``, and those that lead to it ``entering[feeder_offsets[op]]`` ….
    """

    tail: Wide
    readers: Wide
    reader_offsets: Wide
    entering: Wide
    feeder_offsets: Wide


class _Work(NamedTuple):
    piece: Wide  # [op] the piece that took it, or -1
    flow: Wide  # [edge]
    reached: Wide  # [op] the last search that reached it
    came_by: Wide  # [op] the edge it was reached by: e forward, -1 - e backward
    queue: Wide


@kernel(allocates=True)
def narrow_cuts(net, ends, channels):
    """`piece[op]`: a chain of pieces with at most `channels` edges from each prefix to the rest.

    `ends` are the ends of blocks, cut in any case, after a cut op. Within a block, the next piece
    is grown from the first op v not taken yet: for the smallest p such that v and all taken
    ops lie in a downset (with an op all its feeders) of at most `channels` outgoing edges that
    takes no op numbered above p, the downset with the fewest outgoing edges, and the smallest
    of these. If no p below the block's last op will do, the block's rest.
    """
    count = len(net.reader_offsets) - 1
    work = _Work(
        np.full(count, -1),
        np.zeros(len(net.readers), dtype=np.int64),
        np.full(count, -1),
        np.zeros(count, dtype=np.int64),
        np.empty(count, dtype=np.int64),
    )
    piece = work.piece
    # With literals all below would be compiled twice.
    searches: Any = np.int64(0)
    low: Any = np.int64(0)
    pieces = 0
    for end in ends:
        tails = np.arange(max(0, low - 1), low)  # taken ops that others of the block read
        while low < end:
            high, searches = _smallest_top(net, work, searches, tails, low, end, channels)
            for op in range(low, high + 1):
                if piece[op] < 0 and (high == end - 1 or work.reached[op] == searches):
                    piece[op] = pieces
            pieces += 1
            tails = _tails(net, piece, tails, low, high, end)
            while low < end and piece[low] >= 0:
                low += 1
    return piece


@inner
def _smallest_top(net, work, searches, tails, low, end, channels):
    """The smallest p of `narrow_cuts`, by doubling and bisection; end - 1 if there is none.

    Where there is one, the last search, the returned one, has marked the downset.
    """
    too_low, high = low - 1, low
    while high < end - 1:
        cut, searches = _cut(net, work, searches, tails, low, high, end, channels)
        if cut:
            break
        if high == end - 2:
            return end - 1, searches
        too_low = high
        high = min(low + 2 * (high - low) + 1, end - 2)
    if high >= end - 1 or high - too_low == 1:
        return high, searches
    while high - too_low > 1:
        middle = (too_low + high) // 2
        cut, searches = _cut(net, work, searches, tails, low, middle, end, channels)
        if cut:
            high = middle
        else:
            too_low = middle
    _, searches = _cut(net, work, searches, tails, low, high, end, channels)
    return high, searches


@inner
def _cut(net, work, searches, tails, low, high, end, channels):
    """Whether op `low` and all taken ones lie in a downset of at most `channels` outgoing edges.

    By the largest flow (Ford and Fulkerson 1956) from them to the ops above `high`: an edge takes
    one unit forward, any number backward. What the last search reaches is the smallest downset
    of the fewest edges.
    """
    offsets = net.reader_offsets
    for op in tails:
        work.flow[offsets[op] : offsets[op + 1]] = 0
    work.flow[offsets[low] : offsets[high + 1]] = 0
    for _ in range(channels + 1):
        searches += 1
        op = _search(net, work, searches, tails, low, high, end)
        if op < 0:
            return True, searches
        while op != low and work.piece[op] < 0:  # a unit more along the path, from its end
            edge = work.came_by[op]
            if edge >= 0:
                work.flow[edge] += 1
                op = net.tail[edge]
            else:
                work.flow[-1 - edge] -= 1
                op = net.readers[-1 - edge]
    return False, searches


@inner
def _search(net, work, search, tails, low, high, end):
    """The first op above `high` that the residual graph reaches, -1 if none; marks `reached`."""
    piece, reached, queue = work.piece, work.reached, work.queue
    size = len(tails) + 1
    copy_into(queue, tails)
    queue[size - 1] = low
    reached[low] = search
    at = 0
    while at < size:
        op = queue[at]
        at += 1
        for edge in range(net.reader_offsets[op], net.reader_offsets[op + 1]):
            reader = net.readers[edge]
            if reader >= end or piece[reader] >= 0 or reached[reader] == search:
                continue
            if work.flow[edge] >= 1:
                continue
            reached[reader] = search
            work.came_by[reader] = edge
            if reader > high:
                return reader
            queue[size] = reader
            size += 1
        if piece[op] >= 0:  # its feeders are taken too
            continue
        for i in range(net.feeder_offsets[op], net.feeder_offsets[op + 1]):
            feeder = net.tail[net.entering[i]]
            if piece[feeder] >= 0 or reached[feeder] == search:
                continue
            reached[feeder] = search
            work.came_by[feeder] = -1 - net.entering[i]
            queue[size] = feeder
            size += 1
    return -1


@inner(allocates=True)
def _tails(net, piece, tails, low, high, end):
    """The taken ops that ops of the block which are not taken read."""
    found = np.empty(len(tails) + high + 1 - low, dtype=np.int64)
    size = 0
    for i in range(len(tails) + high + 1 - low):
        op = tails[i] if i < len(tails) else low + i - len(tails)
        if piece[op] < 0 or (i < len(tails) and low <= op <= high):  # met later
            continue
        for edge in range(net.reader_offsets[op], net.reader_offsets[op + 1]):
            if net.readers[edge] < end and piece[net.readers[edge]] < 0:
                found[size] = op
                size += 1
                break
    return found[:size].copy()
