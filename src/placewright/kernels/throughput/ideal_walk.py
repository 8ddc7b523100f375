"""The tree of ideals, walked through depth first, those kept that a split may pass through.

The parent of an ideal lacks its last node. A choice that was passed over stays outside the whole
branch, and with it all that comes after it: the dearest of these, and what is inside already, must
leave devices enough for both, or the branch is cut off.

The walk makes no arrays, for kernels that do count references to each they look at; where there is
no room left it stops, and goes on when whoever called it has made some.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Floats, Wide
from placewright.kernels.common.rows import copy_into
from placewright.kernels.compiled import inlined, inner
from placewright.kernels.throughput.ideals import passable

DONE, MORE_IDEALS, MORE_CHOICES = 0, 1, 2


class Walk(NamedTuple):
    """Where it stands: `depth`, and how many ideals were `visited` and `kept`, one number each.

    By depth, ``[0]`` the empty ideal: `led`, the nodes that a node inside follows; `sums` and
    `need`; `passed`, what is passed over and behind it; `taken` the node that came next; and the
    choices, from `first` to `end` in one list, ascending, tried from the end so that subsets come
    first, as far down as `place`. `missing[node]`: how many nodes it still waits for.
    """

    depth: Wide
    visited: Wide
    kept: Wide
    most_followers: int
    missing: Wide
    current: NDArray[np.uint64]
    led: NDArray[np.uint64]
    sums: Floats
    need: Floats
    passed: Floats
    first: Wide
    end: Wide
    place: Wide
    taken: Wide
    whole: Floats
    below: Floats
    above: Floats


class Cut(NamedTuple):
    """The nets that the ideal at hand cuts, and what they cost its two sides by condition."""

    inside: Wide  # [net] its members in the ideal
    home_inside: NDArray[np.bool_]
    nets: Wide  # those cut, `size[0]` of them, in any order
    place: Wide  # [net] in `nets`, or -1
    size: Wide
    below: Floats
    above: Floats


@inner
def walk(
    state, choices, ideals, cut, followers, led, behind, nets, columns, windows, most_visited,
    most_kept,
):  # fmt: skip
    """Visit ideals until all are, or too many, or there is no room for the next.

    ``led[node]`` are the nodes that it follows, ``behind[node]`` what it and all after it need.
    """
    missing, current, taken = state.missing, state.current, state.taken
    depth_led, depth_sum, depth_need = state.led, state.sums, state.need
    passed, first, end, place = state.passed, state.first, state.end, state.place
    whole, below, above = state.whole, state.below, state.above
    offsets, targets = followers
    price, size = windows.price, cut.size
    count, conditions, words = len(missing), len(whole), len(current)
    depth, visited, kept = state.depth[0], state.visited[0], state.kept[0]
    stopped = DONE
    while depth >= 0:
        width = end[depth] - first[depth]
        if end[depth] + width + state.most_followers > len(choices):
            stopped = MORE_CHOICES
            break
        if kept == len(ideals.bits) or ideals.net_offsets[kept] + size[0] > len(ideals.nets):
            stopped = MORE_IDEALS
            break
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
            _enter(ideals, kept - 1, current, depth_led[depth], depth_sum[depth], below, above, cut)
        elif _is_in_vain(windows, depth_need[depth], passed[depth]):
            place[depth] = first[depth]
        while depth >= 0 and place[depth] == first[depth]:  # nothing left here: one node back
            depth -= 1
            if depth >= 0:
                node = taken[depth]
                current[node >> 6] &= ~(np.uint64(1) << np.uint64(node & 63))
                for k in range(offsets[node], offsets[node + 1]):
                    missing[targets[k]] += 1
                _toggle(nets, windows, node, -1, cut)
        if depth < 0:
            break
        place[depth] -= 1  # one node more, from the last choice to the first
        node = choices[place[depth]]
        taken[depth] = node
        current[node >> 6] |= np.uint64(1) << np.uint64(node & 63)
        stop = _choose_on(choices, followers, missing, node, place[depth], end[depth])
        depth += 1
        first[depth], end[depth], place[depth] = end[depth - 1], stop, stop
        _pass_over(choices, first[depth - 1], place[depth - 1], behind, passed, depth)
        for word in range(words):
            depth_led[depth, word] = depth_led[depth - 1, word] | led[node, word]
        for column in range(columns.shape[1]):
            depth_sum[depth, column] = depth_sum[depth - 1, column] + columns[node, column]
        for w in range(conditions):
            depth_need[depth, w] = depth_need[depth - 1, w] + price[node, w]
        _toggle(nets, windows, node, 1, cut)
    state.depth[0], state.visited[0], state.kept[0] = depth, visited, kept
    return stopped


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
