"""A run in a trace: the steps of its ranks, and an arrow for each tensor that was sent."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from placewright.exporters.perfetto.events import Process, Slice
from placewright.exporters.perfetto.schedule import op_args
from placewright.plan import Plan

if TYPE_CHECKING:
    from placewright.runtime.results import RunReport, StepTime
    from placewright.runtime.tuning.comparison import RunComparison


def measured_steps(
    number: int, plan: Plan, report: RunReport, found: RunComparison, first_flow: int
) -> Process:
    """A track per rank, with its steps, and an arrow for each tensor that was sent."""
    process = Process(number, "measured", first_flow)
    tracks = [process.track(f"rank {rank}: {name}") for rank, name in enumerate(report.devices)]
    numbers = {name: op for op, name in enumerate(plan.problem.op_names)}
    slices = {
        step: process.add(_step_slice(plan, step, tracks, numbers, found)) for step in report.steps
    }
    ends = _Ends(plan, slices)
    for message in found.messages[0]:  # of the call that `steps` are of
        sending, waiting = slices[message.send], slices[message.wait]
        before, after = ends.before(message.send), ends.after(message.producer, message.wait)
        process.flow(
            *((each, each.middle) for each in before),
            (sending, sending.start),
            *_received(sending, waiting, after),
        )
    return process


def _received(
    sending: Slice, waiting: Slice, after: Sequence[Slice]
) -> Iterator[tuple[Slice, float]]:
    """The end of an arrow: the wait and the op after it, or that op alone.

    Viewers turn an arrow round that leads to what began earlier, as waits often did.
    """
    if waiting.start >= sending.start or waiting.finish < sending.start or not after:
        yield waiting, waiting.finish
    for each in after:
        yield each, each.middle


def _step_slice(
    plan: Plan,
    step: StepTime,
    tracks: Sequence[int],
    numbers: dict[str, int],
    found: RunComparison,
) -> Slice:
    name, args = step.name, dict[str, Any]()
    if step.kind == "op":
        op = numbers.get(step.name)
        here = op is not None and found.devices[step.rank].device == found.ops[op].device
        args = (
            op_args(plan.problem, op, found.ops[op].planned, found.ops[op])
            if op is not None and here
            else {}
        )
    elif step.kind in ("send", "wait"):
        name = f"{step.kind} {step.name}"
        end = "to" if step.kind == "send" else "from"
        args = {end: f"rank {step.peer}", "bytes": step.bytes}
    args["measured seconds"] = step.finish - step.start
    return Slice(tracks[step.rank], name, step.kind, step.start, step.finish, args)


class _Ends:
    """Finds the op that a message comes from, and the one that goes on with it: none or one."""

    def __init__(self, plan: Plan, slices: dict[StepTime, Slice]) -> None:
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

    def before(self, send: StepTime) -> list[Slice]:
        """The last step of the op whose output is sent, before that."""
        ops = self.ops[send.rank]
        earlier = reversed(ops[: bisect.bisect_right(ops, send.start, key=_begun)])
        return self._first(step for step in earlier if step.name == send.name)

    def after(self, producer: int, wait: StepTime) -> list[Slice]:
        """The first op of the rank that reads an output of `producer` after the wait."""
        ops, readers = self.ops[wait.rank], self.read_by[producer]
        later = ops[bisect.bisect_left(ops, wait.finish, key=_begun) :]
        return self._first(step for step in later if step.name in readers)

    def _first(self, steps: Iterator[StepTime]) -> list[Slice]:
        return [self.slices[step] for step in islice(steps, 1)]


def _begun(step: StepTime) -> float:
    return step.start
