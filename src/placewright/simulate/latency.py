"""Latency of one run, an inference or a step of training: a schedule from a placement.

`schedule_placement` chooses a good order for a bare placement; `time_placement` times a
placement that has its own sequence; both give a `Schedule` in which every op and transfer
starts as early as that order allows (semi-active), and under memory option ``peak`` as early as
memory allows besides.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from placewright.errors import VerificationError
from placewright.graph import Floats, Ints, Wide, given_up, lent
from placewright.kernels.common.arrays import NOT_SENT, arrays_of, arrays_with_memory
from placewright.kernels.common.ranks import upward_ranks
from placewright.kernels.latency.dispatch import dispatch, floor_of
from placewright.kernels.latency.insertion import insertion_schedule
from placewright.kernels.latency.timing import time_sequence
from placewright.kernels.latency.within_memory import OVERFULL, time_within_memory
from placewright.outcome import Schedule, Transfers
from placewright.plan import Placement, Plan
from placewright.problem import Problem


def time_placement(problem: Problem, placement: Placement) -> Schedule:
    """The schedule of a placement, in its own sequence or, if it has none, in a good one."""
    if placement.sequence is None:
        placement = schedule_placement(problem, placement.device)
    op_start, op_finish, edge_start, edge_finish = time_items(problem, placement)
    transfers = _transfers(problem, placement.device, edge_start, edge_finish)
    return Schedule(given_up(op_start), given_up(op_finish), transfers)


def time_items(problem: Problem, placement: Placement) -> tuple[Floats, Floats, Floats, Floats]:
    """Starts and finishes of ops, and of edges as `kernels.latency.timing.time_sequence` records
    them.

    The placement has a sequence. Under memory option ``peak`` items wait for memory; if it does
    not fit in that order, they are timed as if memory were no matter (see `peak_memory`).
    """
    assert placement.sequence is not None
    n, edges = problem.op_count, problem.edge_count
    op_start, op_finish = np.empty(n), np.empty(n)
    edge_start, edge_finish = np.empty(edges), np.empty(edges)
    arrays = arrays_with_memory(problem)
    given = (
        arrays,
        lent(placement.device),
        lent(placement.sequence),
        np.empty(n),
        op_finish,
        edge_finish,
        np.empty(problem.device_count),
        np.empty(arrays.channel_count),
        op_start,
        edge_start,
    )
    if arrays.device_memory is None or time_within_memory(*given) >= OVERFULL:
        time_sequence(*given)
    return op_start, op_finish, edge_start, edge_finish


def makespans(problem: Problem, placement: Placement, op_seconds: Iterable[Floats]) -> Floats:
    """`[sample]` the makespan of a placement in its sequence, were ops to take such seconds.

    A sample is ``[op]``, the seconds of every op where it is placed. Transfers take what the
    problem says.
    """
    assert placement.sequence is not None
    n, edges, everything = problem.op_count, problem.edge_count, np.arange(problem.op_count)
    arrays = arrays_with_memory(problem)
    op_time = np.array(problem.op_time)
    device, sequence = lent(placement.device), lent(placement.sequence)
    scratch = (
        np.empty(n), np.empty(n), np.empty(edges), np.empty(problem.device_count),
        np.empty(arrays.channel_count), np.empty(n), np.empty(edges),
    )  # fmt: skip
    # Read-only as the problem's own, for which the kernels are compiled.
    sampled = arrays._replace(op_time=given_up(op_time.view()))
    found = []
    for seconds in op_seconds:
        op_time[everything, device] = seconds
        value = OVERFULL
        if arrays.device_memory is not None:
            value = time_within_memory(sampled, device, sequence, *scratch)
        if value >= OVERFULL:
            value = time_sequence(sampled, device, sequence, *scratch)
        found.append(float(value))
    return np.array(found)


def schedule_placement(problem: Problem, device: Ints) -> Placement:
    """Give a bare placement a sequence: list scheduling into gaps, longest remaining path first.

    The rank of an op is the longest path from it to the end under this placement, transfers
    included (Topcuoglu et al. 2002's upward rank, with the placement's own times).
    """
    op_time = problem.op_time[np.arange(problem.op_count), device]
    source, target = device[problem.edge_producer], device[problem.consumers]
    edge_time = (
        problem.link_latency[source, target]
        + problem.tensor_bytes[problem.edge_tensor] * problem.link_seconds_per_byte[source, target]
    )
    order = rank_order(problem, op_time, np.where(source == target, 0.0, edge_time))
    return insert_in_order(problem, order, problem.unit_device(device))[0]


def dispatch_placement(problem: Problem, device: Ints, rank: Wide | None = None) -> Placement:
    """Give a bare placement a sequence: list scheduling forwards in time, nothing idle by choice.

    Where several ops could start on a device, or transfers on a channel, the one of least
    ``rank[op]``, a permutation, goes first (by default their topological order). A transfer has
    the rank of the first op that waits for it.
    """
    arrays = arrays_of(problem)
    if rank is None:
        rank = lent(problem.topological_rank)
    sequence = np.empty(problem.op_count + problem.edge_count, dtype=np.int32)
    dispatch(arrays, lent(device), rank, floor_of(arrays), sequence)
    return Placement(device, sequence)


def quicker_schedule(problem: Problem, device: Ints) -> tuple[Placement, Schedule]:
    """A bare placement in the better of two sequences, those of the two schedulers above."""
    orders = schedule_placement(problem, device), dispatch_placement(problem, device)
    timed = [(each, time_placement(problem, each)) for each in orders]
    return min(timed, key=lambda each: each[1].makespan)


def rank_order(problem: Problem, op_weight: Floats, edge_weight: Floats) -> Ints:
    """Ops by decreasing upward rank; a topological order, ties as in the problem's own."""
    arrays = arrays_of(problem)
    order = problem.topological_order
    rank = upward_ranks(op_weight, edge_weight, order, arrays)
    return order[np.argsort(-rank[order], kind="stable")]


def insert_in_order(
    problem: Problem, order: Ints, unit_device: Ints, *, insertion: bool = True
) -> tuple[Placement, int]:
    """Run the insertion kernel; the placement with its sequence, and -1 or the op that failed.

    `unit_device[unit]` fixes the device of a unit, or is -1. After a failure the placement is
    partial and must not be used.
    """
    unit_device = np.array(unit_device, dtype=np.int32)
    op_start, op_finish = np.zeros(problem.op_count), np.zeros(problem.op_count)
    edge_start, edge_finish = np.empty(problem.edge_count), np.empty(problem.edge_count)
    failed = insertion_schedule(
        arrays_of(problem),
        order,
        problem.op_unit,
        unit_device,
        problem.unit_memory,
        np.isfinite(problem.unit_time),
        problem.free_memory(unit_device),
        insertion,
        op_start,
        op_finish,
        edge_start,
        edge_finish,
    )
    device = unit_device[problem.op_unit]
    if failed >= 0:
        return Placement(device), int(failed)
    return Placement(device, sequence_of(problem, op_start, op_finish, edge_start, edge_finish)), -1


def sequence_of(
    problem: Problem,
    op_start: Floats,
    op_finish: Floats,
    edge_start: Floats,
    edge_finish: Floats,
) -> Ints:
    """The sequence that reproduces a schedule: items by start, then finish, then precedence.

    Edges without a transfer of their own (`edge_start` < 0) take no time; they come when their
    tensor is there, so that none is sent sooner than it was. Re-timing the sequence never gives
    a later finish.
    """
    n, edges = problem.op_count, problem.edge_count
    position = problem.topological_rank
    idle = edge_start < 0
    there = np.where(edge_finish >= 0, edge_finish, op_finish[problem.edge_producer])
    start = np.concatenate([op_start, np.where(idle, there, edge_start)])
    finish = np.concatenate([op_finish, there])
    precedence = np.concatenate([position, position[problem.edge_producer] + 0.5])
    items = np.concatenate([np.arange(n), -1 - np.arange(edges)]).astype(np.int32)
    return items[np.lexsort((precedence, finish, start))]


def schedule_sequence(plan: Plan) -> Ints:
    """The plan's schedule as one order of ops and edges (`Placement.sequence`).

    A transfer is the item of the first edge that it serves; the edges it serves besides, and
    those within a device, come when their tensor is there.
    """
    problem, schedule, device = plan.problem, plan.schedule, plan.placement.device
    sent, count = schedule.transfers, problem.device_count
    by_tensor = problem.options.transfer_unit == "tensor"
    target = device[problem.consumers]
    if by_tensor:
        edge_key = problem.edge_tensor.astype(np.int64) * count + target
        sent_key = sent.tensor.astype(np.int64) * count + sent.target
    else:
        edge_key = problem.edge_tensor.astype(np.int64) * problem.op_count + problem.consumers
        sent_key = sent.tensor.astype(np.int64) * problem.op_count + sent.consumer
    remote = np.flatnonzero(device[problem.edge_producer] != target)
    order = np.argsort(sent_key, kind="stable")
    at = np.searchsorted(sent_key[order], edge_key[remote])
    serving = order[np.minimum(at, max(len(order) - 1, 0))] if len(order) else at
    if len(serving) and (len(order) == 0 or (sent_key[serving] != edge_key[remote]).any()):
        raise VerificationError(
            f"the plan for '{problem.name}' lacks a transfer between two devices; plan it again"
        )
    edge_start = np.full(problem.edge_count, NOT_SENT)
    edge_finish = np.full(problem.edge_count, NOT_SENT)
    edge_finish[remote] = sent.finish[serving]
    _, first = np.unique(edge_key[remote], return_index=True)
    edge_start[remote[first]] = sent.start[serving[first]]
    return sequence_of(
        problem, *_in_step(problem, schedule, edge_start, edge_finish), edge_start, edge_finish
    )


def _in_step(
    problem: Problem, schedule: Schedule, edge_start: Floats, edge_finish: Floats
) -> tuple[Floats, Floats]:
    """Starts and finishes of ops, no start before an input is there, not by a rounding error.

    A schedule may be off by rounding where it was written by hand; its order must not be.
    """
    start, finish = schedule.op_start.copy(), schedule.op_finish.copy()
    local = edge_finish < 0
    there = np.where(local, finish[problem.edge_producer], edge_finish)
    early = (there > start[problem.consumers]).any()
    early |= ((edge_start >= 0) & (edge_start < finish[problem.edge_producer])).any()
    if not early:
        return start, finish
    offsets, inputs = problem.op_inputs
    for op in problem.topological_order.tolist():
        for edge in inputs[offsets[op] : offsets[op + 1]].tolist():
            ready = finish[problem.edge_producer[edge]]
            if not local[edge]:
                if edge_start[edge] >= 0:
                    edge_start[edge] = max(edge_start[edge], ready)
                edge_finish[edge] = max(edge_finish[edge], ready, edge_start[edge])
                ready = edge_finish[edge]
            start[op] = max(start[op], ready)
        finish[op] = max(finish[op], start[op])
    return start, finish


def _transfers(
    problem: Problem, device: Ints, edge_start: Floats, edge_finish: Floats
) -> Transfers:
    sent = np.flatnonzero(edge_start >= 0)
    sent = sent[np.argsort(edge_start[sent], kind="stable")]
    consumer = problem.consumers[sent]
    by_tensor = problem.options.transfer_unit == "tensor"
    return Transfers(
        tensor=given_up(problem.edge_tensor[sent]),
        consumer=given_up(np.full(len(sent), -1, dtype=np.int32) if by_tensor else consumer),
        source=given_up(device[problem.edge_producer[sent]]),
        target=given_up(device[consumer]),
        start=given_up(edge_start[sent]),
        finish=given_up(edge_finish[sent]),
    )
