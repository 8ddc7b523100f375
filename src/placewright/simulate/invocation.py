"""Latency where accelerators are invoked for whole subgraphs (Tarnawski et al. 2020, §4).

An accelerator holds subgraphs; it is invoked for one when all of its inputs are in host memory
and the one before has ended, reads them, computes its ops, and writes what others read, without
a break. Every tensor that crosses is written once and read once per invocation that reads it. An
op on a CPU starts as soon as its inputs are in host memory: there are as many CPUs as it takes.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np

from placewright.errors import GraphError
from placewright.graph import Floats
from placewright.outcome import Invocations, InvocationTable
from placewright.plan import Placement
from placewright.problem import Problem

Slot = tuple[int, int]
"""An accelerator, and the number of its invocation."""


def invoke(problem: Problem, placement: Placement) -> Invocations:
    """When each subgraph is invoked, and each output is in host memory.

    GraphError if the subgraphs wait for each other in a circle, so that no order can run them.
    """
    slots = op_slots(problem, placement)
    parts = invocation_parts(problem, slots)
    op_finish = np.zeros(problem.op_count)
    start: dict[Slot, float] = {}
    free: dict[int, float] = defaultdict(float)
    op_inputs, edges = problem.op_inputs
    for step in _steps(problem, slots):
        ops = step if isinstance(step, list) else [step]
        inputs = [
            float(op_finish[problem.edge_producer[edge]])
            for op in ops
            for edge in edges[op_inputs[op] : op_inputs[op + 1]]
            if slots[problem.edge_producer[edge]] is None
            or slots[problem.edge_producer[edge]] != slots[op]
        ]
        ready = max(inputs, default=0.0)
        slot = slots[ops[0]]
        if slot is None:
            op_finish[ops[0]] = ready + problem.op_time[ops[0], placement.device[ops[0]]]
            continue
        start[slot] = max(ready, free[slot[0]])
        free[slot[0]] = start[slot] + float(parts[slot].sum())
        op_finish[ops] = free[slot[0]]
    order = sorted(start)
    table = InvocationTable(
        device=np.array([slot[0] for slot in order], dtype=np.int32),
        subgraph=np.array([slot[1] for slot in order], dtype=np.int32),
        start=np.array([start[slot] for slot in order]),
        incoming=np.array([parts[slot][0] for slot in order]),
        compute=np.array([parts[slot][1] for slot in order]),
        outgoing=np.array([parts[slot][2] for slot in order]),
    )
    return Invocations(op_finish, table)


def op_slots(problem: Problem, placement: Placement) -> list[Slot | None]:
    """Per op the invocation it belongs to, or None on a CPU.

    A placement without subgraphs has one per accelerator, and in training one per pass.
    """
    number = placement.subgraph
    if number is None:
        number = problem.is_backward.astype(np.int32)
    return [
        None if problem.is_cpu[device] else (int(device), int(number[op]))
        for op, device in enumerate(placement.device)
    ]


def invocation_parts(problem: Problem, slots: list[Slot | None]) -> dict[Slot, Floats]:
    """Seconds of reading inputs, computing and writing outputs, for each invocation."""
    parts: dict[Slot, Floats] = defaultdict(lambda: np.zeros(3))
    for op, slot in enumerate(slots):
        if slot is not None:
            parts[slot][1] += problem.op_time[op, slot[0]]
    for tensor, producer in enumerate(problem.tensor_producer.tolist()):
        home = slots[producer]
        begin, end = problem.consumer_offsets[tensor : tensor + 2]
        readers = [slots[op] for op in problem.consumers[begin:end].tolist()]
        size = problem.tensor_bytes[tensor]
        cost = problem.host_latency + size * problem.host_seconds_per_byte
        if home is not None and any(reader != home for reader in readers):
            parts[home][2] += cost[0, home[0]]
        for reader in dict.fromkeys(readers):
            if reader is not None and reader != home:
                parts[reader][0] += cost[1, reader[0]]
    return parts


def _steps(problem: Problem, slots: list[Slot | None]) -> list[int | list[int]]:
    """CPU ops and whole subgraphs in an order in which they can run.

    The subgraphs of an accelerator come in the order of their numbers.
    """
    import rustworkx as rx

    members: dict[Slot, list[int]] = defaultdict(list)
    for op, slot in enumerate(slots):
        if slot is not None:
            members[slot].append(op)
    steps: list[int | list[int]] = [op for op, slot in enumerate(slots) if slot is None]
    number = {op: place for place, op in enumerate(steps) if isinstance(op, int)}
    by_device: dict[int, list[int]] = defaultdict(list)
    for slot in sorted(members):
        for op in members[slot]:
            number[op] = len(steps)
        by_device[slot[0]].append(len(steps))
        steps.append(members[slot])
    digraph = rx.PyDiGraph()
    digraph.add_nodes_from(range(len(steps)))
    ends = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    joined = {(number[a], number[b]) for a, b in ends if number[a] != number[b]}
    for row in by_device.values():
        joined.update(pairwise(row))
    digraph.add_edges_from_no_data(sorted(joined))
    try:
        return [steps[place] for place in rx.topological_sort(digraph)]
    except rx.DAGHasCycle:
        raise GraphError(
            "the subgraphs of this placement wait for each other in a circle; they must be "
            "contiguous, and those of an accelerator in an order that data can follow"
        ) from None
