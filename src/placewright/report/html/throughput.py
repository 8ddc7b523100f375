"""What plans for ``throughput`` show: what a stage computes, takes in and gives out per input; of
steps of micro-batches also when its passes are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from placewright.outcome import BACKWARD, FORWARD, Loads
from placewright.plan import Plan
from placewright.report.html.drawing import (
    PASS,
    PASS_BACK,
    DeviceColumn,
    Drawing,
    Slices,
    Timeline,
    device_tracks,
)
from placewright.simulate.step_passes import step_passes

PARTS = {
    "forward": "computes forward",
    "backward": "computes backward",
    "incoming": "takes tensors in",
    "outgoing": "gives tensors out",
    "adding up gradients": "adds up gradients",
}
"""What a device does, and that as a verb."""


def drawing(plan: Plan) -> Drawing:
    problem, loads = plan.problem, _loads(plan)
    ops = np.arange(problem.op_count)
    return Drawing(
        op_seconds=problem.op_time[ops, plan.placement.device],
        limits=_limits(plan),
        columns=[
            DeviceColumn("in", "seconds", loads.incoming.sum(axis=0)),
            DeviceColumn("out", "seconds", loads.outgoing.sum(axis=0)),
        ],
        timeline=None if loads.step is None else _timeline(plan),
        parts={"loads": _record(plan)},
    )


def _loads(plan: Plan) -> Loads:
    assert isinstance(plan.outcome, Loads)
    return plan.outcome


def _timeline(plan: Plan) -> Timeline:
    """The passes of a step, a track per stage along the data."""
    passes, row = step_passes(plan), plan.placement.row
    tracks = device_tracks(plan)
    count = len(passes)
    return Timeline(
        [tracks[device] for device in row],
        Slices(
            track=passes.stage,
            kind=np.where(passes.way == FORWARD, PASS, PASS_BACK),
            start=passes.start,
            finish=passes.finish,
            item=passes.micro_batch,
            amount=np.zeros(count),
            critical=np.zeros(count, dtype=np.bool_),
        ),
    )


def _record(plan: Plan) -> dict[str, Any]:
    """`parts[part][stage]` seconds per input of those that are not nothing; stages along the data.

    `sums` says whether a load is the sum of its parts, `step` whether inputs are the micro-batches
    of a step.
    """
    stages = _stages(plan)
    seconds = _seconds(plan)
    return {
        "devices": stages,
        "load": _loads(plan).load[stages].tolist(),
        "sums": plan.problem.options.load == "sum",
        "way": plan.problem.options.load,
        "step": _loads(plan).step is not None,
        "parts": [
            {"name": name, "seconds": column[stages].tolist()}
            for name, column in seconds.items()
            if column.any()
        ],
        "replicas": [list(stage) for stage in plan.placement.replicas],
        "shares": [list(stage) for stage in plan.placement.replica_shares],
    }


def _seconds(plan: Plan) -> dict[str, Any]:
    """What a device does → `[device]` seconds per input."""
    loads = _loads(plan)
    columns = (
        loads.compute[FORWARD],
        loads.compute[BACKWARD],
        loads.incoming.sum(axis=0),
        loads.outgoing.sum(axis=0),
        loads.sync,
    )
    return dict(zip(PARTS, columns, strict=True))


def _stages(plan: Plan) -> list[int]:
    """The devices at work, by the middle of their forward ops along the data."""
    rank, forward = plan.problem.topological_rank, ~plan.problem.is_backward
    middle = {}
    for device, ops in enumerate(plan.device_ops):
        if len(ops):
            ahead = ops[forward[ops]] if forward[ops].any() else ops
            middle[device] = float(np.median(rank[ahead]))
    return sorted(middle, key=lambda device: middle[device])


def _limits(plan: Plan) -> list[str]:
    """The device with the largest load, and what takes most of it; how long a step has none."""
    load, step = _loads(plan).load, _loads(plan).step
    if not load.any():
        return []
    device = int(np.argmax(load))
    parts = {name: float(column[device]) for name, column in _seconds(plan).items()}
    most = max(parts, key=lambda name: parts[name])
    total = sum(parts.values())
    share = parts[most] / total if total else 0.0
    name = plan.problem.device_names[device]
    slowest = f"The slowest stage is on {name}: it {PARTS[most]} for {share:.0%} of what it does."
    if step is None:
        return [slowest]
    options = plan.problem.options
    shared = "" if options.data_parallel == 1 else f" in {options.data_parallel} pipelines"
    idle = (
        f"Devices are idle for {step.idle.mean():.0%} of a step of {options.micro_batches} "
        f"micro-batches{shared}, while the pipeline fills and drains."
    )
    return [slowest, idle]
