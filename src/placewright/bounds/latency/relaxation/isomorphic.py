"""Regions that are the same but for the numbers of their ops: what is proved of one holds for all.

Models repeat their layers, so most regions have many twins. All that a bound of a region, or a
search for its shortest schedule, looks at is put into its `key_of`: between the ends, ops
numbered by their place, their times, bytes, devices and units; edges between all of them with
their bytes, the tensors they belong to and what they are charged; and whether an end is the start
or the end of all, which are on no device. Ends take no time and no memory within a region, and
only devices that they can be on are asked about, so these do not count. Two regions with one key
are the same problem, and a number proved for one pair of devices of the ends of one of them is
proved for the other. Keys are digests, different in practice where regions are.
Devices may be twins too, see `like_devices`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.bounds.latency.relaxation.network import Indices, Network
from placewright.kernels.latency.dual_ascent import Part

Key = bytes


def key_of(network: Network, ops: Indices, part: Part) -> Key:
    """Of the region between ``ops[0]`` and ``ops[-1]``; `part` has all of them."""
    problem = network.problem
    names = network.order[ops]
    is_op = names >= 0
    unit = np.where(is_op, problem.op_unit[names], -1 - np.arange(len(ops)))
    memory = np.where(is_op, problem.op_memory[names], 0.0)
    memory[[0, -1]] = 0.0
    tensor = network.tensor[network.edges_between(ops)[0]]
    return digest_of(part, is_op[[0, -1]], memory, by_first(unit), by_first(tensor))


def like_devices(network: Network, part: Part) -> Indices:
    """`[device]` the first that can change names with it and the part stays the same.

    So what is proved with the ends on a and b holds with them on any a' and b' like these, where
    a' is b' if a is b.
    """
    return _like(network, part.time, part.closed, part.share)


def like_throughout(network: Network) -> Indices:
    """`[device]` the first that can change names with it and the whole problem stays the same."""
    return _like(network, network.net.time, network.closed, network.share)


def _like(network: Network, *columns: NDArray[Any]) -> Indices:
    first: dict[tuple[int, tuple[bytes, ...]], int] = {}
    like = network.like.copy()
    for device, link in enumerate(network.like.tolist()):
        column = tuple(each[:, device].tobytes() for each in columns)
        like[device] = first.setdefault((link, column), device)
    return like


def digest_of(part: Part, *more: NDArray[Any]) -> Key:
    """Different in practice where a column is."""
    digest = blake2b(digest_size=16)
    for column in (*part, *more):
        array = np.ascontiguousarray(column)
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.digest()


def by_first(names: Indices) -> Indices:
    """Names numbered in the order in which they first come up.

    >>> by_first(np.array([7, 3, 7, 5]))
    array([0, 1, 0, 2])
    """
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    found: Indices = number[inverse]
    return found
