"""What nets cost the devices they join, for every way of keeping the loads of a pipeline.

`p` is `max_load.MaxLoad` or `piece_arrays.PieceArrays`: their columns about nets are the same.
"""

from __future__ import annotations

from placewright.kernels.compiled import inner

SUM, OVERLAP, DUPLEX = 0, 1, 2  # what option `load` says


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


@inner
def random_neighbour(p, net_offsets, nets, piece, rng):
    """One that shares a net with `piece`, or itself; a piece's nets are in CSR."""
    first, last = net_offsets[piece], net_offsets[piece + 1]
    if first == last:
        return piece
    net = nets[first + int(rng.random() * (last - first))]
    low, high = p.reader_offsets[net], p.reader_offsets[net + 1]
    pick = int(rng.random() * (high - low + 1))
    return p.net_source[net] if pick == 0 else p.readers[low + pick - 1]
