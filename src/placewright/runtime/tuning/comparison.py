"""What a run measured beside what its plan says: of ops, transfers and devices.

What is compared:

- of an op, its time in the schedule with that of its step on the rank of its device;
- of what an op sends to another device, the time from the start of the first of these transfers
  to the finish of the last in the schedule, with the time from the moment at which the sender
  starts to send the first to the end of the receiver's last wait for one. A receiver that was not
  yet waiting when the sender began (`awaited` is False) may have found it there: then the measured
  time is no more than an upper bound of the transfer's;
- of a device, the time of its ops in the schedule with that of the steps of its rank.

Where a run has several clocked calls, each of these is the median over them.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placewright.errors import InputError, OptionError
from placewright.outcome import Schedule
from placewright.plan import Plan
from placewright.runtime.results import RunReport, StepKind, StepTime


@dataclass(frozen=True)
class OpTimes:
    """Seconds of one op; `samples` are those of the clocked calls, none where it has no step."""

    op: int
    device: int
    planned: float
    samples: tuple[float, ...]

    @property
    def measured(self) -> float | None:
        """The median of the samples; None where there is none."""
        return statistics.median(self.samples) if self.samples else None

    @property
    def ratio(self) -> float | None:
        """measured / planned; None where there is none."""
        return _ratio(self.measured, self.planned)

    @property
    def lost(self) -> float:
        """Seconds beyond the plan's, 0 where nothing was measured."""
        return statistics.median(self.samples) - self.planned if self.samples else 0.0


@dataclass(frozen=True)
class Message:
    """One tensor that a rank sent: an output of op `producer`, from a device to another."""

    producer: int
    source: int
    target: int
    send: StepTime
    wait: StepTime

    @property
    def bytes(self) -> int:
        return self.send.bytes

    @property
    def seconds(self) -> float:
        """From the sender's start to the end of the receiver's wait."""
        return self.wait.finish - self.send.start

    @property
    def awaited(self) -> bool:
        """Whether the receiver was waiting when the sender began, and so saw it arrive."""
        return self.wait.start <= self.send.start


@dataclass(frozen=True)
class TransferTimes:
    """Seconds that the outputs of an op take from a device to another, all of them.

    `planned` is None for what the plan does not send, `measured` for what the run did not.
    """

    producer: int
    source: int
    target: int
    bytes: float
    planned: float | None
    measured: float | None
    awaited: bool

    @property
    def ratio(self) -> float | None:
        """measured / planned; None where there is none."""
        return _ratio(self.measured, self.planned)


@dataclass(frozen=True)
class DeviceTimes:
    """Seconds of a device's rank in a clocked call.

    `planned` are those of its ops in the schedule; `computing` its ops and what it does between
    them, updates of weights included; `sending` the starts of sends; `waiting` for other ranks.
    """

    device: int
    planned: float
    computing: float
    sending: float
    waiting: float


@dataclass(frozen=True)
class RunComparison:
    """A plan and a run of it: `predicted` and `measured` end to end, and `clocked`, a call whose
    steps these are, which reads a clock at each. `messages` of each of these calls.
    """

    ops: tuple[OpTimes, ...]
    messages: tuple[tuple[Message, ...], ...]
    transfers: tuple[TransferTimes, ...]
    devices: tuple[DeviceTimes, ...]
    predicted: float
    measured: float
    clocked: float


Steps = Sequence[StepTime]


def compare_run(plan: Plan, report: RunReport) -> RunComparison:
    """Every op and transfer of `plan` with its steps in `report`.

    OptionError for a plan that is no schedule of ops; InputError for a report without steps, or of
    another plan.
    """
    if not isinstance(plan.outcome, Schedule):
        raise OptionError(
            f"the plan is for {plan.problem.options.objective}, and only plans for latency say "
            "when each op runs; plan with --objective latency"
        )
    passes = [steps for steps in report.passes if steps]
    if not passes:
        raise InputError("the run has no times of its steps; run the plan again")
    ranks = rank_devices(plan, report)
    messages = tuple(_messages(plan, steps, ranks) for steps in passes)
    return RunComparison(
        ops=_ops(plan, passes, ranks),
        messages=messages,
        transfers=_transfers(plan, messages),
        devices=_devices(plan, passes, ranks),
        predicted=plan.value,
        measured=report.measured,
        clocked=statistics.median([max(step.finish for step in steps) for steps in passes]),
    )


def rank_devices(plan: Plan, report: RunReport) -> tuple[int, ...]:
    """`[rank]` the plan's device; InputError where the report is of other devices."""
    number = {name: device for device, name in enumerate(plan.problem.device_names)}
    unknown = [name for name in report.devices if name not in number]
    if unknown or len(report.devices) != report.ranks:
        what = f"device '{unknown[0]}'" if unknown else f"{report.ranks} ranks"
        raise InputError(f"the run has {what}, which the plan lacks; give the plan that was run")
    return tuple(number[name] for name in report.devices)


def _ratio(measured: float | None, planned: float | None) -> float | None:
    return measured / planned if measured is not None and planned else None


def _ops(plan: Plan, passes: Sequence[Steps], ranks: Sequence[int]) -> tuple[OpTimes, ...]:
    samples: dict[tuple[int, str], list[float]] = defaultdict(list)
    for steps in passes:
        spent: dict[tuple[int, str], float] = defaultdict(float)
        for step in _of_kind(steps, "op"):
            spent[ranks[step.rank], step.name] += step.finish - step.start
        for call, seconds in spent.items():
            samples[call].append(seconds)
    planned = (plan.schedule.op_finish - plan.schedule.op_start).tolist()
    placed = zip(plan.placement.device.tolist(), plan.problem.op_names, strict=True)
    return tuple(
        OpTimes(op, device, planned[op], tuple(samples.get((device, name), ())))
        for op, (device, name) in enumerate(placed)
    )


def _of_kind(steps: Steps, kind: StepKind) -> Iterable[StepTime]:
    return (step for step in steps if step.kind == kind)


# -- transfers ---------------------------------------------------------------------------------


def _messages(plan: Plan, steps: Steps, ranks: Sequence[int]) -> tuple[Message, ...]:
    """Each send with the wait for it: of the same op, ranks and size, in their order in time."""
    waits: dict[tuple[str, int, int | None, int], list[StepTime]] = defaultdict(list)
    for step in sorted(_of_kind(steps, "wait"), key=_when):
        waits[step.name, step.rank, step.peer, step.bytes].append(step)
    numbers = {name: op for op, name in enumerate(plan.problem.op_names)}
    found = []
    for send in sorted(_of_kind(steps, "send"), key=_when):
        if send.peer is None or send.name not in numbers:
            continue
        matching = waits[send.name, send.peer, send.rank, send.bytes]
        if matching:
            ends = ranks[send.rank], ranks[send.peer]
            found.append(Message(numbers[send.name], *ends, send, matching.pop(0)))
    return tuple(found)


def _when(step: StepTime) -> tuple[float, float]:
    return step.start, step.finish


_Way = tuple[int, int, int]
"""An op, the device that it runs on, and one that its outputs go to."""


def _transfers(plan: Plan, calls: Sequence[Iterable[Message]]) -> tuple[TransferTimes, ...]:
    planned = _planned_ways(plan)
    sent: dict[_Way, list[list[Message]]] = defaultdict(list)
    for messages in calls:
        ways: dict[_Way, list[Message]] = defaultdict(list)
        for message in messages:
            ways[message.producer, message.source, message.target].append(message)
        for way, each in ways.items():
            sent[way].append(each)
    return tuple(
        _transfer(way, planned.get(way), sent.get(way, ())) for way in sorted({*planned, *sent})
    )


def _planned_ways(plan: Plan) -> Mapping[_Way, tuple[float, float]]:
    """From the start of the first to the finish of the last transfer; and bytes, each tensor's
    once."""
    problem, moves = plan.problem, plan.schedule.transfers
    rows: dict[_Way, list[int]] = defaultdict(list)
    producers = problem.tensor_producer[moves.tensor].tolist()
    ends = zip(producers, moves.source.tolist(), moves.target.tolist(), strict=True)
    for row, way in enumerate(ends):
        rows[way].append(row)
    return {
        way: (
            float(moves.finish[each].max() - moves.start[each].min()),
            float(problem.tensor_bytes[np.unique(moves.tensor[each])].sum()),
        )
        for way, each in rows.items()
    }


def _transfer(
    way: _Way, planned: tuple[float, float] | None, sent: Sequence[Sequence[Message]]
) -> TransferTimes:
    """Of one way: as planned, and what was sent in each call."""
    seconds, size = planned or (None, 0.0)
    if not sent:
        return TransferTimes(*way, size, seconds, None, False)
    last = [max(messages, key=lambda each: each.wait.finish) for messages in sent]
    spans = [
        end.wait.finish - min(each.send.start for each in messages)
        for end, messages in zip(last, sent, strict=True)
    ]
    return TransferTimes(
        *way,
        float(sum(each.bytes for each in sent[0])),
        seconds,
        statistics.median(spans),
        all(each.awaited for each in last),
    )


# -- devices -----------------------------------------------------------------------------------


def _devices(plan: Plan, passes: Sequence[Steps], ranks: Sequence[int]) -> tuple[DeviceTimes, ...]:
    spent: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0.0] * len(passes))
    for number, steps in enumerate(passes):
        for step in steps:
            kind = "op" if step.kind == "update" else step.kind
            spent[step.rank, kind][number] += step.finish - step.start
    return tuple(
        DeviceTimes(
            device,
            float(plan.device_load[device]),
            *(statistics.median(spent[rank, kind]) for kind in ("op", "send", "wait")),
        )
        for rank, device in enumerate(ranks)
    )
