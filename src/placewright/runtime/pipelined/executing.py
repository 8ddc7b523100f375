"""A chain of stages on processes of this machine: started, timed and compared."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placewright.budget import Progress, no_progress
from placewright.importers.torch.programs import Executable
from placewright.runtime.pipelined.boundaries import Crossings, crossings
from placewright.runtime.pipelined.comparison import Differences, Expected
from placewright.runtime.pipelined.cutting import Chain
from placewright.runtime.pipelined.gradients import ranks_with
from placewright.runtime.pipelined.jobs import answer_of, hand_over
from placewright.runtime.pipelined.report import PipelineReport
from placewright.runtime.pipelined.schedules import Schedule, longer, method_of, write_table
from placewright.runtime.pipelined.timing import Times
from placewright.runtime.ranks.job import Own
from placewright.runtime.ranks.launch import Ranks, ending_on_signals
from placewright.runtime.ranks.state import STEEPEST, Optimizer
from placewright.runtime.stages.targets import modules_to_import


@dataclass(frozen=True)
class Request:
    """What is asked of a run; see `run_pipeline`."""

    schedule: Schedule = "gpipe"
    micro_batches: int = 8
    repeats: int = 3
    steps: int = 0
    timeout: float = 60.0
    optimizer: Optimizer = STEEPEST


def execute_chain(
    executable: Executable,
    chain: Chain,
    request: Request,
    own: Own,
    *,
    modules: Sequence[str] = (),
    progress: Progress = no_progress,
) -> PipelineReport:
    """Run a chain of stages on as many processes as it has ranks, and compare what they give.

    `modules` are imported by ranks of a program with operators that torch does not define.
    OptionError for a number of micro-batches that the schedule cannot run, ExecutionError if a
    rank fails or is silent for too long.
    """
    groups = chain.groups
    batches = [request.micro_batches, longer(request.micro_batches, groups)]
    method = method_of(request.schedule, groups, request.micro_batches)
    sent = crossings(executable, chain.stages)
    progress("running in one process", 0.1)
    expected = Expected.of(
        executable, request.micro_batches, request.steps, request.optimizer, max(own.threads)
    )
    with ending_on_signals(), tempfile.TemporaryDirectory(prefix="placewright-") as name:
        folder = Path(name)
        for micro_batches in batches if method in ("table", "turns") else ():
            write_table(folder, request.schedule, groups, micro_batches)
        settings = {
            "ranks": groups.count,
            "groups": asdict(groups),
            "threads": own.threads,
            "cores": own.cores,
            "method": method,
            "batches": batches,
            "repeats": request.repeats,
            "steps": request.steps,
            "optimizer": asdict(request.optimizer),
            "training": bool(executable.gradients),
            "ranks_with": ranks_with(executable, chain),
            "timeout": request.timeout,
            "path": sys.path,
            "modules": modules_to_import([stage.code for stage in chain.stages], modules),
        }
        with ExitStack() as stack:
            descriptors = hand_over(folder, executable, chain, sent, stack)
            times = _listen(folder, settings, descriptors, progress)
        answers = [answer_of(folder, rank) for rank in range(groups.count)]
    return _report(chain, request, own, sent, times, expected.differences(answers))


def _listen(
    folder: Path,
    settings: Mapping[str, Any],
    descriptors: Sequence[Sequence[int]],
    progress: Progress,
) -> Times:
    ranks, worker = settings["ranks"], "placewright.runtime.pipelined.rank"
    progress(f"starting {ranks} ranks", 0.2)
    times = Times(ranks, settings["repeats"], settings["batches"])
    started = Ranks(folder, settings, worker=worker, descriptors=descriptors)
    with started as processes:
        for rank, event in processes.events(settings["timeout"]):
            times.add(rank, event)
            progress(f"running on {ranks} ranks", 0.3 + 0.7 * times.share)
    return times


def _report(
    chain: Chain,
    request: Request,
    own: Own,
    sent: Sequence[Crossings],
    times: Times,
    differences: Differences,
) -> PipelineReport:
    groups, seconds = chain.groups, times.batch_seconds(0)
    ranks = range(groups.count)
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
        rank_stages=tuple(map(groups.stages, ranks)),
        stage_bytes=tuple(sum(each.bytes for each in crossing) for crossing in sent),
        sync_seconds=times.sync(),
        micro_batches=request.micro_batches,
        repeats=request.repeats,
        ranks=groups.count,
        rank_threads=own.threads,
        rank_cores=own.cores if any(own.cores) else (),
    )
