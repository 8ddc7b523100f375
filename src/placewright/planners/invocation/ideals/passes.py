"""What of a problem is planned by itself: all of it, or each pass; and the rest afterwards.

Ops left out never make a bound wrong: a plan of the whole has a plan of the others inside, whose
subgraphs are contiguous and wait for no more than before, so it takes no longer. Left out are ops
that take no time and are not between two that do.

A backward pass may be the forward pass turned round: then an accelerator's two subgraphs hold the
same nodes, and those of both passes wait for each other in the same order, turned round; the
latency is the sum of both, and one order is found for them together. Otherwise each pass is planned
by itself, the forward pass without what no backward op waits for: the backward pass begins when
that is over, so the sum of the bounds is one of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import and_

import numpy as np

from placewright.analysis.contracted import ContractedGraph, contracted_graph
from placewright.analysis.precedence import Precedence, leading
from placewright.analysis.subproblem import Subproblem, subproblem
from placewright.graph import Flags, Floats, Wide
from placewright.kernels.invocation.timing import READS, WRITES
from placewright.problem import ROUNDING, Problem, once_per_problem


@once_per_problem
def parts_of(problem: Problem) -> list[Subproblem]:
    """The parts whose latencies add up, each as a problem without passes if it is one pass."""
    return _parts(problem, _needed)


@once_per_problem
def whole_parts_of(problem: Problem) -> list[Subproblem]:
    """The same with nothing left out that could be in a part."""
    return _parts(problem, lambda _, chosen: chosen)


def _parts(problem: Problem, needed: Callable[[Problem, Flags], Flags]) -> list[Subproblem]:
    back = problem.is_backward
    if not back.any():
        return [_part(problem, needed(problem, ~back))]
    if _turned_round(problem, contracted_graph(problem)):
        return [_all(problem)]
    second = needed(problem, back)
    first = ~back & _leads_to_all(problem, second)
    return [_part(problem, ops) for ops in (needed(problem, first), second) if ops.any()]


def _all(problem: Problem) -> Subproblem:
    ops = np.arange(problem.op_count, dtype=np.int32)
    return Subproblem(problem, ops, np.arange(len(problem.consumers), dtype=np.int32))


def _part(problem: Problem, chosen: Flags) -> Subproblem:
    if chosen.all():
        return _all(problem)
    part = subproblem(problem, np.flatnonzero(chosen).astype(np.int32))
    forward = np.zeros(len(part.ops), dtype=np.bool_)
    time = part.problem.op_time + _between_passes(problem, chosen)[part.ops]
    return replace(part, problem=replace(part.problem, is_backward=forward, op_time=time))


def _between_passes(problem: Problem, chosen: Flags) -> Floats:
    """`[op, device]` seconds at least for what crosses to the other pass and back.

    It goes through host memory on whatever devices. Each chosen op that reads a tensor of the other
    pass has its share of one time that it is read; one whose output only the other pass reads pays
    for writing it.
    """
    seconds = np.zeros(problem.op_time.shape)
    back, read, write = problem.is_backward, *_host_times(problem)
    for tensor, producer in enumerate(problem.tensor_producer.tolist()):
        first, last = problem.consumer_offsets[tensor : tensor + 2]
        readers = np.unique(problem.consumers[first:last])
        there = back[readers] != back[producer]
        if not chosen[producer]:
            mine = readers[there & chosen[readers]]
            seconds[mine] += read[tensor] / max(1, len(mine))
        elif there.any() and not chosen[readers].any():
            seconds[producer] += write[tensor]
    return seconds


def _host_times(problem: Problem) -> list[Floats]:
    """`[tensor, device]` seconds of reading and of writing."""
    size = problem.tensor_bytes[:, None]
    return [
        np.where(
            problem.is_cpu,
            0.0,
            problem.host_latency[way] + size * problem.host_seconds_per_byte[way],
        )
        for way in (READS, WRITES)
    ]


def _needed(problem: Problem, chosen: Flags) -> Flags:
    """Those chosen that take time or are between two that do; all, if none does."""
    busy: Flags = chosen & (problem.op_time != 0.0).any(axis=1)
    if not busy.any():
        return chosen
    leads, led = busy.copy(), busy.copy()
    offsets, edges = problem.op_inputs
    before = [
        problem.edge_producer[edges[offsets[op] : offsets[op + 1]]]
        for op in range(problem.op_count)
    ]
    for op in problem.topological_order.tolist():
        led[op] |= chosen[op] and bool(led[before[op]].any())
    for op in problem.topological_order[::-1].tolist():
        if leads[op]:
            leads[before[op]] |= chosen[before[op]]
    return leads & led


def _turned_round(problem: Problem, graph: ContractedGraph) -> bool:
    """Whether the backward pass is the forward pass turned round, and begins when that is over."""
    back = problem.is_backward
    both = [np.bincount(graph.op_node[back == way], minlength=graph.node_count) for way in (0, 1)]
    if not (both[0].all() and both[1].all()):
        return False
    source, target = graph.op_node[problem.edge_producer], graph.op_node[problem.consumers]
    forward = ~back[problem.edge_producer] & ~back[problem.consumers]
    backward = back[problem.edge_producer] & back[problem.consumers]
    one = leading(graph.node_count, source[forward], target[forward])
    other = leading(graph.node_count, target[backward], source[backward])
    return np.array_equal(one, other) and bool(_leads_to_all(problem, back)[~back].all())


def _leads_to_all(problem: Problem, targets: Flags) -> Flags:
    """`[op]` whether it leads to each of the targets."""
    precedence = Precedence(problem)
    common = reduce(and_, (precedence.before[op] for op in np.flatnonzero(targets).tolist()))
    found = np.zeros(problem.op_count, dtype=np.bool_)
    found[precedence.members(common)] = True
    return found


def completed(problem: Problem, device: Wide, rank: Wide) -> Wide | None:
    """`[op]` devices, with the ops left out (-1) beside others of their pass.

    ``rank[pass, device]`` rises in the order in which the devices are done, from 1; 0 where there
    is nothing. An op is where the last of what it reads is made, or later; if it reads nothing,
    where it is read first, or earlier. So subgraphs stay contiguous. Ops of a unit stay together.
    None if there is no room for one.
    """
    device = device.copy()
    unit_device = np.full(problem.unit_count, -1)
    unit_device[problem.op_unit[device >= 0]] = device[device >= 0]
    placed = unit_device >= 0
    free = problem.device_memory - np.bincount(
        unit_device[placed], problem.unit_memory[placed], problem.device_count
    )
    before, after = _neighbours(problem)
    order = problem.topological_order.tolist()
    for beside, ops, later in ((before, order, True), (after, order[::-1], False)):
        for op in ops:
            there = [each for each in device[beside[op]].tolist() if each >= 0]
            if device[op] >= 0 or (later and not there):  # it may have a reader
                continue
            unit, mine = int(problem.op_unit[op]), rank[int(problem.is_backward[op])]
            if unit_device[unit] < 0:
                key = np.where(mine == 0, len(mine) + 1, mine if later else -mine)
                chosen = _first_with_room(problem, unit, key, there, free)
                if chosen is None:
                    return None
                unit_device[unit] = chosen
                free[chosen] -= problem.unit_memory[unit]
            device[op] = unit_device[unit]
    return device


def _first_with_room(
    problem: Problem, unit: int, rank: Wide, there: list[int], free: Floats
) -> int | None:
    """The first device by rank, from the last of those given on, or a CPU, that may have it."""
    least = max((int(rank[each]) for each in there), default=-problem.device_count)
    room = free + ROUNDING * problem.device_memory
    may_have = problem.unit_allowed[unit] & (problem.unit_memory[unit] <= room)
    choices = np.flatnonzero(may_have & ((rank >= least) | problem.is_cpu)).tolist()
    several = len({*there}) > 1  # one of them would wait for the others

    def order(device: int) -> tuple[bool, int, bool]:
        return several and device in there, int(rank[device]), device not in there

    return min(choices, key=order, default=None)


def _neighbours(problem: Problem) -> tuple[list[list[int]], list[list[int]]]:
    """`[op]` the ops of its pass whose outputs it reads, and those that read its own."""
    before: list[list[int]] = [[] for _ in range(problem.op_count)]
    after: list[list[int]] = [[] for _ in range(problem.op_count)]
    back = problem.is_backward
    for producer, consumer in zip(
        problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True
    ):
        if back[producer] == back[consumer]:
            before[consumer].append(producer)
            after[producer].append(consumer)
    return before, after
