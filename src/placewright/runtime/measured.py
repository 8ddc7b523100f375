"""What the ranks tell while they run, as the figures of a run."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from placewright.importers.torch.graph import fold
from placewright.runtime.ranks.job import Event, Own
from placewright.runtime.results import RunReport, StepTime
from placewright.runtime.stages.code import Call, Post, Send, Step, Wait

if TYPE_CHECKING:
    from placewright.importers.torch.programs import Executable
    from placewright.runtime.ranks.calls import Calls
    from placewright.runtime.reference import Reference
    from placewright.runtime.stages.cutting import Stage


class Measured:
    """The timed calls of each assignment and its clocked ones, as the ranks tell them."""

    def __init__(self, assignments: int, ranks: int, calls: Calls) -> None:
        self.of = [CallTimes() for _ in range(assignments)]
        self.peak_memory: dict[int, float] = {}
        self._expected = assignments * ranks * (1 + calls.repeats + calls.clocked)
        self._seen = 0

    def add(self, rank: int, event: Event) -> None:
        kind = event["event"]
        if "peak_memory" in event:
            self.peak_memory[rank] = event["peak_memory"]
        if kind in ("call", "steps"):
            times = self.of[event["placement"]]
            kept = times.calls if kind == "call" else times.clocked
            kept.setdefault(rank, []).append(event)
            self._seen += 1

    @property
    def share(self) -> float:
        """Of all calls, those that were told of."""
        return self._seen / self._expected


@dataclass(frozen=True)
class CallTimes:
    """Of one assignment; `[rank][call]`, the first of the timed calls being the warm-up."""

    calls: dict[int, list[Event]] = field(default_factory=dict)
    clocked: dict[int, list[Event]] = field(default_factory=dict)

    @property
    def makespans(self) -> list[float]:
        return _makespans(self.calls)[1:]

    @property
    def call_seconds(self) -> float:
        """From one timed call's start to the next's, the median; of a single call, its makespan."""
        calls = list(zip(*self.calls.values(), strict=True))[1:]
        starts = [min(float(each["started"]) for each in call) for call in calls]
        between = [after - before for before, after in itertools.pairwise(starts)]
        return statistics.median(between or self.makespans)

    def busy(self, rank: int) -> float:
        """Seconds of a call without waiting for others; the median."""
        timed = self.calls[rank][1:]
        return statistics.median(float(e["finished"] - e["started"] - e["waited"]) for e in timed)

    @property
    def updating(self) -> float:
        """Seconds after a call until the last rank has its weights' new values; the median."""
        calls = list(zip(*self.calls.values(), strict=True))[1:]
        return statistics.median(max(float(each["updated"]) for each in call) for call in calls)

    def passes(
        self, stages: Sequence[Stage], op_of: Mapping[str, str | None]
    ) -> tuple[tuple[StepTime, ...], ...]:
        """The steps of each clocked call, the call of the median makespan first.

        `op_of` gives every call of the program the op that it belongs to.
        """
        spans = _makespans(self.clocked)
        order = sorted(range(len(spans)), key=spans.__getitem__)
        middle = order[len(order) // 2 : len(order) // 2 + 1]
        order = [*middle, *(each for each in range(len(spans)) if each not in middle)]
        return tuple(
            _steps([self.clocked[stage.rank][k] for stage in stages], stages, op_of) for k in order
        )


def make_report(
    program: Executable,
    stages: Sequence[Stage],
    measured: Measured,
    number: int,
    results: Sequence[Sequence[Any]],
    own: Own,
    reference: Reference,
) -> RunReport:
    """The report of assignment `number`; `results` are the program's in each call that was kept."""
    from placewright.runtime.reference import max_abs_difference
    from placewright.runtime.stages.targets import call_draws, call_of

    times, peak_memory = measured.of[number], measured.peak_memory
    makespans = times.makespans
    sends = [transfer for stage in stages for transfer in stage.sends]
    expected = reference.results[-len(results) :]
    differences = map(max_abs_difference, expected, results)
    return RunReport(
        measured=statistics.median(makespans),
        fastest=min(makespans),
        single_process_seconds=reference.seconds,
        max_abs_difference=max(differences, default=0.0),
        rank_busy_seconds=tuple(times.busy(stage.rank) for stage in stages),
        transfer_count=len(sends),
        transfer_bytes=sum(transfer.bytes for transfer in sends),
        ranks=len(stages),
        threads_per_rank=max(own.threads),
        repeats=len(makespans),
        rank_threads=own.threads,
        rank_cores=own.cores if any(own.cores) else (),
        rank_peak_memory=tuple(peak_memory[rank] for rank in sorted(peak_memory)),
        update_seconds=times.updating,
        passes=times.passes(stages, fold(program.module.graph)),
        results=tuple(map(tuple, results)),
        single_process_results=tuple(map(tuple, expected)),
        call_seconds=times.call_seconds,
        random_ops=sum(call_draws(call_of(node)) for node in program.calls),
    )


def _makespans(events: Mapping[int, Sequence[Event]]) -> list[float]:
    return [
        max(e["finished"] for e in call) - min(e["started"] for e in call)
        for call in zip(*events.values(), strict=True)
    ]


def _steps(
    events: Sequence[Event], stages: Sequence[Stage], op_of: Mapping[str, str | None]
) -> tuple[StepTime, ...]:
    start = min(event["started"] for event in events)
    found = []
    for event, stage in zip(events, stages, strict=True):
        ticks = [tick - start for tick in event["ticks"]]
        timed = zip(stage.code.steps, ticks, ticks[1:], strict=False)
        found += [
            made
            for step, before, after in timed
            if (made := _step_time(stage.rank, step, before, after, op_of)) is not None
        ]
    return tuple(found)


def _step_time(
    rank: int, step: Step, before: float, after: float, op_of: Mapping[str, str | None]
) -> StepTime | None:
    match step:
        case Call():
            return StepTime(rank, "op", op_of.get(step.name) or step.name, before, after)
        case Send(transfer):
            name = op_of.get(transfer.tensor) or transfer.tensor
            return StepTime(rank, "send", name, before, after, transfer.target, transfer.bytes)
        case Wait(transfer):
            name = op_of.get(transfer.tensor) or transfer.tensor
            return StepTime(rank, "wait", name, before, after, transfer.source, transfer.bytes)
        case Post():
            return None
