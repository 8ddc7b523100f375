"""A pipeline problem as one tuple that compiled code takes, and what its nets cost.

For graphs and clusters of any size: no table has an entry per node and device. Devices that do
every op equally fast may share a column of times, wherever they are linked.
"""

from __future__ import annotations

from typing import NamedTuple

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.compiled import inner

IN, OUT = 0, 1
SUM, OVERLAP, DUPLEX = 0, 1, 2  # what option `load` says


class PipelineArrays(NamedTuple):
    """Nodes, nets and machine; see `analysis.contracted.Nodes`. CSR as `…_offsets`.

    Passes (ways) are 0 and 1; where they count together (PipeDream) all is in pass 0.
    """

    time: Floats  # [way, node, class] seconds
    allowed: Flags  # [node, class]
    memory: Floats  # [node] bytes
    net_source: Ints  # [net] node
    net_way: Ints  # [net] pass of the producing ops
    net_count: Floats  # [net] tensors
    net_bytes: Floats  # [net] of them all
    reader_offsets: Wide
    readers: Ints  # nodes, rising
    reader_forward: Flags  # whether an op of pass 0 reads
    node_offsets: Wide
    node_nets: Ints  # that a node makes or reads
    follower_offsets: Wide
    followers: Ints  # nodes that may not be on an earlier stage than a node
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
def reads_forward(p, net, node):
    """Whether an op of pass 0 of the node reads the net."""
    low, high = p.reader_offsets[net], p.reader_offsets[net + 1]
    while high - low > 1:  # the readers of a net are in rising order
        middle = (low + high) // 2
        if p.readers[middle] <= node:
            low = middle
        else:
            high = middle
    return p.reader_forward[low]
