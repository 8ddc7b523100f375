"""A plan for invocation latency in a trace: the parts of each invocation, and the ops of CPUs.

A CPU runs ops side by side, as many as are ready, so it has a track for each of them. Tensors go
through host memory, where they wait for whoever reads them.
"""

from __future__ import annotations

import numpy as np

from placewright.exporters.perfetto.events import Process, Slice
from placewright.exporters.perfetto.lanes import lanes
from placewright.exporters.perfetto.schedule import op_args
from placewright.outcome import Invocations
from placewright.plan import Plan

PARTS = {"incoming": "reads", "compute": "computes", "outgoing": "writes"}


def planned_invocations(number: int, plan: Plan, found: Invocations) -> Process:
    """A track per accelerator, and as many per CPU as ops run there at once."""
    process = Process(number, "planned")
    for device, name in enumerate(plan.problem.device_names):
        if plan.problem.is_cpu[device]:
            _add_ops(process, plan, found, device)
        else:
            _add_invocations(process, plan, found, device, process.track(name))
    return process


def _add_ops(process: Process, plan: Plan, found: Invocations, device: int) -> None:
    problem, ops = plan.problem, plan.device_ops[device]
    seconds = problem.op_time[ops, device]
    finish = found.op_finish[ops]
    spans = list(zip((finish - seconds).tolist(), finish.tolist(), strict=True))
    tracks = lanes(process, problem.device_names[device], spans)
    for op, track, (start, end) in zip(ops.tolist(), tracks, spans, strict=True):
        args, rank = op_args(problem, op, end - start), float(problem.topological_rank[op])
        process.add(Slice(track, problem.op_names[op], "op", start, end, args, rank))


def _add_invocations(
    process: Process, plan: Plan, found: Invocations, device: int, track: int
) -> None:
    table = found.invocations
    for row in np.flatnonzero(table.device == device).tolist():
        number = int(table.subgraph[row])
        ops = plan.placement.subgraph_ops(device, number)
        names = [plan.problem.op_names[op] for op in ops]
        said = {"ops": len(names), "first": names[0], "last": names[-1]} if names else {}
        start = float(table.start[row])
        for part, does in PARTS.items():
            seconds = float(getattr(table, part)[row])
            if seconds > 0:
                name = f"subgraph {number + 1} {does}"
                args = {"subgraph": number + 1, **said, "planned seconds": seconds}
                process.add(Slice(track, name, does, start, start + seconds, args))
            start += seconds
