"""A coarser problem in a fraction of the time and with a fraction of the tensors of `contract`.

Tensors that one group sends to the same groups become one, as large as all of them and, for every
latency that is saved, larger by what a mean route carries in a mean latency. So a coarse plan's
makespan is an estimate; the finest level decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placewright.coarsen.contraction import merged_colocation
from placewright.graph import Floats, Ints, Wide
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.multilevel_matching import ordered
from placewright.problem import Problem


@dataclass(frozen=True, eq=False)
class Level:
    """`problem` has an op for each group of the ops of `finer`; `op_group[op]` says which."""

    finer: Problem
    problem: Problem
    op_group: Ints

    def restrict(self, device: Ints, order: Ints) -> tuple[Ints, Ints]:
        """Devices and an order of the groups, from those of the ops of `finer`.

        Each group lies within one device. Groups come by the mean rank of their ops, as far as
        the graph lets them.
        """
        count = self.problem.op_count
        coarse = np.empty(count, dtype=np.int32)
        coarse[self.op_group] = device
        mean = np.bincount(self.op_group, _ranks(order), count) / np.bincount(self.op_group)
        return coarse, order_by_priority(self.problem, mean)

    def expand(self, device: Ints, order: Ints) -> tuple[Ints, Ints]:
        """The same devices and order for the ops of `finer`, in topological order in a group."""
        rank = _ranks(order)
        inner = self.finer.topological_order
        by_group = np.argsort(rank[self.op_group[inner]], kind="stable")
        return device[self.op_group], inner[by_group]


def _ranks(order: Ints) -> Wide:
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank


def contracted(problem: Problem, op_group: Ints) -> Level:
    """One op per group, whose contraction must be a DAG."""
    count = int(op_group.max()) + 1
    first = np.full(count, problem.op_count)
    np.minimum.at(first, op_group, np.arange(problem.op_count))
    pinned = np.full(count, -1)
    np.maximum.at(pinned, op_group, problem.op_pinned)
    producer, nbytes, offsets, consumers = _tensors(problem, op_group)
    coarse = replace(
        problem,
        op_names=tuple(problem.op_names[op] for op in first.tolist()),
        op_types=("",) * count,
        op_modules=("",) * count,
        op_time=np.stack(
            [np.bincount(op_group, column, count) for column in problem.op_time.T], axis=1
        ),
        op_memory=np.bincount(op_group, problem.op_memory, count).astype(np.float64),
        is_backward=np.zeros(count, dtype=np.bool_),
        forward_twin=np.full(count, -1),
        colocation=merged_colocation(problem, op_group, count),
        op_pinned=pinned,
        op_sync_bytes=np.zeros(count),
        op_cost_source=np.empty(0, dtype=np.int8),
        op_cost_spread=np.empty(0),
        op_cache=np.empty(0),
        op_copied=np.empty(0),
        op_stash=np.empty(0),
        batch_time=np.zeros((count, problem.device_count, 0)),
        batch_sizes=np.zeros(0, dtype=np.int32),
        tensor_producer=producer,
        tensor_bytes=nbytes,
        consumer_offsets=offsets,
        consumers=consumers,
    )
    return Level(problem, coarse, op_group)


def _tensors(problem: Problem, op_group: Ints) -> tuple[Ints, Floats, Wide, Ints]:
    """Producers, bytes and consumers (CSR) of the tensors between groups."""
    source, target = op_group[problem.edge_producer], op_group[problem.consumers]
    apart = np.flatnonzero(source != target)
    by_edge = problem.options.transfer_unit == "edge"
    tensor = apart if by_edge else problem.edge_tensor[apart]
    target = target[apart]
    if by_edge:
        nbytes_of = problem.tensor_bytes[problem.edge_tensor]
        producer_of = source
    else:
        nbytes_of = problem.tensor_bytes
        producer_of = op_group[problem.tensor_producer]
    # Each tensor once per group that reads it, by tensor and then by group.
    count = int(op_group.max()) + 1
    reads = np.unique(tensor.astype(np.int64) * count + target)
    tensor, target = reads // count, reads % count
    name = np.random.default_rng(0).integers(1, 2**63, count).astype(np.uint64)
    begins = np.flatnonzero(np.diff(tensor, prepend=-1))
    tensors = tensor[begins]
    if not len(tensors):
        nothing = np.zeros(0, dtype=np.int32)
        return nothing, np.zeros(0), np.zeros(1, dtype=np.int64), nothing
    # Equal sets of readers have equal sums of their names, and no others in practice.
    readers = np.add.reduceat(name[target], begins)
    order = np.lexsort((readers, producer_of[tensors]))
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (np.diff(producer_of[tensors][order]) != 0) | (
        readers[order][1:] != readers[order][:-1]
    )
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    kept = order[new]
    merged = np.bincount(number, nbytes_of[tensors]) + _latency_bytes(problem) * (
        np.bincount(number) - 1
    )
    sizes = np.diff(np.append(begins, len(tensor)))
    offsets = np.concatenate([[0], np.cumsum(sizes[kept])])
    places = np.repeat(begins[kept] - offsets[:-1], sizes[kept]) + np.arange(offsets[-1])
    return (
        producer_of[tensors[kept]].astype(np.int32),
        merged,
        offsets,
        target[places].astype(np.int32),
    )


def _latency_bytes(problem: Problem) -> float:
    """Bytes that take as long on a mean route as its latency."""
    per_byte = float(problem.link_seconds_per_byte.sum())
    return float(problem.link_latency.sum()) / per_byte if per_byte > 0 else 0.0


def order_by_priority(problem: Problem, priority: Floats) -> Ints:
    """A topological order that always takes the ready op of the lowest priority."""
    waiting = np.bincount(problem.consumers, minlength=problem.op_count)
    by_priority = np.argsort(priority, kind="stable")
    place = np.empty(problem.op_count, dtype=np.int32)
    place[by_priority] = np.arange(problem.op_count)
    return ordered(arrays_of(problem), waiting, place)  # type: ignore[no-any-return]
