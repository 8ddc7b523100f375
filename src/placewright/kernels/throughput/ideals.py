"""Ideals of a DAG of pieces: all those that a split below a given load can pass through."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Floats
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.kernels.throughput.stage_loads import Whole

NEVER = 1 << 20  # more devices than there are
ROUNDING = 1e-9


class Windows(NamedTuple):
    """Necessary conditions on how many devices a set of pieces takes.

    Condition w says: devices of the leading class and of the others in use (state `code`) can do
    no more than ``lead[w] · number + room[w, code]``, and a set of pieces needs the sum of
    `price[piece, w]` and, where the set is cut off from the rest, for each net cut
    `out_price[net, w]` on the producer's side and `in_price[net, w]` on the other.
    """

    price: Floats
    out_price: Floats
    in_price: Floats
    lead: Floats
    room: Floats
    lead_count: int


class Ideals(NamedTuple):
    """Ideals that survive, one a row, such that a subset never comes after a superset.

    `bits` (64 pieces a word), `added[ideal, column]` sums over the pieces, `below` and `above`
    (what the windows' conditions need on either side), `net_offsets` and `nets`: the nets cut.
    """

    bits: NDArray[np.uint64]
    added: Floats
    below: Floats
    above: Floats
    net_offsets: Whole
    nets: Whole


@inlined
def least_lead(windows, need, code):
    """How many devices of the leading class a set needs at least beside those of `code`."""
    most = 0
    for w in range(len(need)):
        over = need[w] - windows.room[w, code]
        if over > ROUNDING * need[w]:
            if windows.lead[w] <= 0.0:
                return NEVER
            more = over / windows.lead[w]
            if more > NEVER:
                return NEVER
            most = max(most, int(np.ceil(more - ROUNDING * (1.0 + need[w] / windows.lead[w]))))
    return most


@kernel
def passable(windows, below, above):
    """Whether some number of devices of each class may do for both sides of an ideal."""
    codes = windows.room.shape[1]
    for code in range(codes):
        least = least_lead(windows, above, code)
        if least <= windows.lead_count:
            least += least_lead(windows, below, codes - 1 - code)
            if least <= windows.lead_count:
                return True
    return False


@kernel(allocates=True)
def surviving_ideals(followers, waiting, nets, columns, windows, most_visited, most_kept):
    """`(visited, kept, Ideals)`: every ideal that is `passable`, in the order `Ideals` says.

    Ideals form a tree: the parent of one lacks its last piece. `followers` is CSR over pieces in
    topological order, `waiting[piece]` how many edges come into each, `columns[piece, column]`
    what is summed. Beyond `most_visited` ideals or `most_kept` survivors it gives up: then
    `visited` or `kept` is -1.
    """
    offsets, targets = followers
    count = len(waiting)
    words = (count + 63) // 64
    window_count = windows.price.shape[1]
    width = columns.shape[1]
    net_count = len(nets.producer)
    missing = waiting.copy()
    inside = np.zeros(net_count, dtype=np.int64)  # members in the ideal
    home_inside = np.zeros(net_count, dtype=np.bool_)
    cut = np.empty(net_count, dtype=np.int64)  # the nets cut, in any order
    cut_place = np.full(net_count, -1, dtype=np.int64)
    cut_size = 0

    depth_sum = np.zeros((count + 1, width))
    depth_need = np.zeros((count + 1, window_count))
    below_cut = np.zeros(window_count)
    above_cut = np.zeros(window_count)
    whole = np.zeros(window_count)
    for piece in range(count):
        whole += windows.price[piece]
    below = np.empty(window_count)
    above = np.empty(window_count)

    # Per depth: the pieces that may come next, ascending, from `first` to `end`; tried from the
    # end, so that subsets come first.
    choices = np.empty(4 * count + 64, dtype=np.int64)
    first = np.zeros(count + 2, dtype=np.int64)
    end = np.zeros(count + 2, dtype=np.int64)
    place = np.zeros(count + 2, dtype=np.int64)
    taken = np.empty(count + 1, dtype=np.int64)

    size = 256
    bits = np.empty((size, words), dtype=np.uint64)
    added = np.empty((size, width))
    needs_below = np.empty((size, window_count))
    needs_above = np.empty((size, window_count))
    net_offsets = np.zeros(size + 1, dtype=np.int64)
    kept_nets = np.empty(16 * size, dtype=np.int64)
    current = np.zeros(words, dtype=np.uint64)
    kept = 0
    visited = 0

    for piece in range(count):
        if missing[piece] == 0:
            choices[end[0]] = piece
            end[0] += 1
    place[0] = end[0]
    depth = 0
    arrived = True
    while depth >= 0:
        if arrived:
            visited += 1
            if visited > most_visited:
                break
            for w in range(window_count):
                below[w] = depth_need[depth, w] + below_cut[w]
                above[w] = whole[w] - depth_need[depth, w] + above_cut[w]
            if depth == 0 or depth == count or passable(windows, below, above):
                if kept == most_kept:
                    kept += 1
                    break
                if kept == size:
                    bits = _longer(bits)
                    added = _longer(added)
                    needs_below = _longer(needs_below)
                    needs_above = _longer(needs_above)
                    longer_offsets = np.zeros(2 * size + 1, dtype=np.int64)
                    longer_offsets[: size + 1] = net_offsets
                    net_offsets = longer_offsets
                    size *= 2
                while net_offsets[kept] + cut_size > len(kept_nets):
                    longer_nets = np.empty(2 * len(kept_nets), dtype=np.int64)
                    longer_nets[: net_offsets[kept]] = kept_nets[: net_offsets[kept]]
                    kept_nets = longer_nets
                bits[kept] = current
                added[kept] = depth_sum[depth]
                needs_below[kept] = below
                needs_above[kept] = above
                for i in range(cut_size):
                    kept_nets[net_offsets[kept] + i] = cut[i]
                net_offsets[kept + 1] = net_offsets[kept] + cut_size
                kept += 1
            arrived = False
        if place[depth] > first[depth]:
            # Down: the next piece, from the last choice to the first.
            place[depth] -= 1
            at = place[depth]
            piece = choices[at]
            taken[depth] = piece
            current[piece >> 6] |= np.uint64(1) << np.uint64(piece & 63)
            start = end[depth]
            needed = start + end[depth] - at + offsets[piece + 1] - offsets[piece]
            if needed > len(choices):
                longer_choices = np.empty(2 * needed, dtype=np.int64)
                longer_choices[:start] = choices[:start]
                choices = longer_choices
            stop = start
            for i in range(at + 1, end[depth]):
                choices[stop] = choices[i]
                stop += 1
            for k in range(offsets[piece], offsets[piece + 1]):
                follower = targets[k]
                missing[follower] -= 1
                if missing[follower] == 0:
                    i = stop
                    while i > start and choices[i - 1] > follower:
                        choices[i] = choices[i - 1]
                        i -= 1
                    choices[i] = follower
                    stop += 1
            depth += 1
            first[depth], end[depth], place[depth] = start, stop, stop
            for column in range(width):
                depth_sum[depth, column] = depth_sum[depth - 1, column] + columns[piece, column]
            for w in range(window_count):
                depth_need[depth, w] = depth_need[depth - 1, w] + windows.price[piece, w]
            cut_size = _toggle(
                nets, windows, piece, 1, inside, home_inside, cut, cut_place, cut_size,
                below_cut, above_cut,
            )  # fmt: skip
            arrived = True
            continue
        depth -= 1
        if depth < 0:
            break
        piece = taken[depth]
        current[piece >> 6] &= ~(np.uint64(1) << np.uint64(piece & 63))
        for k in range(offsets[piece], offsets[piece + 1]):
            missing[targets[k]] += 1
        cut_size = _toggle(
            nets, windows, piece, -1, inside, home_inside, cut, cut_place, cut_size,
            below_cut, above_cut,
        )  # fmt: skip
    ideals = Ideals(
        bits[:kept], added[:kept], needs_below[:kept], needs_above[:kept],
        net_offsets[: kept + 1], kept_nets,
    )  # fmt: skip
    return (
        -1 if visited > most_visited else visited,
        -1 if kept > most_kept else kept,
        ideals,
    )


@inner(allocates=True)
def _longer(rows):
    longer = np.empty((2 * rows.shape[0], rows.shape[1]), dtype=rows.dtype)
    longer[: rows.shape[0]] = rows
    return longer


@inlined
def _toggle(
    nets, windows, piece, step, inside, home_inside, cut, cut_place, cut_size, below_cut, above_cut
):
    """Put a piece into the ideal (`step` 1) or take it out (-1); returns how many nets are cut."""
    window_count = len(below_cut)
    for k in range(nets.piece_offsets[piece], nets.piece_offsets[piece + 1]):
        net = nets.piece_nets[k]
        members = nets.offsets[net + 1] - nets.offsets[net] + 1
        if 0 < inside[net] < members:
            for w in range(window_count):
                out_price, in_price = windows.out_price[net, w], windows.in_price[net, w]
                below_cut[w] -= out_price if home_inside[net] else in_price
                above_cut[w] -= in_price if home_inside[net] else out_price
        inside[net] += step
        if nets.producer[net] == piece:
            home_inside[net] = step > 0
        if 0 < inside[net] < members:
            for w in range(window_count):
                out_price, in_price = windows.out_price[net, w], windows.in_price[net, w]
                below_cut[w] += out_price if home_inside[net] else in_price
                above_cut[w] += in_price if home_inside[net] else out_price
            if cut_place[net] < 0:
                cut[cut_size] = net
                cut_place[net] = cut_size
                cut_size += 1
        elif cut_place[net] >= 0:
            cut_size -= 1
            moved = cut[cut_size]
            cut[cut_place[net]] = moved
            cut_place[moved] = cut_place[net]
            cut_place[net] = -1
    return cut_size
