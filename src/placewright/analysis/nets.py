"""Units and the nets between them: what the search and the programs for throughput look at.

A *net* is what one unit sends to a set of other units: all tensors of one producer and pass that
the same units read, put together, for a tensor costs latency + bytes · seconds per byte on every
way. Tensors that stay in a unit cost nothing and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placewright.graph import Flags, Floats, Ints, frozen
from placewright.kernels.throughput.arrays import PipelineArrays, nets_of_pieces
from placewright.kernels.throughput.loads import Loads, loads_of
from placewright.problem import Problem, once_per_problem

LOADS = ("sum", "overlap", "duplex")
Pairs = tuple[tuple[int, int], ...]
Readers = tuple[tuple[int, bool], ...]
"""Units that read a net, rising, and whether any of a unit's reading ops is a forward op."""


@dataclass(frozen=True, eq=False)
class Net:
    """`count` tensors of `size` bytes in all from unit `source`, made in pass `way`."""

    source: int
    way: int
    readers: Readers
    count: float
    size: float


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A throughput problem by units: ``time[way, unit, device]``, `allowed`, memory and nets.

    A PipeDream schedule adds the two passes up, so there all is in pass 0; under GPipe the
    largest load of each pass counts, and pass 1 is the backward one. Times of units on devices
    where they cannot be are 0: `allowed[unit, device]` keeps them away.
    """

    problem: Problem
    time: Floats
    allowed: Flags
    memory: Floats
    nets: tuple[Net, ...]

    @property
    def unit_count(self) -> int:
        return len(self.memory)

    @property
    def ways(self) -> int:
        return len(self.time)

    @cached_property
    def arrays(self) -> PipelineArrays:
        """The same for compiled code: units are the pieces, each device a class of its own."""
        problem, nets, count = self.problem, self.nets, self.unit_count
        source = np.array([net.source for net in nets], dtype=np.int32)
        sizes = [len(net.readers) for net in nets]
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        readers = np.array([reader for net in nets for reader, _ in net.readers], dtype=np.int32)
        no_edges = np.zeros(count + 1, dtype=np.int64), np.zeros(0, dtype=np.int32)
        return PipelineArrays(
            self.time,
            self.allowed,
            self.memory,
            source,
            np.array([net.way for net in nets], dtype=np.int32),
            np.array([net.count for net in nets], dtype=np.float64),
            np.array([net.size for net in nets], dtype=np.float64),
            offsets,
            readers,
            np.array([first for net in nets for _, first in net.readers], dtype=np.bool_),
            *nets_of_pieces(count, source, offsets, readers),
            *no_edges,
            *no_edges,
            np.arange(problem.device_count, dtype=np.int32),
            problem.device_memory,
            problem.link_latency,
            problem.link_seconds_per_byte,
            problem.host_latency,
            problem.host_seconds_per_byte,
            problem.staging == "host",
            LOADS.index(problem.options.load),
            self.ways,
        )

    def loads(self, unit_device: Ints) -> Loads:
        """What each device has to do with the units placed so."""
        return loads_of(self.arrays, unit_device)

    @cached_property
    def edges(self) -> tuple[Pairs, Pairs]:
        """Pairs of units with data from the first to the second, in each pass.

        Forward data goes up the row of devices of a contiguous plan; backward data goes all down
        it or all up. From one pass to the other data is free, and inside a unit.
        """
        problem = self.problem
        unit, backward = problem.op_unit, problem.is_backward
        one, two = problem.edge_producer, problem.consumers
        apart = (backward[one] == backward[two]) & (unit[one] != unit[two])
        passes = []
        for way in (False, True):
            edges = apart & (backward[one] == way)
            ends = zip(unit[one[edges]].tolist(), unit[two[edges]].tolist(), strict=True)
            passes.append(tuple(sorted(set(ends))))
        return passes[0], passes[1]

    def contracted(self, group: Ints) -> Pipeline:
        """The same with the units of each group put together: `group[unit]`, numbered from 0."""
        count = int(group.max()) + 1
        time = np.zeros((self.ways, count, self.time.shape[2]))
        for way in range(self.ways):
            np.add.at(time[way], group, self.time[way])
        allowed = np.ones((count, self.time.shape[2]), dtype=bool)
        np.logical_and.at(allowed, group, self.allowed)
        number = group.tolist()
        nets = _merged(
            Net(number[net.source], net.way, _renamed(net, number), net.count, net.size)
            for net in self.nets
        )
        return Pipeline(
            self.problem,
            frozen(np.where(allowed, time, 0.0), np.float64),
            frozen(allowed, np.bool_),
            frozen(np.bincount(group, self.memory, count), np.float64),
            nets,
        )


@once_per_problem
def pipeline_of(problem: Problem) -> Pipeline:
    """The units and nets of a problem."""
    gpipe = problem.options.schedule == "gpipe"
    backward = problem.is_backward if gpipe else np.zeros(problem.op_count, dtype=bool)
    allowed = problem.unit_allowed
    time = np.zeros((2 if gpipe else 1, problem.unit_count, problem.device_count))
    for way in range(len(time)):
        ops = np.flatnonzero(backward == bool(way))
        np.add.at(time[way], problem.op_unit[ops], problem.op_time[ops])
    return Pipeline(
        problem,
        frozen(np.where(allowed, time, 0.0), np.float64),
        frozen(allowed, np.bool_),
        problem.unit_memory,
        _merged(_tensor_nets(problem, backward)),
    )


def _tensor_nets(problem: Problem, backward: Flags) -> Iterator[Net]:
    unit = problem.op_unit.tolist()
    consumers, is_backward = problem.consumers.tolist(), backward.tolist()
    offsets, sizes = problem.consumer_offsets.tolist(), problem.tensor_bytes.tolist()
    for tensor, producer in enumerate(problem.tensor_producer.tolist()):
        readers: dict[int, bool] = {}
        for op in consumers[offsets[tensor] : offsets[tensor + 1]]:
            if unit[op] != unit[producer]:
                readers[unit[op]] = readers.get(unit[op], False) or not is_backward[op]
        way = int(is_backward[producer])
        yield Net(unit[producer], way, tuple(sorted(readers.items())), 1.0, sizes[tensor])


def _renamed(net: Net, group: list[int]) -> Readers:
    readers: dict[int, bool] = {}
    for reader, forward in net.readers:
        if group[reader] != group[net.source]:
            readers[group[reader]] = readers.get(group[reader], False) or forward
    return tuple(sorted(readers.items()))


def _merged(nets: Iterator[Net]) -> tuple[Net, ...]:
    """Nets between the same units put together; those that nobody else reads left out."""
    totals: dict[tuple[int, int, Readers], tuple[float, float]] = {}
    for net in nets:
        if net.readers:
            count, size = totals.get((net.source, net.way, net.readers), (0.0, 0.0))
            totals[net.source, net.way, net.readers] = (count + net.count, size + net.size)
    return tuple(Net(*key, *total) for key, total in totals.items())
