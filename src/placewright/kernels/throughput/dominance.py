"""Stages that no best split needs: one that ends a node earlier does as well.

Let a stage lie between the ideals J ⊂ I, and let `v` be a *last* node of I (none of its followers
is in I) that is not in J. Between J and I − v lies a stage without `v`. What it saves is the
computing of `v`, and what was sent for it to nodes above: all its followers are. What it may pay
more is for the tensors that `v` reads, if nobody above read them before, and for those that `v`
sends down, which it now fetches. Where that is no more than what is saved in every row of the load,
whatever J and I, `v` is *heavy* (for the kind of stage); memory is saved in any case. Then, if what
I − v leaves over needs no more than what I leaves over, no chain needs the stage from J to I. So
from I only those J are looked at that hold every such `v`: often none, as they would have to hold
all of I. (Where J is I − v no stage is left, and its devices are idle: tables of what an ideal
leaves over have to know that what does with some devices does with more.)

Rounding cannot decide it: what is saved has to be more by `MARGIN`, or both nothing at all.
"""

from __future__ import annotations

import numpy as np

from placewright.kernels.common.rows import equal_rows
from placewright.kernels.compiled import inner, kernel
from placewright.kernels.throughput.stage_loads import IN, OUT

MARGIN = 1e-9  # of all that is compared
PARTS_PER_IDEAL = 32  # that are known, on average, where graphs are wide; without, less is saved


@kernel(allocates=True)
def heavy_nodes(nets, costs, followers):
    """``[variant, node]`` whether a stage is charged no more without a last node of it.

    `followers` is CSR over nodes in topological order.
    """
    variants, rows, count = len(costs.coefficient), costs.time_rows, len(costs.added)
    kind_of = np.zeros(variants, dtype=np.int64)
    for move in range(len(costs.move_kind)):
        kind_of[costs.move_variant[move]] = costs.move_kind[move]
    heavy = np.empty((variants, count), dtype=np.bool_)
    for variant in range(variants):
        kind, coefficient = kind_of[variant], costs.coefficient[variant]
        saved, paid = np.zeros((rows, count)), np.zeros((rows, count))
        for row in range(rows):
            for node in range(count):
                saved[row, node] = costs.added[node, kind, row]
            for net in range(len(nets.producer)):
                _count_net(
                    nets, net, costs.group, coefficient[row], followers, saved[row], paid[row]
                )
        for node in range(count):
            heavy[variant, node] = True
            for row in range(rows):
                more, less = paid[row, node], saved[row, node]
                if more > less - MARGIN * (more + less) and more + less > 0.0:
                    heavy[variant, node] = False
    return heavy


@inner
def _count_net(nets, net, group, per, followers, saved, paid):
    """Add to ``saved[node]`` and ``paid[node]`` what a net means for a stage that lets it go."""
    home = nets.producer[net]
    send_least, send_most = _range(nets, net, group, per, OUT)
    fetch_least, fetch_most = _range(nets, net, group, per, IN)
    first, end = nets.offsets[net], nets.offsets[net + 1]
    ways = 0
    for k in range(first, end):
        ways |= nets.reader_ways[k]
    read_above = read_below = False
    for k in range(first, end):
        node = nets.readers[k]
        if node > home:  # the stage, or a lower one, holds the producer; its pass may change
            paid[node] += max(send_most, fetch_most) if ways == 3 else send_most
        elif not _follows(followers, node, home):
            paid[node] += max(send_most, fetch_most)
        elif end - first == 1:  # fetched from above for this node alone
            saved[node] += fetch_least
        elif ways == 3:
            paid[node] += fetch_most
        read_above |= node > home and _follows(followers, home, node)
        read_below |= node < home or not _follows(followers, home, node)
    if read_above:
        saved[home] += send_least
    if read_below:
        paid[home] += fetch_most


@inner
def _range(nets, net, group, per, direction):
    """`(least, most)` seconds that a net takes one way, whatever its pass and the other's side."""
    least, most = np.inf, 0.0
    for bit in range(4 * direction, 4 * direction + 4):
        one = per[group[bit]]
        seconds = one[0] * nets.tensors[net] + one[1] * nets.bytes[net]
        least, most = min(least, seconds), max(most, seconds)
    return least, most


@inner
def _follows(followers, node, other):
    """Whether an edge leads from one to the other."""
    offsets, targets = followers
    k = offsets[node]
    while k < offsets[node + 1] and targets[k] != other:
        k += 1
    return k < offsets[node + 1]


@inner(allocates=True)
def parts_of(bits, last):
    """CSR `(offsets[ideal], nodes, parts)`: the ideals without one of their last nodes.

    Those among the ideals alone; ``last[ideal]`` are the last nodes of each as bits.
    """
    count, words = bits.shape
    factor = np.empty(words, dtype=np.uint64)
    state = np.uint64(0x9E3779B97F4A7C15)
    for word in range(words):
        factor[word] = state | np.uint64(1)
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    exponent = 4
    while 1 << exponent < 2 * count:
        exponent += 1
    slots = np.full(1 << exponent, -1, dtype=np.int64)
    offsets = np.zeros(count + 1, dtype=np.int64)
    size = min(_count_bits(last), PARTS_PER_IDEAL * count)
    nodes, parts = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    wanted = np.empty(words, dtype=np.uint64)
    _look_up(bits, last, factor, np.uint64(64 - exponent), slots, wanted, offsets, nodes, parts)
    return offsets, nodes[: offsets[count]], parts[: offsets[count]]


@inner
def _count_bits(rows):
    found = 0
    for row in range(rows.shape[0]):
        for word in range(rows.shape[1]):
            left = rows[row, word]
            while left:
                left &= left - np.uint64(1)
                found += 1
    return found


@inner
def _look_up(bits, last, factor, shift, slots, wanted, offsets, nodes, parts):
    """Fill `offsets`, `nodes` and `parts` of `parts_of`.

    Ideals are found by a sum of their words, each times its odd `factor`, from whose first bits on
    they stand in `slots`.
    """
    count, words = bits.shape
    behind = np.uint64(len(slots) - 1)
    used = 0
    for ideal in range(count):  # what an ideal is a part of comes after it
        key = np.uint64(0)
        for word in range(words):
            wanted[word] = bits[ideal, word]
            key += bits[ideal, word] * factor[word]
        for word in range(words):
            left = last[ideal, word]
            while left:
                bit = left & (~left + np.uint64(1))
                left ^= bit
                wanted[word] ^= bit
                slot = (key - bit * factor[word]) >> shift
                while slots[slot] >= 0 and not equal_rows(bits[slots[slot]], wanted):
                    slot = (slot + np.uint64(1)) & behind
                wanted[word] ^= bit
                if slots[slot] >= 0 and used < len(nodes):
                    nodes[used], parts[used] = 64 * word + _number(bit), slots[slot]
                    used += 1
        offsets[ideal + 1] = used
        slot = key >> shift
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & behind
        slots[slot] = ideal


@inner
def _number(bit):
    """Which of the 64 bits it is."""
    number, half = 0, 32
    while half:
        if bit >> np.uint64(half):
            bit >>= np.uint64(half)
            number += half
        half >>= 1
    return number


@inner
def must_hold(ideals, ideal, place_of, heavy, over, required):
    """Whether no stage has to end at an ideal; else into `required` what its other end must hold.

    ``over[place]``: how much the ideals leave over, the fewer the better; ``place_of[ideal]`` is -1
    for those that no split passes through.
    """
    known = over[place_of[ideal]]
    required[:] = np.uint64(0)
    for i in range(ideals.part_offsets[ideal], ideals.part_offsets[ideal + 1]):
        node, place = ideals.part_nodes[i], place_of[ideals.parts[i]]
        if heavy[node] and place >= 0 and over[place] <= known:
            required[node >> 6] |= np.uint64(1) << np.uint64(node & 63)
    return equal_rows(required, ideals.last[ideal])


@inner
def leave_idle(costs, over, further, by):
    """What does with few devices for what an ideal leaves over does with more of them."""
    for move in range(len(costs.move_kind)):  # the fewer there are, the sooner
        before, after = costs.move_before[move], costs.move_after[move]
        if over[after] < over[before]:
            over[before], further[before], by[before] = over[after], further[after], by[after]


@inner
def holds_all(bits, number, required):
    """Whether a row of bits has all those that are required."""
    word = 0
    while word < len(required) and not required[word] & ~bits[number, word]:
        word += 1
    return word == len(required)
