"""Traces that ui.perfetto.dev and chrome://tracing read: a plan, and a run of it beside it.

In the trace-event format of Chrome (JSON): complete slices (`X`), names (`M`) and flows (`s`, `t`,
`f`), which are drawn as arrows from the op that makes a tensor through the transfer to the op
that reads it. Times are microseconds, to the nanosecond.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.errors import OptionError
from placewright.formats import files
from placewright.outcome import Schedule
from placewright.plan import Plan

if TYPE_CHECKING:
    from placewright.runtime.results import RunReport, StepTime
    from placewright.runtime.tuning.comparison import OpTimes, RunComparison

PLANNED, MEASURED = 1, 2
"""The processes of a trace."""
NANOSECOND = 1e-9
Event = dict[str, Any]


def write_trace(path: str | Path, plan: Plan, report: RunReport | None = None) -> None:
    """Write `trace` to a file, all of it or nothing."""
    files.write_json(path, trace(plan, report))


def trace(plan: Plan, report: RunReport | None = None) -> dict[str, Any]:
    """The schedule of `plan` and, with the `report` of a run, the steps of its ranks.

    OptionError for a plan that is no schedule of ops; InputError for a report without steps, or of
    another plan.
    """
    if not isinstance(plan.outcome, Schedule):
        raise OptionError(
            f"the plan is for {plan.problem.options.objective}, and a trace shows when each op "
            "runs, which only plans for latency say; plan with --objective latency"
        )
    found = None
    if report is not None:
        from placewright.runtime.tuning.comparison import compare_run

        found = compare_run(plan, report)
    processes = [_planned(plan, found)]
    if report is not None and found is not None:
        processes.append(_measured(plan, report, found, len(processes[0].flows) + 1))
    return {
        "traceEvents": [event for process in processes for event in process.events()],
        "displayTimeUnit": "ms",
        "otherData": {"source": plan.source, "planner": plan.planner, "problem": plan.problem.name},
    }


# -- events ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Slice:
    """Something that lasts, on a track; seconds."""

    track: int
    name: str
    category: str
    start: float
    finish: float
    args: dict[str, Any]

    @property
    def middle(self) -> float:
        return (self.start + self.finish) / 2


@dataclass
class _Process:
    """The tracks, slices and flows of one process; ids of flows count from `first_flow`."""

    number: int
    name: str
    first_flow: int = 1
    tracks: list[str] = field(default_factory=list)
    slices: list[_Slice] = field(default_factory=list)
    flows: list[list[tuple[_Slice, float]]] = field(default_factory=list)

    def track(self, name: str) -> int:
        """A new track's number; tracks are shown in this order."""
        self.tracks.append(name)
        return len(self.tracks)

    def add(self, made: _Slice) -> _Slice:
        self.slices.append(made)
        return made

    def flow(self, *points: tuple[_Slice, float]) -> None:
        """An arrow through moments within slices, each put off until the one before it.

        There is none where that is after the slice's end: clocks of two processes may disagree.
        """
        found: list[tuple[_Slice, float]] = []
        for inside, moment in points:
            moment = max(moment, found[-1][1] if found else moment)
            if moment > inside.finish + NANOSECOND:
                return
            found.append((inside, moment))
        self.flows.append(found)

    def events(self) -> Iterator[Event]:
        yield self._named("process_name", 0, name=self.name)
        yield self._named("process_sort_index", 0, sort_index=self.number)
        for number, name in enumerate(self.tracks, 1):
            yield self._named("thread_name", number, name=name)
            yield self._named("thread_sort_index", number, sort_index=number)
        for each in sorted(self.slices, key=lambda one: (one.start, one.track, one.finish)):
            yield self._slice(each)
        for number, points in enumerate(self.flows, self.first_flow):
            yield from self._arrow(number, points)

    def _named(self, what: str, track: int, **args: Any) -> Event:
        return {"ph": "M", "name": what, "pid": self.number, "tid": track, "ts": 0, "args": args}

    def _slice(self, each: _Slice) -> Event:
        start = _microseconds(each.start)
        return {
            "ph": "X",
            "name": each.name,
            "cat": each.category,
            "pid": self.number,
            "tid": each.track,
            "ts": start,
            "dur": round(max(_microseconds(each.finish) - start, 0.0), 3),
            "args": each.args,
        }

    def _arrow(self, number: int, points: Sequence[tuple[_Slice, float]]) -> Iterator[Event]:
        phases = ["s", *["t"] * (len(points) - 2), "f"]
        for phase, (inside, moment) in zip(phases, points, strict=True):
            low, high = _microseconds(inside.start), _microseconds(inside.finish)
            event: Event = {
                "ph": phase,
                "name": "tensor",
                "cat": "flow",
                "id": number,
                "pid": self.number,
                "tid": inside.track,
                "ts": min(max(_microseconds(moment), low), max(low, high)),
            }
            if phase == "f":
                event["bp"] = "e"  # it ends at the slice around it, not at the next
            yield event


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _op_args(plan: Plan, op: int, times: OpTimes | None) -> dict[str, Any]:
    problem, schedule = plan.problem, plan.schedule
    args: dict[str, Any] = {
        "op": problem.op_names[op],
        "type": problem.op_types[op],
        "module": problem.op_modules[op],
        "memory bytes": float(problem.op_memory[op]),
        "planned seconds": float(schedule.op_finish[op] - schedule.op_start[op]),
    }
    if times is not None and times.measured is not None:
        args["measured seconds"] = times.measured
    return args


# -- the plan ----------------------------------------------------------------------------------


def _planned(plan: Plan, found: RunComparison | None) -> _Process:
    """A track per device; then, for each two devices, as many as transfers go at once."""
    process = _Process(PLANNED, "planned")
    problem, schedule = plan.problem, plan.schedule
    tracks = [process.track(name) for name in problem.device_names]
    times = found.ops if found else (None,) * problem.op_count
    ops = [
        process.add(
            _Slice(
                tracks[int(plan.placement.device[op])],
                problem.op_names[op],
                "op",
                float(schedule.op_start[op]),
                float(schedule.op_finish[op]),
                _op_args(plan, op, times[op]),
            )
        )
        for op in range(problem.op_count)
    ]
    _planned_transfers(process, plan, ops, found)
    return process


def _planned_transfers(
    process: _Process, plan: Plan, ops: Sequence[_Slice], found: RunComparison | None
) -> None:
    """The plan's transfers, each with an arrow from its op to every op that it is for."""
    problem, moves = plan.problem, plan.schedule.transfers
    producers = problem.tensor_producer[moves.tensor].tolist()
    ways = list(zip(producers, moves.source.tolist(), moves.target.tolist(), strict=True))
    measured = {(each.producer, each.source, each.target): each.measured
                for each in (found.transfers if found else ())}  # fmt: skip
    lanes = _lanes(process, plan)
    for row, (producer, source, target) in enumerate(ways):
        start, finish = float(moves.start[row]), float(moves.finish[row])
        args = {
            "from": problem.device_names[source],
            "to": problem.device_names[target],
            "bytes": float(problem.tensor_bytes[moves.tensor[row]]),
            "planned seconds": finish - start,
        }
        if (seconds := measured.get(ways[row])) is not None:
            args["measured seconds"] = seconds
        name = problem.op_names[producer]
        moved = process.add(_Slice(lanes[row], name, "transfer", start, finish, args))
        for reader in _readers(plan, row):
            process.flow(*((each, each.middle) for each in (ops[producer], moved, ops[reader])))


def _lanes(process: _Process, plan: Plan) -> list[int]:
    """`[transfer]` its track: of those of its two devices the first that is free."""
    moves, names = plan.schedule.transfers, plan.problem.device_names
    pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in range(len(moves)):
        pairs[int(moves.source[row]), int(moves.target[row])].append(row)
    lane = [0] * len(moves)
    for (source, target), rows in sorted(pairs.items()):
        free: list[float] = []  # of each track, when its last transfer ends
        tracks: list[int] = []
        for row in sorted(rows, key=lambda each: (moves.start[each], moves.finish[each])):
            at = next((k for k, end in enumerate(free) if end <= moves.start[row]), len(free))
            if at == len(free):
                free.append(0.0)
                suffix = f" ({at + 1})" if at else ""
                tracks.append(process.track(f"{names[source]} → {names[target]}{suffix}"))
            free[at], lane[row] = float(moves.finish[row]), tracks[at]
    return lane


def _readers(plan: Plan, row: int) -> list[int]:
    """The ops on its target that a transfer is for."""
    problem, moves = plan.problem, plan.schedule.transfers
    if moves.consumer[row] >= 0:
        return [int(moves.consumer[row])]
    tensor = moves.tensor[row]
    first, end = problem.consumer_offsets[tensor : tensor + 2]
    readers = problem.consumers[first:end].tolist()
    return [op for op in readers if plan.placement.device[op] == moves.target[row]]


# -- the run -----------------------------------------------------------------------------------


def _measured(plan: Plan, report: RunReport, found: RunComparison, first_flow: int) -> _Process:
    """A track per rank, with its steps, and an arrow for each tensor that was sent."""
    process = _Process(MEASURED, "measured", first_flow)
    tracks = [process.track(f"rank {rank}: {name}") for rank, name in enumerate(report.devices)]
    numbers = {name: op for op, name in enumerate(plan.problem.op_names)}
    slices = {
        step: process.add(_step_slice(plan, step, tracks, numbers, found)) for step in report.steps
    }
    ends = _Ends(plan, slices)
    for message in found.messages[0]:  # of the call that `steps` are of
        sending, waiting = slices[message.send], slices[message.wait]
        process.flow(
            *((each, each.middle) for each in ends.before(message.send)),
            (sending, sending.start),
            (waiting, waiting.finish),
            *((each, each.middle) for each in ends.after(message.producer, message.wait)),
        )
    return process


def _step_slice(
    plan: Plan,
    step: StepTime,
    tracks: Sequence[int],
    numbers: dict[str, int],
    found: RunComparison,
) -> _Slice:
    name, args = step.name, dict[str, Any]()
    if step.kind == "op":
        op = numbers.get(step.name)
        here = op is not None and found.devices[step.rank].device == found.ops[op].device
        args = _op_args(plan, op, found.ops[op]) if op is not None and here else {}
    elif step.kind in ("send", "wait"):
        name = f"{step.kind} {step.name}"
        end = "to" if step.kind == "send" else "from"
        args = {end: f"rank {step.peer}", "bytes": step.bytes}
    args["measured seconds"] = step.finish - step.start
    return _Slice(tracks[step.rank], name, step.kind, step.start, step.finish, args)


class _Ends:
    """Finds the op that a message comes from, and the one that goes on with it: none or one."""

    def __init__(self, plan: Plan, slices: dict[StepTime, _Slice]) -> None:
        problem = plan.problem
        self.slices = slices
        self.read_by: dict[int, set[str]] = defaultdict(set)
        edges = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
        for producer, consumer in edges:
            self.read_by[producer].add(problem.op_names[consumer])
        self.ops: dict[int, list[StepTime]] = defaultdict(list)
        for step in sorted(slices, key=_begun):
            if step.kind == "op":
                self.ops[step.rank].append(step)

    def before(self, send: StepTime) -> list[_Slice]:
        """The last step of the op whose output is sent, before that."""
        ops = self.ops[send.rank]
        earlier = reversed(ops[: bisect.bisect_right(ops, send.start, key=_begun)])
        return self._first(step for step in earlier if step.name == send.name)

    def after(self, producer: int, wait: StepTime) -> list[_Slice]:
        """The first op of the rank that reads an output of `producer` after the wait."""
        ops, readers = self.ops[wait.rank], self.read_by[producer]
        later = ops[bisect.bisect_left(ops, wait.finish, key=_begun) :]
        return self._first(step for step in later if step.name in readers)

    def _first(self, steps: Iterator[StepTime]) -> list[_Slice]:
        return [self.slices[step] for step in islice(steps, 1)]


def _begun(step: StepTime) -> float:
    return step.start
