"""The ideals that a stage may begin at, in lists by what is needed from there, and in blocks.

Most pairs of ideals are no stage. A block says what all of its ideals hold, what any does, and the
most they add up to: the whole of it is passed over where none of them can be meant.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Floats, Wide
from placewright.kernels.compiled import inlined, inner

BLOCK = 16


class Targets(NamedTuple):
    """Lists of places by (code, devices of the leading class needed): ``code · levels + level``.

    List `which` has ``places[start[which]:start[which + 1]]``, ascending, and begins at a whole
    block; what is left of its last block is a place behind all. `open`: how many of a list are not
    reached, and `block_open` of a block; from ``next_open[block]`` on the next such block is found.
    """

    start: Wide
    places: Wide
    open: Wide
    block_open: Wide
    next_open: Wide
    common: NDArray[np.uint64]
    any: NDArray[np.uint64]
    most: Floats


class Desk(NamedTuple):
    """What a table of ideals is filled with, for the ideal and the move at hand.

    `outside`: the nodes outside the larger ideal, `required`: those that the smaller has to hold,
    as bits; `floor[row]`: what the smaller adds up to at least; ``total[group]``: what the stage
    between two sends and fetches. ``place_of[ideal]``: its place among those alive, or -1.
    """

    outside: NDArray[np.uint64]
    required: NDArray[np.uint64]
    floor: Floats
    total: Floats
    place_of: Wide


@inner(allocates=True)
def desk_for(ideals, alive, costs):
    """A desk for the tables of some ideals that are alive."""
    words = ideals.bits.shape[1]
    place_of = np.full(len(ideals.bits), -1, dtype=np.int64)
    for place in range(len(alive)):
        place_of[alive[place]] = place
    return Desk(
        np.empty(words, dtype=np.uint64),
        np.empty(words, dtype=np.uint64),
        np.empty(costs.added.shape[2]),
        np.empty((costs.coefficient.shape[2], 2)),
        place_of,
    )


@inner(allocates=True)
def targets_of(bits, added, alive, least, most, lead_count):
    """The lists, none of their ideals reached."""
    count, codes = least.shape
    levels = lead_count + 1
    size = np.zeros(codes * levels, dtype=np.int64)
    for place in range(count):
        for code in range(codes):
            for level in range(max(least[place, code], 0), min(most[place, code], lead_count) + 1):
                size[code * levels + level] += 1
    start = np.zeros(codes * levels + 1, dtype=np.int64)
    for which in range(codes * levels):
        start[which + 1] = start[which] + (size[which] + BLOCK - 1) // BLOCK * BLOCK
    places = np.full(start[-1], count, dtype=np.int64)
    blocks = start[-1] // BLOCK
    words, columns = bits.shape[1], added.shape[1]
    common = np.full((blocks, words), ~np.uint64(0))
    any_of = np.zeros((blocks, words), dtype=np.uint64)
    most_added = np.full((blocks, columns), -np.inf)
    block_open = np.zeros(blocks, dtype=np.int64)
    filled = start[:-1].copy()
    for place in range(count):
        ideal = alive[place]
        for code in range(codes):
            for level in range(max(least[place, code], 0), min(most[place, code], lead_count) + 1):
                which = code * levels + level
                block = filled[which] // BLOCK
                places[filled[which]] = place
                filled[which] += 1
                block_open[block] += 1
                for word in range(words):
                    common[block, word] &= bits[ideal, word]
                    any_of[block, word] |= bits[ideal, word]
                for column in range(columns):
                    most_added[block, column] = max(most_added[block, column], added[ideal, column])
    next_open = np.arange(blocks + 1)
    return Targets(start, places, size, block_open, next_open, common, any_of, most_added)


@inlined
def close(targets, which, block):
    """Note that an ideal of a list and block is reached."""
    targets.open[which] -= 1
    targets.block_open[block] -= 1
    if targets.block_open[block] == 0:
        targets.next_open[block] = block + 1


@inner
def first_open(next_open, block):
    """The first block from `block` on that has an open ideal; ways to it are made shorter."""
    while next_open[block] != block:
        next_open[block] = next_open[next_open[block]]
        block = next_open[block]
    return block


@inner
def leave_out(ideal, outside):
    """Into `outside` what is not in an ideal."""
    for word in range(len(ideal)):
        outside[word] = ~ideal[word]


@inner
def may_follow(bits, sums, number, outside, floor, column):
    """Whether an ideal has nothing `outside`, and no row of sums from `column` on below `floor`.

    Of a block, with what all its ideals hold and the most they add up to: whether one of them may.
    """
    for row in range(len(floor)):
        if sums[number, column + row] < floor[row]:
            return False
    word = 0
    while word < len(outside) and not bits[number, word] & outside[word]:
        word += 1
    return word == len(outside)
