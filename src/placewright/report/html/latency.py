"""What plans for ``latency`` show: the schedule, its critical path, memory over time."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from placewright.analysis.waiting import Step, critical_path
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
from placewright.report.html.memory import memory_record
from placewright.units import format_seconds, listed

NAMED = 3  # shares of the critical path that are named
LEAST = 0.005  # of the path: a share that is named


def drawing(plan: Plan) -> Drawing:
    schedule, problem = plan.schedule, plan.problem
    moves = schedule.transfers
    path = critical_path(plan)
    size = problem.tensor_bytes[moves.tensor]
    return Drawing(
        op_seconds=schedule.op_finish - schedule.op_start,
        limits=_limits(plan, path),
        columns=transferred(plan, moves.source, moves.target, size),
        timeline=_timeline(plan, path),
        parts={"memory": memory_record(plan)},
    )


def _timeline(plan: Plan, path: list[Step]) -> Timeline:
    schedule, problem = plan.schedule, plan.problem
    moves, count = schedule.transfers, problem.op_count
    devices = device_tracks(plan)
    links, number = link_tracks(plan, moves.source, moves.target, len(devices))
    steps = [step.item + (count if step.is_transfer else 0) for step in path]
    critical = np.zeros(count + len(moves), dtype=np.bool_)
    critical[steps] = True
    ops = Slices(
        track=plan.placement.device,
        kind=np.full(count, OP),
        start=schedule.op_start,
        finish=schedule.op_finish,
        item=np.arange(count),
        amount=np.zeros(count),
        critical=critical[:count],
    )
    sent = Slices(
        track=number,
        kind=np.full(len(moves), TRANSFER),
        start=moves.start,
        finish=moves.finish,
        item=problem.tensor_producer[moves.tensor],
        amount=problem.tensor_bytes[moves.tensor],
        critical=critical[count:],
    )
    return Timeline([*devices, *links], joined(ops, sent), steps)


def _limits(plan: Plan, path: list[Step]) -> list[str]:
    """How the critical path spends its time: by device and link, and in waiting."""
    shares = _path_seconds(plan, path)
    total = plan.value
    if not total:
        return []
    ranked = sorted(shares.items(), key=lambda each: -each[1])
    shown = [f"{seconds / total:.0%} {what}" for what, seconds in ranked if seconds > LEAST * total]
    return [f"The critical path of {format_seconds(total)} is {listed(shown[:NAMED])}."]


def _path_seconds(plan: Plan, path: list[Step]) -> dict[str, float]:
    schedule, names = plan.schedule, plan.problem.device_names
    moves, found = schedule.transfers, defaultdict[str, float](float)
    for is_transfer, item in path:
        if is_transfer:
            ends = names[int(moves.source[item])], names[int(moves.target[item])]
            found[f"transfers {ends[0]} → {ends[1]}"] += moves.finish[item] - moves.start[item]
        else:
            where = names[int(plan.placement.device[item])]
            found[f"computing on {where}"] += schedule.op_finish[item] - schedule.op_start[item]
    found["waiting"] = plan.value - sum(found.values())
    return found
