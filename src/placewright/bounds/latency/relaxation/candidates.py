"""Which regions are looked at: where paths part and meet, cut where all of them pass one op.

If every path from u to v passes w, a bound of (u, v) by the load of devices is no better than one
of (u, w) and one of (w, v) together, for each device of w: what one of them puts on a device comes
after what the other puts there. So regions are cut into pieces. Memory is another matter: a region
that no device has room for stays beside its pieces.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from placewright.bounds.latency.relaxation.network import Indices, Network
from placewright.graph import Flags
from placewright.kernels.latency.bound_paths import mark_cuts, meeting_points

LONGEST_SPAN = 4_000  # topological positions between the ends of a region (the whole aside)
JOINS = 6  # ahead of a fork on the longest path, to end regions


def candidates(network: Network) -> tuple[Indices, Indices, Flags]:
    """First and last ops of regions, by last, then first; which are `made` of others.

    Those are the whole and what is longer than a piece.
    """
    net, n = network.net, network.count
    pairs: set[tuple[int, int]] = set()
    made = {(0, n - 1)}
    for first, last in _pairs(network):
        whole = (first, last) == (0, n - 1)
        if not (whole or 3 <= last - first <= LONGEST_SPAN):
            continue
        mark = np.empty(last - first + 1, dtype=np.uint8)
        mark_cuts(first, last, net.out_offsets, net.head, mark)
        cuts = (first + np.flatnonzero(mark == 2)).tolist()
        pairs |= set(pairwise([first, *cuts, last]))
        if cuts and network.share[first : last + 1][mark > 0].sum(axis=0).min() > 1.0:
            made.add((first, last))
    kept = {pair for pair in pairs if pair[1] - pair[0] >= 3} | made
    found = sorted(kept, key=lambda pair: (pair[1], pair[0]))
    first_of, last_of = np.array(found, dtype=np.int64).T
    return first_of, last_of, np.array([pair in made for pair in found])


def _pairs(network: Network) -> set[tuple[int, int]]:
    """Ends of regions before they are cut.

    From where paths part to where they all meet, from where paths come from to where they meet,
    pieces of the longest path of a half, a quarter … of its length, and the whole.
    """
    net, n = network.net, network.count
    pairs = {(0, n - 1)}
    ahead = meeting_points(n, net.out_offsets, net.head)
    pairs |= set(zip(range(n - 1), ahead[:-1].tolist(), strict=True))
    behind = n - 1 - _meeting_points_behind(network)
    pairs |= set(zip(behind[1:].tolist(), range(1, n), strict=True))
    path = _fastest_path(network)
    pairs |= _forks_and_joins(network, path)
    span = 2
    while span < len(path):
        pairs |= set(pairwise([*path[::span], n - 1]))
        span *= 2
    return pairs


def _forks_and_joins(network: Network, path: list[int]) -> set[tuple[int, int]]:
    """On a path: each op that several read, with the next ops that read several."""
    several_out = np.diff(network.net.out_offsets) > 1
    several_in = np.diff(network.net.in_offsets) > 1
    pairs = set()
    joins: list[int] = []
    for op in reversed(path):
        if several_out[op]:
            pairs |= {(op, join) for join in joins[:JOINS]}
        if several_in[op]:
            joins.insert(0, op)
    return pairs


def _meeting_points_behind(network: Network) -> Indices:
    net, n = network.net, network.count
    tails = net.tail[net.in_edges]
    counts = np.diff(net.in_offsets)[::-1]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    reversed_tails = n - 1 - tails[::-1]
    points: Indices = meeting_points(n, offsets, np.ascontiguousarray(reversed_tails))[::-1]
    return points


def _fastest_path(network: Network) -> list[int]:
    """The longest path, each op on its fastest device, from start to end."""
    net = network.net
    time = np.where(network.closed, np.inf, net.time).min(axis=1)
    rank = np.zeros(network.count)
    follower = np.zeros(network.count, dtype=np.int64)
    for op in range(network.count - 2, -1, -1):
        heads = net.head[net.out_offsets[op] : net.out_offsets[op + 1]]
        follower[op] = heads[int(rank[heads].argmax())]
        rank[op] = time[op] + rank[follower[op]]
    path = [0]
    while path[-1] < network.count - 1:
        path.append(int(follower[path[-1]]))
    return path
