"""What throughput planners work on: the contracted graph, its nets, and classes of devices.

**Nodes.** Ops that are colocated form a unit; a unit's forward and backward ops are together.
Where stages are contiguous, forward edges go up the row of stages and backward edges down it, so
with each backward edge turned round all go up; edges between a forward and a backward op are
free. Units in a circle of these edges must share a stage: each strongly connected component is
contracted to one *node* (Tarnawski et al. 2020, App. B). What remains is a DAG, and the contiguous
splits are exactly the chains of its *ideals* (sets that hold with a node all before it): stage j
is what the j-th ideal adds to the one before. The paper mirrors only those backward edges that
touch an orphaned op (one without a forward twin) and checks the others later; turning all of them
says the same of every split. Where stages need not be contiguous, each unit is a node of its own.

**Two directions.** Some published training graphs list their backward edges along the forward
ones. There the backward data goes up the row as well: `directions` gives the graphs of both
readings, the one that leaves more nodes first.

**Nets.** What a stage pays for transfers depends on which tensors leave it and which it reads. A
*net* is all tensors of one node and pass that the same nodes read in the same passes, put
together, for a tensor costs latency + bytes · seconds per byte on every way. Tensors that stay in
a node are left out, and those without bytes where nothing has a latency.

**Passes.** Under GPipe the largest load of each pass counts, and pass 1 is the backward one. A
PipeDream schedule adds the two up, so there all is in pass 0, as in a graph without backward ops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from placewright.analysis.devices import Classes, alike_classes, device_classes
from placewright.analysis.ties import ordered_edges, readings
from placewright.graph import Flags, Floats, Ints, Wide, frozen
from placewright.kernels.common.components import adjacency, strong_components
from placewright.kernels.throughput.arrays import PipelineArrays
from placewright.kernels.throughput.loads import Loads, loads_of
from placewright.kernels.throughput.stage_loads import adjacent_nets
from placewright.problem import Problem, once_per_problem

LOADS = ("sum", "overlap", "duplex")
FORWARD_READER, BACKWARD_READER = 1, 2


class NetTable(NamedTuple):
    """Columns, an entry per net; by the first of their tensors.

    - `producer` node; `way`, the pass of the producing ops; how many `tensors`; `bytes` of all;
    - `offsets`, `readers`: CSR, the other nodes that read it, rising; `forward`, of each, whether
      an op of pass 0 does.
    """

    producer: Wide
    way: Wide
    tensors: Floats
    bytes: Floats
    offsets: Wide
    readers: Wide
    forward: Flags


class Net(NamedTuple):
    """One net; `readers` with whether an op of pass 0 reads."""

    producer: int
    way: int
    tensors: float
    bytes: float
    readers: tuple[tuple[int, bool], ...]


@dataclass(frozen=True, eq=False)
class ContractedGraph:
    """Nodes, numbered in a topological order, and the nets between them.

    - `op_node[op]`; `time[pass, node, class]` seconds, 0 where `allowed[node, class]` is false;
      `memory[node]`, `sync_bytes[node]` (`Problem.op_memory`, `op_sync_bytes`);
    - `edge_source[edge]`, `edge_target[edge]`: nodes in the order they may follow each other,
      each pair once; none where stages need not be contiguous;
    - `device_class[device]`; `class_devices[class]`.
    """

    problem: Problem
    op_node: Wide
    time: Floats
    allowed: Flags
    memory: Floats
    sync_bytes: Floats
    edge_source: Wide
    edge_target: Wide
    nets: NetTable
    device_class: Ints
    class_devices: tuple[tuple[int, ...], ...]

    @property
    def passes(self) -> int:
        return len(self.time)

    @property
    def node_count(self) -> int:
        return len(self.memory)

    @property
    def net_count(self) -> int:
        return len(self.nets.producer)

    @property
    def class_count(self) -> int:
        return len(self.class_devices)

    @cached_property
    def followers(self) -> tuple[Wide, Wide]:
        """CSR `(offsets[node], nodes)` that come right after each node."""
        return adjacency(self.node_count, self.edge_source, self.edge_target)  # type: ignore[no-any-return]

    @cached_property
    def leaders(self) -> tuple[Wide, Wide]:
        """CSR `(offsets[node], nodes)` that come right before each node."""
        return adjacency(self.node_count, self.edge_target, self.edge_source)  # type: ignore[no-any-return]

    @cached_property
    def node_nets(self) -> tuple[Wide, Wide, Wide]:
        """CSR `(offsets[node], nets, ways)`: see `adjacent_nets`."""
        nets = self.nets
        return adjacent_nets(  # type: ignore[no-any-return]
            self.node_count, nets.producer, nets.offsets, nets.readers, self.reader_ways
        )

    @property
    def reader_ways(self) -> Wide:
        """Beside `NetTable.readers`, `FORWARD_READER` or `BACKWARD_READER`."""
        return np.where(self.nets.forward, FORWARD_READER, BACKWARD_READER)

    @cached_property
    def each_net(self) -> tuple[Net, ...]:
        """The nets one by one."""
        producer, way, tensors, size, bounds, readers, forward = (c.tolist() for c in self.nets)
        pairs = list(zip(readers, forward, strict=True))
        return tuple(
            Net(producer[net], way[net], tensors[net], size[net], tuple(pairs[low:high]))
            for net, (low, high) in enumerate(pairwise(bounds))
        )

    @cached_property
    def arrays(self) -> PipelineArrays:
        """The same for compiled code."""
        problem, nets = self.problem, self.nets
        return PipelineArrays(
            frozen(self.time, np.float64),
            frozen(self.allowed, np.bool_),
            frozen(self.memory, np.float64),
            nets.producer.astype(np.int32),
            nets.way.astype(np.int32),
            nets.tensors,
            nets.bytes,
            nets.offsets,
            nets.readers.astype(np.int32),
            nets.forward,
            *_narrow(*self.node_nets[:2]),
            *_narrow(*self.followers),
            *_narrow(*self.leaders),
            self.device_class,
            problem.device_memory,
            problem.link_latency,
            problem.link_seconds_per_byte,
            problem.host_latency,
            problem.host_seconds_per_byte,
            problem.staging == "host",
            LOADS.index(problem.options.load),
            self.passes,
        )

    def loads(self, node_device: Ints) -> Loads:
        """What each device has to do with the nodes placed so."""
        return loads_of(self.arrays, node_device)

    def contracted(self, node_group: Ints | Wide) -> ContractedGraph:
        """One node of each group of nodes, ``node_group[node]`` from 0.

        Edges that would go down in the numbers of the groups are dropped: meant for groups of
        neighbours in a topological order, numbered in that order, or for graphs without edges.
        """
        group = np.asarray(node_group, dtype=np.int64)
        count = int(group.max()) + 1
        time = np.zeros((self.passes, count, self.class_count))
        allowed = np.ones((count, self.class_count), dtype=np.bool_)
        for each in range(self.class_count):
            for way in range(self.passes):
                time[way, :, each] = np.bincount(group, self.time[way, :, each], count)
            allowed[group[~self.allowed[:, each]], each] = False
        source, target = _distinct(group[self.edge_source], group[self.edge_target], count)
        return replace(
            self,
            op_node=group[self.op_node],
            time=time * allowed,
            allowed=allowed,
            memory=_summed(group, self.memory, count),
            sync_bytes=_summed(group, self.sync_bytes, count),
            edge_source=source[source < target],
            edge_target=target[source < target],
            nets=_merged(self.nets, group, count),
        )


def _narrow(offsets: Wide, entries: Wide) -> tuple[Wide, Ints]:
    return offsets, entries.astype(np.int32)


# -- graphs of a problem -----------------------------------------------------------------------


def directions(problem: Problem, *, by_links: bool = True) -> list[ContractedGraph]:
    """The graphs with backward edges turned round and with backward edges as they are.

    A contiguous split is a chain of ideals of one or of the other. The one with more nodes comes
    first. Without edges between backward ops there is only one reading.
    """
    both = [contracted_graph(problem, mirrored=way, by_links=by_links) for way in readings(problem)]
    return sorted(both, key=lambda graph: -graph.node_count)


def contracted_graph(
    problem: Problem, *, contiguous: bool = True, mirrored: bool = True, by_links: bool = True
) -> ContractedGraph:
    """What contiguous stages cannot tear apart contracted; else each unit is a node of its own.

    `mirrored`: backward edges are turned round. Without `by_links` devices of a class may be
    linked differently: they are equally fast and have as much memory.

    >>> graph = contracted_graph(problem)                            # doctest: +SKIP
    >>> graph.node_count <= problem.unit_count
    True
    """
    classes = device_classes(problem) if by_links else alike_classes(problem)
    if not contiguous:
        return _of_units(problem, classes, _costly(problem))
    unit = problem.op_unit.astype(np.int64)
    source, target = ordered_edges(problem, unit, mirrored)
    unit_node, count = strong_components(problem.unit_count, source, target)
    edges = _distinct(unit_node[source], unit_node[target], count)
    return _graph(problem, unit_node[unit], count, edges, classes, _costly(problem))


@once_per_problem
def unit_graph(problem: Problem) -> ContractedGraph:
    """Units, and each device a class of its own, that allows only what it has room for.

    Nets that are free stay in it: coarsening joins units along them too.
    """
    count = problem.device_count
    each = np.arange(count, dtype=np.int32), tuple((device,) for device in range(count))
    graph = _of_units(problem, each, np.ones(len(problem.tensor_bytes), dtype=np.bool_))
    allowed = problem.unit_allowed
    return replace(graph, allowed=allowed, time=graph.time * allowed)


def _of_units(problem: Problem, classes: Classes, kept: Flags) -> ContractedGraph:
    nothing = np.empty(0, dtype=np.int64)
    unit = problem.op_unit.astype(np.int64)
    return _graph(problem, unit, problem.unit_count, (nothing, nothing), classes, kept)


def _graph(
    problem: Problem,
    op_node: Wide,
    count: int,
    edges: tuple[Wide, Wide],
    classes: Classes,
    kept: Flags,
) -> ContractedGraph:
    """`kept`: the tensors to look at."""
    gpipe = problem.options.schedule == "gpipe"
    op_pass = (problem.is_backward & gpipe).astype(np.int64)
    time, allowed = _times(problem, op_node + count * op_pass, count, classes)
    return ContractedGraph(
        problem,
        op_node,
        time,
        allowed,
        _summed(op_node, problem.op_memory, count),
        _summed(op_node, problem.op_sync_bytes, count),
        *edges,
        _merged(_tensors(problem, op_pass, kept), op_node, count),
        *classes,
    )


def _summed(group: Wide, values: Floats, count: int) -> Floats:
    return np.bincount(group, values, count).astype(np.float64)


def _distinct(source: Wide, target: Wide, count: int) -> tuple[Wide, Wide]:
    """Each pair of different nodes once."""
    between = source != target
    pairs = np.unique(source[between] * count + target[between])
    return pairs // count, pairs % count


def _times(problem: Problem, key: Wide, count: int, classes: Classes) -> tuple[Floats, Flags]:
    """`time` and `allowed`; ``key[op]`` its node, `count` more in pass 1."""
    _, class_devices = classes
    passes = 1 + int(key.max(initial=0) >= count)
    time = np.zeros((passes, count, len(class_devices)))
    allowed = np.ones((count, len(class_devices)), dtype=np.bool_)
    for each, devices in enumerate(class_devices):
        seconds = problem.op_time[:, devices[0]]
        impossible = np.isinf(seconds)
        impossible |= (problem.op_pinned >= 0) & (problem.op_pinned != devices[0])
        if impossible.any():
            allowed[key[impossible] % count, each] = False
            seconds = np.where(impossible, 0.0, seconds)
        time[:, :, each] = np.bincount(key, seconds, passes * count).reshape(passes, count)
        time[:, ~allowed[:, each], each] = 0.0
    return time, allowed


# -- nets --------------------------------------------------------------------------------------


def _costly(problem: Problem) -> Flags:
    """`[tensor]` whether sending it may cost anything."""
    has_latency = problem.link_latency.any() or problem.host_latency.any()
    costly: Flags = (problem.tensor_bytes > 0) | bool(has_latency)
    return costly


def _tensors(problem: Problem, op_pass: Wide, kept: Flags) -> NetTable:
    """Each tensor that is kept as a net between ops."""
    producer = problem.tensor_producer[kept].astype(np.int64)
    sizes = np.diff(problem.consumer_offsets)[kept]
    consumers = problem.consumers[kept[problem.edge_tensor]].astype(np.int64)
    return NetTable(
        producer,
        op_pass[producer],
        np.ones(len(producer)),
        problem.tensor_bytes[kept],
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        consumers,
        op_pass[consumers] == 0,
    )


def _merged(nets: NetTable, group: Wide, count: int) -> NetTable:
    """Nets between the same groups put together; those that nobody else reads left out."""
    home, reader = group[nets.producer], group[nets.readers]
    net = np.repeat(np.arange(len(home)), np.diff(nets.offsets))
    leaves = reader != home[net]
    # Each pair of a net and a group once, with whether an op of pass 0 reads.
    pair, place = np.unique(net[leaves] * count + reader[leaves], return_inverse=True)
    forward = np.zeros(len(pair), dtype=np.bool_)
    forward[place[nets.forward[leaves]]] = True
    net, reader = pair // count, pair % count
    first = np.flatnonzero(np.diff(net, prepend=-1))
    offsets = np.append(first, len(net))
    net = net[first]
    row = _equal_rows(home[net] * 2 + nets.way[net], offsets, reader * 2 + forward)
    kept, number = np.unique(row, return_inverse=True)
    sizes = offsets[kept + 1] - offsets[kept]
    new_offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    entries = np.repeat(offsets[kept] - new_offsets[:-1], sizes) + np.arange(new_offsets[-1])
    return NetTable(
        home[net[kept]],
        nets.way[net[kept]],
        _summed(number, nets.tensors[net], len(kept)),
        _summed(number, nets.bytes[net], len(kept)),
        new_offsets,
        reader[entries],
        forward[entries],
    )


def _equal_rows(key: Wide, offsets: Wide, entries: Wide) -> Wide:
    """`[row]` the first row with the same `key` and the same entries."""
    first: dict[tuple[int, bytes], int] = {}
    found = np.arange(len(key))
    shared = np.flatnonzero(np.bincount(key)[key] > 1)
    for row in shared.tolist():
        content = entries[offsets[row] : offsets[row + 1]].tobytes()
        found[row] = first.setdefault((int(key[row]), content), row)
    return found
