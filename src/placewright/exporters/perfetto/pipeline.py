"""A plan for throughput in a trace: one period of its pipeline, once that is full.

In a period, which is as long as the plan's value, each device does all that it has per input: it
takes tensors in, runs its ops, gives tensors out, each time for the input that is there. So slices
of different devices belong to different inputs, and no arrows join them. Of a stage with replicas
each device has its share. What overlaps under the option `load` has a track of its own; under
`gpipe` the backward passes begin together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from placewright.exporters.perfetto.events import Process, Slice
from placewright.exporters.perfetto.schedule import op_args
from placewright.options import Options
from placewright.outcome import BACKWARD, FORWARD, Loads
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.simulate.throughput import combined
from placewright.simulate.transfers import Stages, Transfer, transfers_of

IN, OP, OUT, SYNC = "in", "op", "out", "sync"
TRACKS = {
    "sum": {IN: "", OP: "", OUT: "", SYNC: ""},
    "overlap": {IN: " transfers", OP: "", OUT: " transfers", SYNC: " gradients"},
    "duplex": {IN: " in", OP: "", OUT: " out", SYNC: " gradients"},
}
"""The option `load` → what is done → what its track is called after the device's name."""


@dataclass(frozen=True)
class _Task:
    """What a device does per input, in a pass, for `seconds`."""

    device: int
    way: int
    kind: str
    name: str
    seconds: float
    args: dict[str, Any]


def planned_period(
    number: int, plan: Plan, loads: Loads, name: str = "planned: one period of the pipeline"
) -> Process:
    """The tracks of each device, and on them all that it does per input."""
    process = Process(number, name)
    options = plan.problem.options
    begins = _backward_begins(options, loads)
    tasks = defaultdict(list)
    for each in _tasks(plan, loads):
        tasks[each.device].append(each)
    for device, name in enumerate(plan.problem.device_names):
        _add_device(process, name, TRACKS[options.load], begins, tasks[device])
    return process


def _backward_begins(options: Options, loads: Loads) -> float | None:
    """The moment at which all backward passes begin, or None where each follows its forward."""
    if options.schedule != "gpipe":
        return None
    parts = (column[FORWARD] for column in (loads.compute, loads.incoming, loads.outgoing))
    return float(combined(options, *parts).max())


def _add_device(
    process: Process, name: str, suffixes: dict[str, str], begins: float | None, tasks: list[_Task]
) -> None:
    """One after another on each track: forward, then backward; in, ops, out."""
    tracks = {"": process.track(name)}
    now: dict[str, float] = defaultdict(float)
    order = (IN, OP, OUT, SYNC)
    for each in sorted(tasks, key=lambda task: (task.way, order.index(task.kind))):
        suffix = suffixes[each.kind]
        if suffix not in tracks:
            tracks[suffix] = process.track(name + suffix)
        start = now[suffix]
        if each.way == BACKWARD and begins is not None:
            start = max(start, begins)
        now[suffix] = start + each.seconds
        process.add(Slice(tracks[suffix], each.name, each.kind, start, now[suffix], each.args))


# -- what devices do ---------------------------------------------------------------------------


def _tasks(plan: Plan, loads: Loads) -> Iterator[_Task]:
    """Ops in topological order, transfers that take time, and the adding up of gradients."""
    stages = Stages(plan.problem, plan.placement)
    for op in plan.problem.topological_order.tolist():
        task = _op(plan, op)
        on_each = plan.problem.op_time[op, list(stages.members[task.device])]
        yield from _shared(stages, task, on_each.tolist())
    for tensor in range(plan.problem.tensor_count):
        for each in transfers_of(stages, tensor):
            if each.seconds > 0:
                task = _transfer(plan.problem, each)
                yield from _shared(stages, task, [task.seconds] * len(stages.members[each.stage]))
    for device in np.flatnonzero(loads.sync).tolist():
        seconds = float(loads.sync[device])
        args = {"planned seconds": seconds}
        yield _Task(device, BACKWARD, SYNC, "add up gradients", seconds, args)


def _op(plan: Plan, op: int) -> _Task:
    problem, device = plan.problem, int(plan.placement.device[op])
    seconds = float(problem.op_time[op, device])
    way = BACKWARD if problem.is_backward[op] else FORWARD
    return _Task(device, way, OP, problem.op_names[op], seconds, op_args(problem, op, seconds))


def _transfer(problem: Problem, each: Transfer) -> _Task:
    kind, end = (OUT, "to") if each.outgoing else (IN, "from")
    args = {
        end: "host memory" if each.other < 0 else problem.device_names[each.other],
        "bytes": float(problem.tensor_bytes[each.tensor]),
        "planned seconds": each.seconds,
    }
    name = f"{kind} {problem.op_names[problem.tensor_producer[each.tensor]]}"
    return _Task(each.stage, each.way, kind, name, each.seconds, args)


def _shared(stages: Stages, task: _Task, seconds: Sequence[float]) -> Iterator[_Task]:
    """The task on each device of its stage, which do it in turns; `seconds` on each."""
    members, shares = stages.members[task.device], stages.shares[task.device]
    for device, share, each in zip(members, shares, seconds, strict=True):
        args = task.args | ({"share": share} if len(members) > 1 else {})
        yield replace(task, device=device, seconds=each * share, args=args)
