"""The pieces of a pipeline on single devices, as one tuple that compiled code takes.

For graphs and clusters of any size: no table has an entry per piece and device. Devices that do
every op equally fast share a column of times, wherever they are linked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

IN, OUT = 0, 1


class PieceArrays(NamedTuple):
    """Pieces, nets and machine; see `analysis.pieces.Pieces`. CSR as `…_offsets`.

    Passes (ways) are 0 and 1; where they count together (PipeDream) all is in pass 0.
    """

    time: Any  # [way, piece, class] seconds
    allowed: Any  # [piece, class]
    memory: Any  # [piece] bytes
    net_source: Any  # [net] piece
    net_way: Any  # [net] pass of the producing ops
    net_count: Any  # [net] tensors
    net_bytes: Any  # [net] of them all
    reader_offsets: Any
    readers: Any  # pieces, rising
    reader_forward: Any  # whether an op of pass 0 reads
    piece_offsets: Any
    piece_nets: Any  # that a piece makes or reads
    follower_offsets: Any
    followers: Any  # pieces that may not be on an earlier stage than a piece
    leader_offsets: Any
    leaders: Any
    device_class: Any
    device_memory: Any
    link_latency: Any
    link_seconds_per_byte: Any
    host_latency: Any
    host_seconds_per_byte: Any
    through_host: bool
    load: int
    ways: int
