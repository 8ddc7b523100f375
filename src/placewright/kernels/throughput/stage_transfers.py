"""What the stage between two ideals sends and fetches, in groups of tensors and bytes.

What a net means for the stage is known from one ideal alone if the other does not cut it: that is
added up once for all stages that begin or end at an ideal. For a pair of ideals only the nets are
left that both cut, and the readers of a net are looked at by 64 at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Floats, Wide
from placewright.kernels.compiled import inlined, inner, kernel
from placewright.kernels.throughput.stage_loads import charges

NO_IDEAL = -1


class Readers(NamedTuple):
    """The readers of each net as bits by node, those with a forward op among them.

    All are in the words from `first` to `last`. ``charged[bits, group]``: how many bits of
    `charges` a group has.
    """

    bits: NDArray[np.uint64]
    forward: NDArray[np.uint64]
    first: Wide
    last: Wide
    charged: Wide


class Beside(NamedTuple):
    """What an ideal's cut nets mean for the stage that begins there and for the one that ends.

    `begins` and `ends`: `charges` for each entry of `Ideals.nets`, taken that the stage is all
    that is outside (inside) the ideal; ``begin_total[ideal, group]`` and ``end_total``: the
    tensors and bytes that these come to; ``begin_seconds[ideal, variant, row]`` and ``end_seconds``
    the seconds. ``most[net, variant, row]``: no stage pays more for a net, begin and end together.
    ``mark[net]`` holds the ends of the ideal ``marked_for[net]``, the last that cuts the net of
    those that `mark_cut` was called for.
    """

    begins: Wide
    ends: Wide
    begin_total: Floats
    end_total: Floats
    begin_seconds: Floats
    end_seconds: Floats
    most: Floats
    readers: Readers
    mark: Wide
    marked_for: Wide


@inner(allocates=True)
def _readers_of(nets, costs, words):
    """The tables of `Readers`, of so many words."""
    count = len(nets.producer)
    bits = np.zeros((count, words), dtype=np.uint64)
    forward = np.zeros((count, words), dtype=np.uint64)
    first = np.zeros(count, dtype=np.int64)
    last = np.full(count, -1, dtype=np.int64)
    for net in range(count):
        for k in range(nets.offsets[net], nets.offsets[net + 1]):
            word, node = nets.readers[k] >> 6, np.uint64(1) << np.uint64(nets.readers[k] & 63)
            bits[net, word] |= node
            if nets.reader_ways[k] & 1:
                forward[net, word] |= node
            first[net] = word if last[net] < 0 else min(first[net], word)
            last[net] = max(last[net], word)
    charged = np.zeros((256, costs.coefficient.shape[2]), dtype=np.int64)
    for number in range(256):
        for bit in range(8):
            charged[number, costs.group[bit]] += number >> bit & 1
    return Readers(bits, forward, first, last, charged)


@kernel(allocates=True)
def beside_ideals(ideals, nets, costs):
    """The tables of `Beside`: an ideal, and the empty one or the whole, with a stage between."""
    count, entries = len(ideals.bits), ideals.net_offsets[-1]
    readers = _readers_of(nets, costs, ideals.bits.shape[1])
    begins = np.empty(entries, dtype=np.int64)
    ends = np.empty(entries, dtype=np.int64)
    groups = costs.coefficient.shape[2]
    begin_total = np.zeros((count, groups, 2))
    end_total = np.zeros((count, groups, 2))
    nothing = np.zeros(ideals.bits.shape[1], dtype=np.uint64)
    _add_up(
        ideals, nets, costs.once, readers, nothing, ~nothing, begins, ends, begin_total, end_total
    )
    most = _most_seconds(nets, costs)
    begin_seconds = seconds_of(begin_total, costs.coefficient)
    end_seconds = seconds_of(end_total, costs.coefficient)
    mark = np.zeros(len(nets.producer), dtype=np.int64)
    marked_for = np.full(len(nets.producer), NO_IDEAL, dtype=np.int64)
    return Beside(
        begins, ends, begin_total, end_total, begin_seconds, end_seconds, most, readers,
        mark, marked_for,
    )  # fmt: skip


@inner
def _add_up(
    ideals, nets, once, readers, nothing, everything, begins, ends, begin_total, end_total
):  # fmt: skip
    """Fill the tables of `beside_ideals`; `nothing` and `everything` are bits of nodes."""
    for ideal in range(len(ideals.bits)):
        here = ideals.bits[ideal]
        for i in range(ideals.net_offsets[ideal], ideals.net_offsets[ideal + 1]):
            net = ideals.nets[i]
            begins[i] = meaning(here, everything, net, nets, readers, once)
            ends[i] = meaning(nothing, here, net, nets, readers, once)
            for g in range(begin_total.shape[1]):
                one, other = readers.charged[begins[i], g], readers.charged[ends[i], g]
                begin_total[ideal, g, 0] += one * nets.tensors[net]
                begin_total[ideal, g, 1] += one * nets.bytes[net]
                end_total[ideal, g, 0] += other * nets.tensors[net]
                end_total[ideal, g, 1] += other * nets.bytes[net]


@inner(allocates=True)
def seconds_of(total, coefficient):
    """``[number, variant, row]`` seconds of ``total[number, group]`` tensors and bytes."""
    variants, rows, groups = coefficient.shape[:3]
    seconds = np.zeros((len(total), variants, rows))
    for number in range(len(total)):
        for variant in range(variants):
            for row in range(rows):
                for g in range(groups):
                    per = coefficient[variant, row, g]
                    seconds[number, variant, row] += (
                        per[0] * total[number, g, 0] + per[1] * total[number, g, 1]
                    )
    return seconds


@inner(allocates=True)
def _most_seconds(nets, costs):
    """``[net, variant, row]`` the dearest way to send it and the dearest way to fetch it."""
    count = len(nets.producer)
    variants, rows = costs.coefficient.shape[:2]
    most = np.zeros((count, variants, rows))
    for net in range(count):
        for variant in range(variants):
            for row in range(rows):
                for direction in range(2):
                    dearest = 0.0
                    for bit in range(4 * direction, 4 * direction + 4):
                        per = costs.coefficient[variant, row, costs.group[bit]]
                        seconds = per[0] * nets.tensors[net] + per[1] * nets.bytes[net]
                        dearest = max(dearest, seconds)
                    most[net, variant, row] += dearest
    return most


@inner
def meaning(smaller, larger, net, nets, readers, once):
    """What a net means for the stage between two ideals, given as bits (see `charges`)."""
    low = high = stage = forward = np.uint64(0)
    for word in range(readers.first[net], readers.last[net] + 1):
        reading = readers.bits[net, word]
        between = larger[word] & ~smaller[word]
        low |= reading & smaller[word]
        high |= reading & ~larger[word]
        stage |= reading & between
        forward |= readers.forward[net, word] & between
    home = nets.producer[net]
    is_low = holds(smaller, home)
    produced = not is_low and holds(larger, home)
    return charges(
        nets.way[net], once, produced, low != 0, high != 0, stage != 0, forward != 0, is_low
    )


@inner
def mark_cut(ideals, larger, beside):
    """Note in ``beside.mark`` what the nets cut by an ideal mean for a stage that ends there."""
    mark, marked_for = beside.mark, beside.marked_for
    for i in range(ideals.net_offsets[larger], ideals.net_offsets[larger + 1]):
        mark[ideals.nets[i]] = beside.ends[i]
        marked_for[ideals.nets[i]] = larger


@inner
def may_be_within(ideals, smaller, larger, columns, variant, limits, beside):
    """Whether the stage between two ideals, the larger marked, may keep its limits of seconds.

    `columns` of ``Ideals.added`` begin with what its kind computes. Each net that both cut is
    taken for free.
    """
    for row in range(beside.most.shape[2]):
        seconds = ideals.added[larger, columns + row] - ideals.added[smaller, columns + row]
        seconds += beside.begin_seconds[smaller, variant, row]
        seconds += beside.end_seconds[larger, variant, row]
        if seconds <= limits[row]:
            continue
        for i in range(ideals.net_offsets[smaller], ideals.net_offsets[smaller + 1]):
            if beside.marked_for[ideals.nets[i]] == larger:
                seconds -= beside.most[ideals.nets[i], variant, row]
        if seconds > limits[row]:
            return False
    return True


@inner
def transfers_between(ideals, smaller, larger, nets, costs, beside, total):
    """``total[group]``: tensors and bytes of the stage between two ideals, the larger marked."""
    groups, readers, mark = total.shape[0], beside.readers, beside.mark
    for g in range(groups):
        total[g, 0] = beside.begin_total[smaller, g, 0] + beside.end_total[larger, g, 0]
        total[g, 1] = beside.begin_total[smaller, g, 1] + beside.end_total[larger, g, 1]
    for i in range(ideals.net_offsets[smaller], ideals.net_offsets[smaller + 1]):
        net = ideals.nets[i]
        if beside.marked_for[net] != larger:
            continue
        bits = meaning(ideals.bits[smaller], ideals.bits[larger], net, nets, readers, costs.once)
        for g in range(groups):
            more = (
                readers.charged[bits, g]
                - readers.charged[beside.begins[i], g]
                - readers.charged[mark[net], g]
            )
            total[g, 0] += more * nets.tensors[net]
            total[g, 1] += more * nets.bytes[net]


@inlined
def holds(ideal, node):
    return (ideal[node >> 6] >> np.uint64(node & 63)) & np.uint64(1) != 0
