"""Ideals of a DAG, and whether the devices may do for both sides of one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Floats, Wide
from placewright.kernels.compiled import inlined, kernel

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


def unpacked(bits: NDArray[np.uint64], count: int) -> NDArray[np.bool_]:
    """`[row, node]` of sets as bits, 64 nodes a word."""
    octets = np.ascontiguousarray(bits.astype("<u8")).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=count, bitorder="little").astype(np.bool_)


def packed(holds: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """`[row, word]` the sets of ``holds[row, node]``, 64 nodes a word."""
    words = (holds.shape[1] + 63) // 64
    octets = np.zeros((len(holds), 8 * words), dtype=np.uint8)
    found = np.packbits(holds, axis=1, bitorder="little")
    octets[:, : found.shape[1]] = found
    return octets.view("<u8").astype(np.uint64)


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
