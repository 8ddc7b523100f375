"""A pipeline problem as one tuple that compiled code takes, and what its nets cost.

For graphs and clusters of any size: no table has an entry per piece and device. Devices that do
every op equally fast may share a column of times, wherever they are linked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.compiled import inner

IN, OUT = 0, 1
SUM, OVERLAP, DUPLEX = 0, 1, 2  # what option `load` says


class PipelineArrays(NamedTuple):
    """Pieces, nets and machine; see `analysis.pieces.Pieces`. CSR as `…_offsets`.

    Passes (ways) are 0 and 1; where they count together (PipeDream) all is in pass 0.
    """

    time: Floats  # [way, piece, class] seconds
    allowed: Flags  # [piece, class]
    memory: Floats  # [piece] bytes
    net_source: Ints  # [net] piece
    net_way: Ints  # [net] pass of the producing ops
    net_count: Floats  # [net] tensors
    net_bytes: Floats  # [net] of them all
    reader_offsets: Wide
    readers: Ints  # pieces, rising
    reader_forward: Flags  # whether an op of pass 0 reads
    piece_offsets: Wide
    piece_nets: Ints  # that a piece makes or reads
    follower_offsets: Wide
    followers: Ints  # pieces that may not be on an earlier stage than a piece
    leader_offsets: Wide
    leaders: Ints
    device_class: Ints
    device_memory: Floats
    link_latency: Floats
    link_seconds_per_byte: Floats
    host_latency: Floats
    host_seconds_per_byte: Floats
    through_host: bool
    load: int
    ways: int


def nets_of_pieces(
    count: int, net_source: Any, reader_offsets: Any, readers: Any
) -> tuple[Any, Any]:
    """CSR `(offsets[piece], nets)`: the nets that a piece makes or reads, rising."""
    nets = len(net_source)
    of_reader = np.repeat(np.arange(nets), np.diff(reader_offsets))
    ends = np.concatenate([net_source, readers])
    by_piece = np.lexsort((np.concatenate([np.arange(nets), of_reader]), ends))
    number = np.concatenate([np.arange(nets), of_reader])[by_piece]
    offsets = np.searchsorted(ends[by_piece], np.arange(count + 1))
    return offsets.astype(np.int64), number.astype(np.int32)


@inner
def direct_seconds(p, net, source, target):
    """Of a net from one device to another, each of which pays as much."""
    return (
        p.net_count[net] * p.link_latency[source, target]
        + p.net_bytes[net] * p.link_seconds_per_byte[source, target]
    )


@inner
def host_seconds(p, net, device, way):
    """Of a net to host memory (way 0) or from it (way 1)."""
    return (
        p.net_count[net] * p.host_latency[way, device]
        + p.net_bytes[net] * p.host_seconds_per_byte[way, device]
    )


@inner
def combined(load, compute, incoming, outgoing):
    """Busy seconds from their parts under the option `load`."""
    if load == SUM:
        return compute + incoming + outgoing
    if load == OVERLAP:
        return max(compute, incoming + outgoing)
    return max(compute, max(incoming, outgoing))


@inner
def reads_forward(p, net, piece):
    """Whether an op of pass 0 of the piece reads the net."""
    low, high = p.reader_offsets[net], p.reader_offsets[net + 1]
    while high - low > 1:  # the readers of a net are in rising order
        middle = (low + high) // 2
        if p.readers[middle] <= piece:
            low = middle
        else:
            high = middle
    return p.reader_forward[low]
