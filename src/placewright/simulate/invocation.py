"""Latency where accelerators are invoked for whole subgraphs (Tarnawski et al. 2020, §4).

An accelerator holds subgraphs; it is invoked for one when all of its inputs are in host memory
and the one before has ended, reads them, computes its ops, and writes what others read, without
a break. Every tensor that crosses is written once and read once per invocation that reads it. An
op on a CPU starts as soon as its inputs are in host memory: there are as many CPUs as it takes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from placewright.errors import GraphError
from placewright.graph import Floats, Wide
from placewright.outcome import Invocations, InvocationTable
from placewright.plan import Placement
from placewright.problem import Problem

Slot = tuple[int, int]
"""An accelerator, and the number of its invocation."""


def invoke(problem: Problem, placement: Placement) -> Invocations:
    """When each subgraph is invoked, and each output is in host memory.

    GraphError if the subgraphs wait for each other in a circle, so that no order can run them.
    """
    steps = _Steps(problem, placement)
    op_seconds = problem.op_time[np.arange(problem.op_count), placement.device]
    computing = steps.computing([op_seconds])
    start, finish = (each[:, 0] for each in steps.run(computing))
    invoked = slice(len(steps.device))
    table = InvocationTable(
        device=steps.device.astype(np.int32),
        subgraph=steps.subgraph.astype(np.int32),
        start=start[invoked],
        incoming=steps.incoming[invoked],
        compute=computing[invoked, 0],
        outgoing=steps.outgoing[invoked],
    )
    return Invocations(finish[steps.of_op], table)


def sampled_values(problem: Problem, placement: Placement, op_seconds: Iterable[Floats]) -> Floats:
    """`[sample]` the latency of a placement, were ops to take such seconds.

    A sample is ``[op]``, the seconds of every op where it is placed. Transfers take what the
    problem says.
    """
    steps = _Steps(problem, placement)
    _, finish = steps.run(steps.computing(op_seconds))
    values: Floats = finish.max(axis=0)
    return values


def op_slots(problem: Problem, placement: Placement) -> list[Slot | None]:
    """Per op the invocation it belongs to, or None on a CPU.

    A placement without subgraphs has one per accelerator, and in training one per pass.
    """
    number = _numbers(problem, placement)
    return [
        None if problem.is_cpu[device] else (int(device), int(number[op]))
        for op, device in enumerate(placement.device)
    ]


def _numbers(problem: Problem, placement: Placement) -> Wide:
    """`[op]` that of its invocation on its accelerator."""
    number = problem.is_backward if placement.subgraph is None else placement.subgraph
    return number.astype(np.int64)


class _Steps:
    """What runs without a break: first the invocations, by device and number, then ops on CPUs.

    `of_op[op]` is an op's step; `device` and `subgraph` are those of the invocations, `incoming`
    and `outgoing` the seconds that each step reads and writes host memory.
    """

    def __init__(self, problem: Problem, placement: Placement) -> None:
        on_cpu = problem.is_cpu[placement.device]
        number = _numbers(problem, placement)
        width = int(number.max(initial=0)) + 1
        key = placement.device.astype(np.int64) * width + number
        slots, invocation = np.unique(key[~on_cpu], return_inverse=True)
        self.device, self.subgraph = np.divmod(slots, width)
        self.count = len(slots) + int(on_cpu.sum())
        self.of_op = np.empty(problem.op_count, dtype=np.int64)
        self.of_op[~on_cpu] = invocation
        self.of_op[on_cpu] = np.arange(len(slots), self.count)
        self._transfer(problem)
        self._order(problem)

    def _transfer(self, problem: Problem) -> None:
        """Add up what each invocation reads and writes, tensor by tensor."""
        source, target = self.of_op[problem.edge_producer], self.of_op[problem.consumers]
        crosses, invocations = source != target, len(self.device)
        tensor = problem.edge_tensor.astype(np.int64)
        written = np.unique(tensor[crosses & (source < invocations)])
        read = np.unique((tensor * self.count + target)[crosses & (target < invocations)])
        self.outgoing, self.incoming = np.zeros(self.count), np.zeros(self.count)
        latency, rate = problem.host_latency, problem.host_seconds_per_byte
        for way, total, sent, step in (
            (0, self.outgoing, written, self.of_op[problem.tensor_producer[written]]),
            (1, self.incoming, *np.divmod(read, self.count)),
        ):
            device = self.device[step]
            seconds = latency[way, device] + problem.tensor_bytes[sent] * rate[way, device]
            np.add.at(total, step, seconds)

    def _order(self, problem: Problem) -> None:
        """Find an order in which the steps can run, and what each of them waits for.

        The invocations of an accelerator come in the order of their numbers.
        """
        import rustworkx as rx

        source, target = self.of_op[problem.edge_producer], self.of_op[problem.consumers]
        same = np.flatnonzero(self.device[1:] == self.device[:-1])
        arcs = np.concatenate((target * self.count + source, (same + 1) * self.count + same))
        target, source = np.divmod(np.unique(arcs), self.count)
        target, source = target[source != target], source[source != target]
        digraph = rx.PyDiGraph()
        digraph.add_nodes_from(range(self.count))
        digraph.add_edges_from_no_data(list(zip(source.tolist(), target.tolist(), strict=True)))
        try:
            self.order = list(rx.topological_sort(digraph))
        except rx.DAGHasCycle:
            raise GraphError(
                "the subgraphs of this placement wait for each other in a circle; they must be "
                "contiguous, and those of an accelerator in an order that data can follow"
            ) from None
        self.awaited = np.split(source, np.searchsorted(target, np.arange(1, self.count)))

    def computing(self, op_seconds: Iterable[Floats]) -> Floats:
        """`[step, sample]` seconds, of samples ``[op]``."""
        return np.stack(
            [np.bincount(self.of_op, each, minlength=self.count) for each in op_seconds], axis=1
        )

    def run(self, computing: Floats) -> tuple[Floats, Floats]:
        """`[step, sample]` when each step starts and ends."""
        seconds = self.incoming[:, None] + computing + self.outgoing[:, None]
        start, finish = np.zeros_like(seconds), np.zeros_like(seconds)
        for step in self.order:
            finish[self.awaited[step]].max(axis=0, initial=0.0, out=start[step])
            finish[step] = start[step] + seconds[step]
        return start, finish
