"""What plans for ``batch-throughput`` show: the batches of each device, and their sizes."""

from __future__ import annotations

import numpy as np

from placewright.outcome import BatchSchedule
from placewright.plan import Plan
from placewright.report.html.drawing import (
    OP,
    TRANSFER,
    Drawing,
    Slices,
    Timeline,
    device_tracks,
    joined,
    link_tracks,
    transferred,
)


def drawing(plan: Plan) -> Drawing:
    schedule, problem = _schedule(plan), plan.problem
    batches, moves = schedule.batches, schedule.transfers
    seconds = np.bincount(batches.op, batches.finish - batches.start, problem.op_count)
    size = problem.tensor_bytes[moves.tensor] * moves.inputs
    return Drawing(
        op_seconds=seconds.astype(np.float64),
        limits=_limits(plan),
        columns=transferred(plan, moves.source, moves.target, size),
        timeline=_timeline(plan),
    )


def _schedule(plan: Plan) -> BatchSchedule:
    assert isinstance(plan.outcome, BatchSchedule)
    return plan.outcome


def _timeline(plan: Plan) -> Timeline:
    schedule, problem = _schedule(plan), plan.problem
    batches, moves = schedule.batches, schedule.transfers
    devices = device_tracks(plan)
    links, number = link_tracks(plan, moves.source, moves.target, len(devices))
    ran = Slices(
        track=batches.device,
        kind=np.full(len(batches), OP),
        start=batches.start,
        finish=batches.finish,
        item=batches.op,
        amount=batches.size,
        critical=np.zeros(len(batches), dtype=np.bool_),
    )
    sent = Slices(
        track=number,
        kind=np.full(len(moves), TRANSFER),
        start=moves.start,
        finish=moves.finish,
        item=problem.tensor_producer[moves.tensor],
        amount=problem.tensor_bytes[moves.tensor] * moves.inputs,
        critical=np.zeros(len(moves), dtype=np.bool_),
    )
    return Timeline([*devices, *links], joined(ran, sent), sized=True)


def _limits(plan: Plan) -> list[str]:
    """The device that is busy longest, and its batches."""
    load = plan.device_load
    if not load.any() or not plan.value:
        return []
    device = int(np.argmax(load))
    sizes = _schedule(plan).batches.size[_schedule(plan).batches.device == device]
    name = plan.problem.device_names[device]
    mean = float(sizes.mean())
    return [
        f"{name} is busiest: {load[device] / plan.value:.0%} of the time, with batches of "
        f"{mean:.3g} inputs on average."
    ]
