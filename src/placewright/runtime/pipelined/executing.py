"""A chain of stages on processes of this machine: started, timed and compared."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from placewright.errors import ExecutionError
from placewright.importers.torch.programs import Executable
from placewright.runtime.code import calls
from placewright.runtime.launch import Event, Ranks, ending_on_signals
from placewright.runtime.local import max_abs_difference
from placewright.runtime.pipelined.boundaries import Crossings, crossings
from placewright.runtime.pipelined.cutting import Chain
from placewright.runtime.pipelined.jobs import Answer, answer_of, hand_over
from placewright.runtime.pipelined.reference import SingleProcess
from placewright.runtime.pipelined.report import PipelineReport
from placewright.runtime.pipelined.schedules import Schedule, longer, method_of, write_table
from placewright.runtime.targets import defining_modules, is_custom

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Request:
    """What is asked of a run; see `run_pipeline`."""

    schedule: Schedule = "gpipe"
    micro_batches: int = 8
    repeats: int = 3
    steps: int = 0
    timeout: float = 60.0


@dataclass(frozen=True)
class Own:
    """What each rank has for itself: threads, and the logical CPUs it is pinned to."""

    threads: tuple[int, ...]
    cores: tuple[tuple[int, ...], ...]


def execute_chain(
    executable: Executable,
    chain: Chain,
    request: Request,
    own: Own,
    *,
    modules: Sequence[str] = (),
    progress: Progress = lambda what, done: None,
) -> PipelineReport:
    """Run a chain of stages on as many processes as it has ranks, and compare what they give.

    `modules` are imported by ranks of a program with operators that torch does not define.
    OptionError for a number of micro-batches that the schedule cannot run, ExecutionError if a
    rank fails or is silent for too long.
    """
    ranks = len(chain.devices)
    batches = [request.micro_batches, longer(request.micro_batches, ranks)]
    method = method_of(request.schedule, chain.rank_of, request.micro_batches)
    sent = crossings(executable, chain.stages)
    progress("running in one process", 0.1)
    expected = _Expected.of(executable, request, max(own.threads))
    with ending_on_signals(), tempfile.TemporaryDirectory(prefix="placewright-") as name:
        folder = Path(name)
        hand_over(folder, executable, chain.stages, sent)
        for micro_batches in batches if method == "table" else ():
            write_table(folder, request.schedule, chain.rank_of, micro_batches)
        settings = {
            "ranks": ranks,
            "stages": len(chain.stages),
            "threads": own.threads,
            "cores": own.cores,
            "method": method,
            "batches": batches,
            "repeats": request.repeats,
            "steps": request.steps,
            "training": bool(executable.gradients),
            "timeout": request.timeout,
            "path": sys.path,
            "modules": _modules(chain, modules),
        }
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        times = _listen(folder, own, settings, progress)
        answers = [answer_of(folder, rank) for rank in range(ranks)]
    return _report(chain, request, own, sent, times, expected.differences(answers))


def _listen(folder: Path, own: Own, settings: Mapping[str, Any], progress: Progress) -> _Times:
    ranks, worker = settings["ranks"], "placewright.runtime.pipelined.rank"
    progress(f"starting {ranks} ranks", 0.2)
    times = _Times(ranks, settings["repeats"], settings["batches"])
    with Ranks(folder, ranks, own.threads, worker=worker) as processes:
        for rank, event in processes.events(settings["timeout"]):
            times.add(rank, event)
            progress(f"running on {ranks} ranks", 0.3 + 0.7 * times.share)
    return times


def _modules(chain: Chain, given: Sequence[str]) -> list[str]:
    """What ranks must import: nothing, unless there are operators of others than torch."""
    codes = [stage.code for stage in chain.stages]
    custom = any(is_custom(call.target) for code in codes for call in calls(code))
    return [*defining_modules(codes), *given] if custom else []


# -- what is compared --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Differences:
    outputs: float
    gradients: float | None
    losses: tuple[float, ...]
    expected_losses: tuple[float, ...]


@dataclass(frozen=True)
class _Expected:
    """What a single process computes of the same micro-batches."""

    results: dict[tuple[int, int], Any] = field(default_factory=dict)
    checked_losses: list[float] = field(default_factory=list)
    gradients: dict[str, torch.Tensor] | None = None
    losses: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, executable: Executable, request: Request, threads: int) -> _Expected:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            count = request.micro_batches
            if not executable.gradients:
                return cls(SingleProcess(executable).results(count))
            checked, gradients = SingleProcess(executable).gradients(count)
            losses = SingleProcess(executable).train(count, request.steps) if request.steps else []
            return cls({}, checked, gradients, losses)
        finally:
            torch.set_num_threads(before)

    def differences(self, answers: Sequence[Answer]) -> _Differences:
        """ExecutionError where the ranks gave other things than a single process."""
        results = {key: each for answer in answers for key, each in answer.results.items()}
        checked = [loss for answer in answers for loss in answer.checked_losses]
        outputs = max(
            _distance("output", self.results, results),
            max_abs_difference(_tensors(self.checked_losses), _tensors(checked)),
        )
        gradients = None
        if self.gradients is not None:
            found = {name: each for answer in answers for name, each in answer.gradients.items()}
            gradients = _distance("gradient", self.gradients, found)
        losses = tuple(loss for answer in answers for loss in answer.losses)
        return _Differences(outputs, gradients, losses, tuple(self.losses))


def _tensors(losses: Sequence[float]) -> list[torch.Tensor]:
    return [torch.tensor(loss, dtype=torch.float64) for loss in losses]


def _distance(what: str, expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> float:
    """The largest distance of two collections of values, which must have the same keys."""
    if missing := sorted(set(expected) ^ set(found)):
        raise ExecutionError(f"the run and a single process differ in having {what} {missing[0]}")
    return max_abs_difference(list(expected.values()), [found[key] for key in expected])


# -- what is measured --------------------------------------------------------------------------


class _Times:
    """`batches[length][repeat][rank]`: the event that tells when that batch began and ended."""

    def __init__(self, ranks: int, repeats: int, micro_batches: Sequence[int]) -> None:
        self.batches: list[list[dict[int, Event]]] = [
            [{} for _ in range(repeats + 1)] for _ in micro_batches
        ]
        self.peaks = [0] * ranks
        self._micro_batches = micro_batches
        self._expected = len(micro_batches) * (repeats + 1) * ranks
        self._seen = 0

    def add(self, rank: int, event: Event) -> None:
        if event["event"] == "batch":
            self.batches[event["length"]][event["repeat"]][rank] = event
            self._seen += 1
        if "peak" in event:
            self.peaks[rank] = event["peak"]

    @property
    def share(self) -> float:
        return self._seen / self._expected

    def batch_seconds(self, length: int) -> float:
        """The median; the first repeat was a warm-up."""
        seconds: list[float] = [
            max(e["finished"] for e in batch.values()) - min(e["started"] for e in batch.values())
            for batch in self.batches[length][1:]
        ]
        return statistics.median(seconds)

    def steady(self) -> float:
        """Seconds of one more micro-batch."""
        short, long = self._micro_batches
        return (self.batch_seconds(1) - self.batch_seconds(0)) / (long - short)

    def busy(self, rank: int) -> float:
        seconds: list[float] = [batch[rank]["busy"] for batch in self.batches[0][1:]]
        return statistics.median(seconds)


def _report(
    chain: Chain,
    request: Request,
    own: Own,
    sent: Sequence[Crossings],
    times: _Times,
    differences: _Differences,
) -> PipelineReport:
    ranks, seconds = range(len(chain.devices)), times.batch_seconds(0)
    busy = tuple(times.busy(rank) for rank in ranks)
    return PipelineReport(
        schedule=request.schedule,
        measured=times.steady(),
        batch_seconds=seconds,
        max_abs_difference=differences.outputs,
        max_gradient_difference=differences.gradients,
        losses=differences.losses,
        single_process_losses=differences.expected_losses,
        rank_busy_seconds=busy,
        rank_bubble_share=tuple(max(0.0, 1 - each / seconds) for each in busy),
        rank_peak_memory=tuple(times.peaks),
        rank_stages=tuple(chain.rank_stages(rank) for rank in ranks),
        stage_bytes=tuple(sum(each.bytes for each in crossing) for crossing in sent),
        micro_batches=request.micro_batches,
        repeats=request.repeats,
        ranks=len(ranks),
        rank_threads=own.threads,
        rank_cores=own.cores if any(own.cores) else (),
    )
