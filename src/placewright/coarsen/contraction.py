"""Contraction: make one op of each group of ops, and turn its placement back.

`contract` takes any groups whose contraction is a DAG; `acyclic_groups` makes such groups of any
(Tarnawski et al. 2020, App. B). Planning for latency does not contract colocated ops: it gives a
unit one device and still schedules its ops one by one, because a pair of tied weights at the two
ends of a model would make a single op of everything between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Floats, Ints, Wide, frozen
from placewright.plan import Placement
from placewright.problem import Problem


@dataclass(frozen=True, eq=False)
class Contraction:
    """`problem` with one op per group of `original`; `op_group[op]` says which."""

    original: Problem
    problem: Problem
    op_group: Ints
    edge_of: Ints
    """`[original edge]` the contracted edge that carries it, or -1 inside a group."""

    def expand(self, placement: Placement) -> Placement:
        """The same placement on the original ops, in the same order.

        Timed with that order, the original never ends later than the contracted problem does:
        a group's ops run back to back where it ran as one, and their results leave as it ended,
        at the latest. That of batches is of other items (`simulate.batch.expand`): it is left out.
        """
        grouped = self.op_group
        if placement.device.ndim > 1:
            return Placement(placement.device[grouped])
        if placement.sequence is not None:
            return Placement(placement.device[grouped], self._expand_sequence(placement.sequence))
        subgraph = None if placement.subgraph is None else placement.subgraph[grouped]
        return replace(placement, device=placement.device[grouped], subgraph=subgraph)

    def project(self, placement: Placement) -> Placement | None:
        """A placement on the original ops made coarser; None where it does not fit then.

        Each unit of the contracted problem goes to the device, of those it may be on, that most of
        its ops' time is on. For objective ``latency``.
        """
        return projected(self.original, self.problem, self.op_group, placement)

    def _expand_sequence(self, sequence: Ints) -> Ints:
        """A group's ops in topological order where it was, each followed by its edges inside."""
        fine, coarse = self.original, self.problem
        ops, edges = np.arange(fine.op_count), np.arange(fine.edge_count)
        place = np.empty(coarse.op_count + coarse.edge_count, dtype=np.int64)
        place[np.where(sequence >= 0, sequence, coarse.op_count - 1 - sequence)] = np.arange(
            len(sequence)
        )
        within = np.empty(fine.op_count)
        within[fine.topological_order] = ops
        producer, outside = fine.edge_producer, self.edge_of >= 0
        carrier = np.where(outside, coarse.op_count + self.edge_of, self.op_group[producer])
        first = np.concatenate([place[self.op_group], place[carrier]])
        then = np.concatenate([within, np.where(outside, edges, within[producer] + 0.5)])
        items = np.concatenate([ops, -1 - edges]).astype(np.int32)
        return items[np.lexsort((then, first))]


def projected(
    fine: Problem, coarse: Problem, op_group: Ints, placement: Placement
) -> Placement | None:
    """`placement` on the ops of `coarse` that those of `fine` belong to; see `project`."""
    unit = coarse.op_unit[op_group]
    spent = fine.op_time[np.arange(fine.op_count), placement.device]
    share = np.zeros((coarse.unit_count, fine.device_count))
    np.add.at(share, (unit, placement.device), spent + np.finfo(np.float64).tiny)
    device = np.where(np.isfinite(coarse.unit_time), share, -1.0).argmax(axis=1)
    device = np.where(coarse.unit_pinned >= 0, coarse.unit_pinned, device)
    used = np.bincount(device, coarse.unit_memory, coarse.device_count)
    supported = np.isfinite(coarse.unit_time[np.arange(coarse.unit_count), device])
    if not supported.all() or (used > coarse.device_memory).any():
        return None
    return Placement(device[coarse.op_unit].astype(np.int32))


def contract(problem: Problem, op_group: Sequence[int] | Ints) -> Contraction:
    """Make one op of each group; GraphError if that leaves a cycle.

    `op_group[op]` numbers the groups from 0. Times and memory add up, and an op is supported
    where all its members are. A tensor that leaves its group stays a tensor of its own. Where
    transfers are per consumer (transfer unit ``edge``), a tensor that goes to m members of one
    group stands m times, so that as much is sent as before.
    """
    group = frozen(op_group, np.int32)
    count = int(group.max()) + 1
    first = np.full(count, problem.op_count)
    np.minimum.at(first, group, np.arange(problem.op_count))
    size = np.bincount(group, minlength=count)
    pinned = np.full(count, -1)
    np.maximum.at(pinned, group, problem.op_pinned)
    backward = np.zeros(count, dtype=np.int64)
    np.add.at(backward, group, problem.is_backward)
    producer, nbytes, consumers, edge_of = _outer_tensors(problem, group)
    offsets = np.zeros(len(consumers) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in consumers], out=offsets[1:])
    contracted = replace(
        problem,
        op_names=tuple(
            problem.op_names[op] + (f" (+{members - 1})" if members > 1 else "")
            for op, members in zip(first.tolist(), size.tolist(), strict=True)
        ),
        op_types=tuple(problem.op_types[op] for op in first),
        op_modules=tuple(problem.op_modules[op] for op in first),
        op_time=_told_apart(problem, _summed(problem.op_time, group, count), group),
        op_memory=np.bincount(group, problem.op_memory, count).astype(np.float64),
        is_backward=backward == size,
        forward_twin=_twins(problem, group, count, backward == size),
        colocation=merged_colocation(problem, group, count),
        op_pinned=pinned,
        op_cost_source=np.empty(0, dtype=np.int8),  # a group's time has many
        op_cost_spread=np.empty(0),
        op_cache=np.empty(0),  # these two are for reports, which are of the whole problem
        op_copied=np.empty(0),
        op_stash=_stashes(problem, group, count),
        op_sync_bytes=np.bincount(group, problem.op_sync_bytes, count).astype(np.float64),
        batch_time=_summed(problem.batch_time, group, count),
        tensor_producer=np.array(producer, dtype=np.int32),
        tensor_bytes=np.array(nbytes, dtype=np.float64),
        consumer_offsets=offsets,
        consumers=np.array([each for some in consumers for each in some], dtype=np.int32),
    )
    return Contraction(problem, contracted, group, edge_of)


def _summed(values: Floats, group: Ints, count: int) -> Floats:
    """Rows added up per group."""
    total = np.zeros((count, *values.shape[1:]))
    np.add.at(total, group, values)
    return total


def _told_apart(problem: Problem, total: Floats, group: Ints) -> Floats:
    """`total[group, device]`, changed by roundings where devices that differ take equally long.

    Replicas with equal shares are equally fast op by op: devices that are quicker for one member of
    a group and slower for another are none, and would look so where its members add up to the same.
    """
    if not problem.options.replicate or problem.options.shares != "equal":
        return total
    _, first, kind = np.unique(problem.op_time, axis=1, return_index=True, return_inverse=True)
    mixed = np.zeros(len(total), dtype=np.bool_)
    for one, other in combinations(first.tolist(), 2):
        differs = problem.op_time[:, one] != problem.op_time[:, other]
        same = np.isfinite(total[:, one]) & (total[:, one] == total[:, other])
        mixed[group[differs]] |= same[group[differs]]
    return np.where(mixed[:, None], total * (1.0 + kind * np.finfo(np.float64).eps), total)


def acyclic_groups(problem: Problem, key: Ints) -> Ints:
    """Ops of equal `key[op]` ≥ 0 and equal side in one group; groups on a cycle are merged."""
    import rustworkx as rx

    side = np.where(problem.is_backward, 1, 0)
    key = np.where(key >= 0, 2 * key + side, -1 - np.arange(problem.op_count))
    group = np.unique(key, return_inverse=True)[1].astype(np.int64)
    ends = np.stack([group[problem.edge_producer], group[problem.consumers]], axis=1)
    digraph = rx.PyDiGraph()
    digraph.add_nodes_from(range(int(group.max()) + 1))
    digraph.add_edges_from_no_data([(a, b) for a, b in np.unique(ends, axis=0).tolist() if a != b])
    component = np.empty(digraph.num_nodes(), dtype=np.int64)
    for number, ops in enumerate(rx.strongly_connected_components(digraph)):
        component[ops] = number
    return _numbered_by_first_op(component[group])


def _numbered_by_first_op(group: Wide) -> Ints:
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int32)
    number[np.argsort(first)] = np.arange(len(first))
    return frozen(number[inverse], np.int32)


def _stashes(problem: Problem, group: Ints, count: int) -> Floats:
    if not problem.op_stash.size:
        return problem.op_stash
    return np.bincount(group, problem.op_stash, count).astype(np.float64)


def _outer_tensors(
    problem: Problem, group: Ints
) -> tuple[list[int], list[float], list[list[int]], Ints]:
    """Tensors that leave their group: producers, bytes, consumers; and where each edge went."""
    by_edge = problem.options.transfer_unit == "edge"
    producer: list[int] = []
    nbytes: list[float] = []
    consumers: list[list[int]] = []
    edge_of = np.full(problem.edge_count, -1, dtype=np.int32)
    place: list[tuple[int, int, int]] = []  # original edge, new tensor, position among consumers
    offsets = problem.consumer_offsets.tolist()
    readers = group[problem.consumers].tolist()
    homes = group[problem.tensor_producer].tolist()
    for tensor, home in enumerate(homes):
        copies: list[dict[int, int]] = []  # per copy: group → position among its consumers
        start = len(producer)
        times_read: dict[int, int] = {}
        for edge in range(offsets[tensor], offsets[tensor + 1]):
            reader = readers[edge]
            if reader == home:
                continue
            copy = times_read.get(reader, 0) if by_edge else 0
            times_read[reader] = copy + 1
            if copy == len(copies):
                copies.append({})
            position = copies[copy].setdefault(reader, len(copies[copy]))
            place.append((edge, start + copy, position))
        for copied in copies:
            producer.append(home)
            nbytes.append(float(problem.tensor_bytes[tensor]))
            consumers.append(list(copied))
    new_offsets = np.concatenate([[0], np.cumsum([len(each) for each in consumers])])
    for edge, tensor, position in place:
        edge_of[edge] = new_offsets[tensor] + position
    return producer, nbytes, consumers, frozen(edge_of, np.int32)


def _twins(problem: Problem, group: Ints, count: int, backward: NDArray[np.bool_]) -> Ints:
    twin = np.full(count, -1, dtype=np.int32)
    for op in np.flatnonzero(problem.forward_twin >= 0)[::-1]:
        mine, other = group[op], group[problem.forward_twin[op]]
        if backward[mine] and not backward[other]:
            twin[mine] = other
    return twin


def merged_colocation(problem: Problem, group: Ints, count: int, *ties: Ints) -> Ints:
    """`[group]` colocation: groups that share one, directly or through others, stay colocated.

    `ties[k][group]` ≥ 0 is another reason to be together: groups of the same number are.
    """
    import rustworkx as rx

    grouped = np.flatnonzero(problem.colocation >= 0)
    reasons = [(group[grouped], problem.colocation[grouped])]
    for tie in ties:
        tied = np.flatnonzero(tie >= 0).astype(np.int32)
        reasons.append((tied, tie[tied]))
    colocation = np.full(count, -1, dtype=np.int32)
    graph = rx.PyGraph()
    graph.add_nodes_from(range(count))
    for members, numbers in reasons:
        if len(members):
            base = graph.num_nodes()
            graph.add_nodes_from(range(int(numbers.max()) + 1))
            ends = zip(members.tolist(), (base + numbers).tolist(), strict=True)
            graph.add_edges_from_no_data(list(ends))
    number = 0
    for component in rx.connected_components(graph):
        ops = [each for each in component if each < count]
        if len(ops) > 1:
            colocation[ops] = number
            number += 1
    return colocation
