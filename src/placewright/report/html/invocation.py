"""What plans for ``invocation-latency`` show: accelerators' invocations, and their subgraphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from placewright.outcome import Invocations, InvocationTable
from placewright.plan import Plan
from placewright.report.html.drawing import (
    COMPUTING,
    OP,
    READING,
    WRITING,
    DeviceColumn,
    Drawing,
    Slices,
    Timeline,
    device_tracks,
    joined,
)


def drawing(plan: Plan) -> Drawing:
    problem, table = plan.problem, _outcome(plan).invocations
    ops = np.arange(problem.op_count)
    times = np.bincount(table.device, minlength=problem.device_count)
    return Drawing(
        op_seconds=problem.op_time[ops, plan.placement.device],
        limits=_limits(plan),
        columns=[DeviceColumn("invoked", "count", times)],
        timeline=_timeline(plan),
        parts={"subgraphs": _record(plan)},
    )


def _outcome(plan: Plan) -> Invocations:
    assert isinstance(plan.outcome, Invocations)
    return plan.outcome


def _timeline(plan: Plan) -> Timeline:
    """Per accelerator the parts of each invocation; per CPU its ops, of which many run at once."""
    table = _outcome(plan).invocations
    incoming = table.start + table.incoming
    compute = incoming + table.compute
    return Timeline(
        device_tracks(plan),
        joined(
            _on_cpus(plan),
            _parts(table, READING, table.start, incoming),
            _parts(table, COMPUTING, incoming, compute),
            _parts(table, WRITING, compute, compute + table.outgoing),
        ),
    )


def _parts(table: InvocationTable, kind: int, start: Any, finish: Any) -> Slices:
    lasting = finish > start
    count = int(lasting.sum())
    return Slices(
        track=table.device[lasting],
        kind=np.full(count, kind),
        start=start[lasting],
        finish=finish[lasting],
        item=table.subgraph[lasting],
        amount=np.zeros(count),
        critical=np.zeros(count, dtype=np.bool_),
    )


def _on_cpus(plan: Plan) -> Slices:
    problem, device = plan.problem, plan.placement.device
    ops = np.flatnonzero(problem.is_cpu[device])
    finish = _outcome(plan).op_finish[ops]
    return Slices(
        track=device[ops],
        kind=np.full(len(ops), OP),
        start=finish - problem.op_time[ops, device[ops]],
        finish=finish,
        item=ops,
        amount=np.zeros(len(ops)),
        critical=np.zeros(len(ops), dtype=np.bool_),
    )


def _record(plan: Plan) -> list[dict[str, Any]]:
    """A row per invocation, as they start: its subgraph, its parts in seconds, its ops."""
    table = _outcome(plan).invocations
    rows = []
    for row in np.lexsort((table.device, table.start)).tolist():
        ops = plan.placement.subgraph_ops(int(table.device[row]), int(table.subgraph[row]))
        names = plan.problem.op_names
        rows.append(
            {
                "device": int(table.device[row]),
                "subgraph": int(table.subgraph[row]),
                "ops": len(ops),
                "first": names[ops[0]] if len(ops) else "",
                "last": names[ops[-1]] if len(ops) else "",
                **{
                    name: float(getattr(table, name)[row])
                    for name in ("start", "incoming", "compute", "outgoing")
                },
            }
        )
    return rows


def _limits(plan: Plan) -> list[str]:
    """How much of the time of all invocations moves data in and out of host memory."""
    table = _outcome(plan).invocations
    moving = float(table.incoming.sum() + table.outgoing.sum())
    total = moving + float(table.compute.sum())
    if not total:
        return []
    return [
        f"{moving / total:.0%} of the time of its invocations moves tensors between host memory "
        "and accelerators."
    ]
