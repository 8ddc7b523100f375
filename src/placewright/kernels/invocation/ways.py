"""The shortest way over the places of a chain, in subgraphs of which there are only so many."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Whole
from placewright.kernels.compiled import inner, kernel


class Room(NamedTuple):
    """Numbers of subgraphs in use, each one number; and combinations of subgraphs.

    `step[kind]` is what one more of a kind adds to the number, `possible[kind, used]` whether one
    more may be. A combination is another, `parent`, and one more of the group `added`; number 0 is
    none. `members[offsets[group]:offsets[group + 1]]` are the kinds of a group, `group[kind]` the
    group of each; the last kind and group are a CPU, or nothing.
    """

    step: Whole
    possible: Flags
    parent: Whole
    added: Whole
    members: Whole
    offsets: Whole
    group: Whole


class Gaps(NamedTuple):
    """What is between two holders, by the place before which it is.

    `apart[place, kind, kind']` seconds with nothing beside these two; `beside[place, combination,
    group, group']` with so many subgraphs beside them, if there can be any: where `wide[place]`.
    `least[place]` is all that counts where `mixed[place]`. Where `turns[place]` subgraphs are used
    anew.
    """

    apart: Floats
    beside: Floats
    wide: Flags
    least: Floats
    mixed: Flags
    turns: Flags


@kernel
def shortest_way(length, on_cpu, gaps, room, best, came, source, over, origin):
    """Fill `best` and where from; seconds of the shortest, and the number in use and kind at last.

    ``length[kind, first, last]`` seconds of a run, ``on_cpu[place]`` of an op by itself.
    ``best[place, used, kind]`` are the least seconds until a holder of that kind ends before the
    place, `came` where it began, and ``source[place, used, kind]`` for a holder that begins there
    the number before · (kinds + 1) + its kind. `over` and `origin`, [combination, group, used],
    are room to work in.
    """
    places, kinds = len(on_cpu), len(room.step)
    numbers = room.possible.shape[1]
    best[:] = np.inf
    came[:] = -1
    best[0, 0, kinds] = 0.0
    ahead = best[places + 1]
    for place in range(places + 1):
        _start(place, gaps, room, best[place], ahead, source[place], over, origin)
        if place == places:
            break
        for kind in range(kinds):
            for used in range(numbers):
                since = ahead[used, kind]
                if since == np.inf or not room.possible[kind, used]:
                    continue
                after = used + room.step[kind]
                for last in range(place, places):
                    end = since + length[kind, place, last]
                    if end < best[last + 1, after, kind]:
                        best[last + 1, after, kind] = end
                        came[last + 1, after, kind] = place
        for used in range(numbers):
            best[place + 1, used, kinds] = ahead[used, kinds] + on_cpu[place]
            came[place + 1, used, kinds] = place
    least = 0
    for used in range(numbers):
        if ahead[used, kinds] < ahead[least, kinds]:
            least = used
    return ahead[least, kinds], least


@inner
def _start(place, gaps, room, best, ahead, source, over, origin):
    """Fill ``ahead[used, kind]``: seconds until a holder of that kind can begin here."""
    kinds = best.shape[1] - 1
    numbers = len(best)
    inside = 0 < place < len(gaps.turns)
    if (inside and gaps.turns[place]) or gaps.mixed[place]:
        _start_alike(gaps.least[place], inside and gaps.turns[place], best, ahead, source)
        return
    for used in range(numbers):
        for kind in range(kinds + 1):
            ahead[used, kind] = np.inf
            source[used, kind] = -1
            for before in range(kinds + 1):
                total = best[used, before] + gaps.apart[place, before, kind]
                if total < ahead[used, kind]:
                    ahead[used, kind] = total
                    source[used, kind] = used * (kinds + 1) + before
    if gaps.wide[place]:
        _spread_beside(place, gaps, room, best, ahead, source, over, origin)


@inner
def _start_alike(seconds, anew, best, ahead, source):
    """Whatever the kinds, it takes so many seconds more; with none in use any more if `anew`."""
    kinds = best.shape[1] - 1
    lowest, first = np.inf, 0
    for used in range(len(best)):
        before = best[used].argmin()
        total = best[used, before] + seconds
        if total < lowest:
            lowest, first = total, used * (kinds + 1) + before
        for kind in range(kinds + 1):
            ahead[used, kind] = np.inf if anew else total
            source[used, kind] = used * (kinds + 1) + before
    if anew:
        for kind in range(kinds + 1):
            ahead[0, kind] = lowest
            source[0, kind] = first


@inner
def _spread_beside(place, gaps, room, best, ahead, source, over, origin):
    """Better ones with subgraphs beside, which are in use from here on."""
    kinds = best.shape[1] - 1
    numbers, groups = over.shape[2], over.shape[1]
    for group in range(groups):
        for used in range(numbers):
            over[0, group, used] = np.inf
            for kind in room.members[room.offsets[group] : room.offsets[group + 1]]:
                if best[used, kind] < over[0, group, used]:
                    over[0, group, used] = best[used, kind]
                    origin[0, group, used] = used * (kinds + 1) + kind
    for number in range(1, len(room.parent)):
        _add_one(room, number, over, origin)
        for group in range(groups):
            for used in range(numbers):
                since = over[number, group, used]
                if since == np.inf:
                    continue
                for kind in range(kinds + 1):
                    total = since + gaps.beside[place, number, group, room.group[kind]]
                    if total < ahead[used, kind]:
                        ahead[used, kind] = total
                        source[used, kind] = origin[number, group, used]


@inner
def _add_one(room, number, over, origin):
    """Fill ``over[number]`` with what its parent has, and one subgraph more."""
    parent, added = room.parent[number], room.added[number]
    over[number] = np.inf
    for group in range(over.shape[1]):
        for kind in room.members[room.offsets[added] : room.offsets[added + 1]]:
            for used in range(over.shape[2]):
                after = used + room.step[kind]
                if (
                    room.possible[kind, used]
                    and over[parent, group, used] < over[number, group, after]
                ):
                    over[number, group, after] = over[parent, group, used]
                    origin[number, group, after] = origin[parent, group, used]
