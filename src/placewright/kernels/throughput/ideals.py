"""Enumeration of the ideals of a DAG that a split below a given load can pass through."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Floats, Wide
from placewright.kernels.common.rows import copy_into
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.kernels.throughput.dominance import parts_of

NEVER = 1 << 20  # more devices than there are
ROUNDING = 1e-9


class Windows(NamedTuple):
    """Necessary conditions on how many devices a set of nodes takes.

    Condition w says: devices of the leading class and of the others in use (state `code`) can do
    no more than ``lead[w] · number + capacity[w, code]``, and a set of nodes needs the sum of
    `price[node, w]` and, where the set is cut off from the rest, for each net cut
    `out_price[net, w]` on the producer's side and `in_price[net, w]` on the other.
    """

    price: Floats
    out_price: Floats
    in_price: Floats
    lead: Floats
    capacity: Floats
    lead_count: int


class Ideals(NamedTuple):
    """Ideals that survive, one a row, such that a subset never comes after a superset.

    `bits` (64 nodes a word), `added[ideal, column]` sums over the nodes, `below` and `above`
    (what the windows' conditions need on either side), `net_offsets` and `nets`: the nets cut;
    `last`: as bits, the nodes none of whose followers is inside; `part_offsets`, `part_nodes` and
    `parts`: those of these ideals that lack one of them.
    """

    bits: NDArray[np.uint64]
    added: Floats
    below: Floats
    above: Floats
    net_offsets: Wide
    nets: Wide
    last: NDArray[np.uint64]
    part_offsets: Wide
    part_nodes: Wide
    parts: Wide


@inlined
def least_lead(windows, need, code):
    """How many devices of the leading class a set needs at least beside those of `code`."""
    most = 0
    for w in range(len(need)):
        over = need[w] - windows.capacity[w, code]
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
    codes = windows.capacity.shape[1]
    for code in range(codes):
        least = least_lead(windows, above, code)
        if least <= windows.lead_count:
            least += least_lead(windows, below, codes - 1 - code)
            if least <= windows.lead_count:
                return True
    return False


@kernel(allocates=True)
def open_places(windows, order, found):
    """Into `found[place]` whether a stage may begin at a place of a linear order, the end included.

    That is, whether what is before it and what is not may each do with some of the devices.
    """
    conditions = windows.price.shape[1]
    below, above = np.zeros(conditions), np.zeros(conditions)
    for node in order:
        for w in range(conditions):
            above[w] += windows.price[node, w]
    for place in range(len(order) + 1):
        found[place] = place in (0, len(order)) or passable(windows, below, above)
        if place < len(order):
            for w in range(conditions):
                below[w] += windows.price[order[place], w]
                above[w] -= windows.price[order[place], w]


class Cut(NamedTuple):
    """The nets that the ideal at hand cuts, and what they cost its two sides by condition."""

    inside: Wide  # [net] its members in the ideal
    home_inside: NDArray[np.bool_]
    nets: Wide  # those cut, `size[0]` of them, in any order
    place: Wide  # [net] in `nets`, or -1
    size: Wide
    below: Floats
    above: Floats


@kernel(allocates=True)
def surviving_ideals(followers, waiting, nets, columns, windows, most_visited, most_kept):
    """`(visited, kept, Ideals)`: every ideal that is `passable`, in the order `Ideals` says.

    Ideals form a tree: the parent of one lacks its last node. A choice that was passed over stays
    outside the whole branch, and with it all that comes after it: the dearest of these, and what
    is inside already, must leave devices enough for both, or the branch is cut off.

    `followers` is CSR over nodes in topological order, `waiting[node]` how many edges come into
    each, `columns[node, column]` what is summed. Beyond `most_visited` ideals or `most_kept`
    survivors it gives up: then `visited` or `kept` is -1.
    """
    count, conditions = len(waiting), windows.price.shape[1]
    missing = waiting.copy()
    cut = _nothing_cut(len(nets.producer), conditions)
    ideals = _no_ideals(count, columns.shape[1], conditions)
    current = np.zeros((count + 63) // 64, dtype=np.uint64)
    led = _led(followers, count)  # the followed nodes of each ideal, by depth
    depth_led = np.zeros((count + 1, len(current)), dtype=np.uint64)
    depth_sum = np.zeros((count + 1, columns.shape[1]))
    depth_need = np.zeros((count + 1, conditions))
    whole = np.zeros(conditions)
    for node in range(count):
        whole += windows.price[node]
    below, above = np.empty(conditions), np.empty(conditions)
    behind = _behind(followers, windows.price)
    passed = np.zeros((count + 2, conditions))  # by depth: what is passed over and behind it

    # Per depth: the nodes that may come next, ascending, from `first` to `end`; tried from the
    # end, so that subsets come first.
    choices = np.empty(4 * count + 64, dtype=np.int64)
    first = np.zeros(count + 2, dtype=np.int64)
    end = np.zeros(count + 2, dtype=np.int64)
    place = np.zeros(count + 2, dtype=np.int64)
    taken = np.empty(count + 1, dtype=np.int64)
    for node in range(count):
        if missing[node] == 0:
            choices[end[0]] = node
            end[0] += 1
    place[0] = end[0]
    visited = kept = depth = 0
    arrived = True
    while depth >= 0:
        if arrived:
            visited += 1
            if visited > most_visited:
                break
            for w in range(conditions):
                below[w] = depth_need[depth, w] + cut.below[w]
                above[w] = whole[w] - depth_need[depth, w] + cut.above[w]
            if depth == 0 or depth == count or passable(windows, below, above):
                kept += 1
                if kept > most_kept:
                    break
                used = ideals.net_offsets[kept - 1]
                if kept > len(ideals.bits) or used + cut.size[0] > len(ideals.nets):
                    ideals = _with_capacity(ideals, kept - 1, cut.size[0])
                _enter(
                    ideals, kept - 1, current, depth_led[depth], depth_sum[depth], below, above, cut
                )
            elif _is_in_vain(windows, depth_need[depth], passed[depth]):
                place[depth] = first[depth]
        arrived = place[depth] > first[depth]
        if arrived:  # one node more, from the last choice to the first
            place[depth] -= 1
            node = choices[place[depth]]
            taken[depth] = node
            current[node >> 6] |= np.uint64(1) << np.uint64(node & 63)
            more = end[depth] - place[depth] + followers[0][node + 1] - followers[0][node]
            if end[depth] + more > len(choices):
                choices = _longer_by(choices, end[depth], more)
            stop = _choose_on(choices, followers, missing, node, place[depth], end[depth])
            depth += 1
            first[depth], end[depth], place[depth] = end[depth - 1], stop, stop
            _pass_over(choices, first[depth - 1], place[depth - 1], behind, passed, depth)
            for word in range(len(current)):
                depth_led[depth, word] = depth_led[depth - 1, word] | led[node, word]
            for column in range(columns.shape[1]):
                depth_sum[depth, column] = depth_sum[depth - 1, column] + columns[node, column]
            for w in range(conditions):
                depth_need[depth, w] = depth_need[depth - 1, w] + windows.price[node, w]
            _toggle(nets, windows, node, 1, cut)
            continue
        depth -= 1
        if depth >= 0:
            node = taken[depth]
            current[node >> 6] &= ~(np.uint64(1) << np.uint64(node & 63))
            for k in range(followers[0][node], followers[0][node + 1]):
                missing[followers[1][k]] += 1
            _toggle(nets, windows, node, -1, cut)
    ideals = _first_of(ideals, min(kept, most_kept))
    return (
        -1 if visited > most_visited else visited,
        -1 if kept > most_kept else kept,
        ideals,
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


@inner
def _pass_over(choices, first, at, behind, passed, depth):
    """What the branch of choice `at` leaves outside at least: each choice before it, by itself."""
    for w in range(behind.shape[1]):
        most = passed[depth - 1, w]
        for i in range(first, at):
            most = max(most, behind[choices[i], w])
        passed[depth, w] = most


@inner
def _is_in_vain(windows, inside, outside):
    """Whether no ideal with all that is inside and without what is outside is `passable`."""
    for w in range(len(outside)):
        if outside[w] > 0.0:
            return not passable(windows, inside, outside)
    return False


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


@inner
def _enter(ideals, place, current, led, sums, below, above, cut):
    """Write down the ideal at hand."""
    copy_into(ideals.bits[place], current)
    for word in range(len(current)):
        ideals.last[place, word] = current[word] & ~led[word]
    copy_into(ideals.added[place], sums)
    copy_into(ideals.below[place], below)
    copy_into(ideals.above[place], above)
    start = ideals.net_offsets[place]
    for i in range(cut.size[0]):
        ideals.nets[start + i] = cut.nets[i]
    ideals.net_offsets[place + 1] = start + cut.size[0]


@inner(allocates=True)
def _longer_by(choices, end, more):
    """The choices up to `end`, with room for `more` and as many again."""
    longer = np.empty(2 * (end + more), dtype=np.int64)
    longer[:end] = choices[:end]
    return longer


@inner
def _choose_on(choices, followers, missing, node, at, end):
    """Write the choices after `node`, choice `at`, from `end` on; where they end.

    Those that came after it, and its followers that nothing else keeps waiting.
    """
    offsets, targets = followers
    stop = end
    for i in range(at + 1, end):
        choices[stop] = choices[i]
        stop += 1
    for k in range(offsets[node], offsets[node + 1]):
        follower = targets[k]
        missing[follower] -= 1
        if missing[follower] == 0:
            i = stop
            while i > end and choices[i - 1] > follower:
                choices[i] = choices[i - 1]
                i -= 1
            choices[i] = follower
            stop += 1
    return stop


@inlined
def _toggle(nets, windows, node, step, cut):
    """Put a node into the ideal (`step` 1) or take it out (-1)."""
    inside, home_inside, place = cut.inside, cut.home_inside, cut.place
    node_nets, offsets, producer = nets.node_nets, nets.offsets, nets.producer
    out_price, in_price = windows.out_price, windows.in_price
    for k in range(nets.node_offsets[node], nets.node_offsets[node + 1]):
        net = node_nets[k]
        members = offsets[net + 1] - offsets[net] + 1
        if 0 < inside[net] < members:
            _charge(cut.below, cut.above, out_price[net], in_price[net], home_inside[net], -1.0)
        inside[net] += step
        if producer[net] == node:
            home_inside[net] = step > 0
        if 0 < inside[net] < members:
            _charge(cut.below, cut.above, out_price[net], in_price[net], home_inside[net], 1.0)
            if place[net] < 0:
                place[net] = cut.size[0]
                cut.nets[cut.size[0]] = net
                cut.size[0] += 1
        elif place[net] >= 0:
            cut.size[0] -= 1
            moved = cut.nets[cut.size[0]]
            cut.nets[place[net]] = moved
            place[moved] = place[net]
            place[net] = -1


@inner
def _charge(below, above, out_price, in_price, home_inside, sign):
    """Add (sign 1) or take away (-1) what a net that is cut costs either side."""
    if not home_inside:
        out_price, in_price = in_price, out_price
    for w in range(len(below)):
        below[w] += sign * out_price[w]
        above[w] += sign * in_price[w]
