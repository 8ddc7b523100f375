"""What a throughput planner works on: pieces, the nets between them, kinds of devices.

**Pieces.** Ops that are colocated form a unit; a unit's forward and backward ops are together.
Where stages are contiguous, forward edges go up the row of stages and backward edges down it, so
with each backward edge turned round all go up; edges between a forward and a backward op are
free. Units in a circle of these edges must share a stage: each strongly connected component is
one `piece` (Tarnawski et al. 2020, App. B). What remains is a DAG, and the contiguous splits are
exactly the chains of its *ideals* (sets that hold with a piece all before it): stage j is what
the j-th ideal adds to the one before. The paper mirrors only those backward edges that touch an
orphaned op (one without a forward twin) and checks the others later; turning all of them says the
same of every split.

**Two directions.** Some published training graphs list their backward edges along the forward
ones. There the backward data goes up the row as well: `directions` gives the pieces of both
readings, the one that leaves more of them first.

**Nets.** What a stage pays for transfers depends on which tensors leave it and which it reads. A
*net* is a set of equal tensors: of one producing piece and pass, read by the same pieces in the
same passes. Nets that cost nothing wherever they go are left out.

**Classes.** Devices that nothing tells apart are one class with a count; where there are many hosts
and links are looked at device by device, those that are equally fast and large.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.devices import grouped, kinds, swaps_links
from placewright.analysis.ties import ordered_edges, readings
from placewright.graph import Floats, Ints, Wide
from placewright.kernels.common.pieces import adjacency, connected_pieces
from placewright.problem import Problem

FORWARD_READER, BACKWARD_READER = 1, 2


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces, numbered in a topological order, and the nets between them.

    - `op_piece[op]`; `piece_time[way, piece, class]` seconds of its forward (way 0) and backward
      ops (way 1), 0 where `piece_allowed[piece, class]` is false; `piece_memory[piece]`,
      `piece_sync[piece]` bytes (`Problem.op_memory`, `op_sync_bytes`);
    - `edge_source[edge]`, `edge_target[edge]`: pieces in the order they may follow each other,
      each pair once;
    - `net_producer[net]` piece; `net_way[net]` 1 where the producing ops are backward;
      `net_tensors[net]` how many tensors it stands for, `net_bytes[net]` bytes of them all;
    - `net_offsets`, `net_readers`: CSR, the other pieces that read it, ascending;
      `net_reader_ways` of each: 1 its forward ops read it, 2 its backward ops, 3 both;
    - `device_class[device]`; `class_devices[class]`.
    """

    problem: Problem
    op_piece: Wide
    piece_time: Floats
    piece_allowed: NDArray[np.bool_]
    piece_memory: Floats
    piece_sync: Floats
    edge_source: Wide
    edge_target: Wide
    net_producer: Wide
    net_way: Wide
    net_tensors: Floats
    net_bytes: Floats
    net_offsets: Wide
    net_readers: Wide
    net_reader_ways: Wide
    device_class: Ints
    class_devices: tuple[tuple[int, ...], ...]

    @property
    def piece_count(self) -> int:
        return len(self.piece_memory)

    @property
    def net_count(self) -> int:
        return len(self.net_producer)

    @property
    def class_count(self) -> int:
        return len(self.class_devices)

    @cached_property
    def followers(self) -> tuple[Wide, Wide]:
        """CSR `(offsets[piece], pieces)` that come right after each piece."""
        return adjacency(self.piece_count, self.edge_source, self.edge_target)  # type: ignore[no-any-return]

    @cached_property
    def leaders(self) -> tuple[Wide, Wide]:
        """CSR `(offsets[piece], pieces)` that come right before each piece."""
        return adjacency(self.piece_count, self.edge_target, self.edge_source)  # type: ignore[no-any-return]


def directions(problem: Problem, *, by_links: bool = True) -> list[Pieces]:
    """The pieces with backward edges turned round and with backward edges as they are.

    A contiguous split is a chain of ideals of one or of the other. The one with more pieces comes
    first. Without edges between backward ops there is only one reading.
    """
    both = [pieces_of(problem, mirrored=way, by_links=by_links) for way in readings(problem)]
    return sorted(both, key=lambda pieces: -pieces.piece_count)


def pieces_of(
    problem: Problem, *, contiguous: bool = True, mirrored: bool = True, by_links: bool = True
) -> Pieces:
    """The pieces of a problem; with `contiguous` false, each unit is a piece of its own.

    `mirrored`: backward edges are turned round. Without contiguity nothing orders the pieces:
    there are no edges between them. Without `by_links` devices of a class may be linked
    differently: they are equally fast and have as much memory.

    >>> pieces = pieces_of(problem)                                  # doctest: +SKIP
    >>> pieces.piece_count <= problem.unit_count
    True
    """
    unit = problem.op_unit.astype(np.int64)
    nothing = np.empty(0, dtype=np.int64)
    op_piece, count, source, target = unit, problem.unit_count, nothing, nothing
    if contiguous:
        source, target = ordered_edges(problem, unit, mirrored)
        unit_piece, count = connected_pieces(problem.unit_count, source, target)
        op_piece = unit_piece[unit]
        source, target = _distinct(unit_piece[source], unit_piece[target], count)
    device_class, class_devices = device_classes(problem) if by_links else _speeds(problem)
    time, allowed = _times(problem, op_piece, count, class_devices)
    return Pieces(
        problem,
        op_piece,
        time,
        allowed,
        _summed(op_piece, problem.op_memory, count),
        _summed(op_piece, problem.op_sync_bytes, count),
        source,
        target,
        *_nets(problem, op_piece, count),
        device_class,
        class_devices,
    )


def _summed(group: Wide, values: Floats, count: int) -> Floats:
    return np.bincount(group, values, count).astype(np.float64)


def _distinct(source: Wide, target: Wide, count: int) -> tuple[Wide, Wide]:
    """Each pair of different pieces once."""
    between = source != target
    pairs = np.unique(source[between] * count + target[between])
    return pairs // count, pairs % count


# -- devices -----------------------------------------------------------------------------------


def device_classes(problem: Problem) -> tuple[Ints, tuple[tuple[int, ...], ...]]:
    """`device_class[device]` and the devices of each class.

    Devices of a class may be exchanged in any placement: they have equal times, memory and
    transfers, no op is pinned to one of them, and no device tells them apart.
    """
    pinned = set(problem.op_pinned[problem.op_pinned >= 0].tolist())

    def same(one: int, two: int) -> bool:
        return not pinned.intersection((one, two)) and _alike(problem, one, two)

    members = grouped(range(problem.device_count), same)
    device_class = np.empty(problem.device_count, dtype=np.int32)
    for number, devices in enumerate(members):
        device_class[devices] = number
    return device_class, tuple(tuple(each) for each in members)


def _speeds(problem: Problem) -> tuple[Ints, tuple[tuple[int, ...], ...]]:
    """As `device_classes`, links and ways to host memory left out of it."""
    first, device_class = kinds(problem)
    members = [np.flatnonzero(device_class == each).tolist() for each in range(len(first))]
    return device_class, tuple(tuple(each) for each in members)


def _alike(problem: Problem, one: int, two: int) -> bool:
    if problem.device_memory[one] != problem.device_memory[two]:
        return False
    if problem.staging == "host":
        for transfer in (problem.host_latency, problem.host_seconds_per_byte):
            if not np.array_equal(transfer[:, one], transfer[:, two]):
                return False
    else:
        for link in (problem.link_latency, problem.link_seconds_per_byte):
            if not swaps_links(link, one, two):
                return False
    return np.array_equal(problem.op_time[:, one], problem.op_time[:, two])


def _times(
    problem: Problem, op_piece: Wide, count: int, class_devices: tuple[tuple[int, ...], ...]
) -> tuple[Floats, NDArray[np.bool_]]:
    kinds = len(class_devices)
    time = np.zeros((2, count, kinds))
    allowed = np.ones((count, kinds), dtype=np.bool_)
    key = op_piece + count * problem.is_backward
    for kind, devices in enumerate(class_devices):
        seconds = problem.op_time[:, devices[0]]
        impossible = np.isinf(seconds)
        impossible |= (problem.op_pinned >= 0) & (problem.op_pinned != devices[0])
        if impossible.any():
            allowed[op_piece[impossible], kind] = False
            seconds = np.where(impossible, 0.0, seconds)
        time[:, :, kind] = np.bincount(key, seconds, 2 * count).reshape(2, count)
        time[:, ~allowed[:, kind], kind] = 0.0
    return time, allowed


# -- nets --------------------------------------------------------------------------------------


def _nets(
    problem: Problem, op_piece: Wide, count: int
) -> tuple[Wide, Wide, Floats, Floats, Wide, Wide, Wide]:
    """The columns of `Pieces` about nets, in the order they stand there."""
    tensor_home: Wide = op_piece[problem.tensor_producer]
    reader = op_piece[problem.consumers]
    leaves = reader != tensor_home[problem.edge_tensor]
    tensor = problem.edge_tensor[leaves].astype(np.int64)
    bit = 1 + problem.is_backward[problem.consumers[leaves]].astype(np.int64)
    # Each (tensor, piece) once, with the passes of the piece that read it.
    pair, place = np.unique(tensor * count + reader[leaves], return_inverse=True)
    ways = np.zeros(len(pair), dtype=np.int64)
    for each in (FORWARD_READER, BACKWARD_READER):
        ways[place[bit == each]] |= each
    tensor, reader = pair // count, pair % count
    first = np.flatnonzero(np.diff(tensor, prepend=-1))
    offsets = np.append(first, len(tensor))
    tensor = tensor[first]
    home = tensor_home[tensor]
    way = problem.is_backward[problem.tensor_producer[tensor]].astype(np.int64)
    group = _equal_rows(home * 2 + way, offsets, reader * 4 + ways)
    kept, net = np.unique(group, return_inverse=True)
    net_tensors = np.bincount(net, minlength=len(kept)).astype(np.float64)
    net_bytes = _summed(net, problem.tensor_bytes[tensor], len(kept))
    if not problem.link_latency.any() and not problem.host_latency.any():
        costs = net_bytes > 0
        kept, net_tensors, net_bytes = kept[costs], net_tensors[costs], net_bytes[costs]
    sizes = offsets[kept + 1] - offsets[kept]
    net_offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    entries = np.repeat(offsets[kept] - net_offsets[:-1], sizes) + np.arange(net_offsets[-1])
    return (
        home[kept],
        way[kept],
        net_tensors,
        net_bytes,
        net_offsets,
        reader[entries],
        ways[entries],
    )


def _equal_rows(key: Wide, offsets: Wide, entries: Wide) -> Wide:
    """`[row]` the first row with the same `key` and the same entries."""
    first: dict[tuple[int, bytes], int] = {}
    found = np.empty(len(key), dtype=np.int64)
    bounds = offsets.tolist()
    for row, each in enumerate(key.tolist()):
        content = entries[bounds[row] : bounds[row + 1]].tobytes()
        found[row] = first.setdefault((each, content), row)
    return found


def contracted(pieces: Pieces, piece_group: Wide) -> Pieces:
    """One piece of each group of pieces; edges that would go down in their numbers are dropped.

    Meant for groups of neighbours in a topological order, numbered in that order.
    """
    group = np.asarray(piece_group, dtype=np.int64)
    count = int(group.max()) + 1
    time = np.zeros((2, count, pieces.class_count))
    for way in (0, 1):
        for each in range(pieces.class_count):
            time[way, :, each] = np.bincount(group, pieces.piece_time[way, :, each], count)
    allowed = np.stack(
        [
            np.bincount(group, ~pieces.piece_allowed[:, each], count) == 0
            for each in range(pieces.class_count)
        ],
        axis=1,
    )
    time *= allowed
    source, target = _distinct(group[pieces.edge_source], group[pieces.edge_target], count)
    return Pieces(
        pieces.problem,
        group[pieces.op_piece],
        time,
        allowed,
        _summed(group, pieces.piece_memory, count),
        _summed(group, pieces.piece_sync, count),
        source[source < target],
        target[source < target],
        *_nets(pieces.problem, group[pieces.op_piece], count),
        pieces.device_class,
        pieces.class_devices,
    )
