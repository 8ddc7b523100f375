"""Running a placement on CPU ranks of this machine, and comparing it with a single process.

The program is exported once, here, and cut; each rank is given its own stage with the weights it
needs, in a private temporary directory (so factories need not be deterministic, nor is a model
built once per rank; the directory holds a copy of the weights while the run lasts). Ranks talk
over torch.distributed's gloo backend on the loopback interface.
"""

from __future__ import annotations

import heapq
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.cluster import CpuRun
from placewright.errors import ExecutionError, OptionError
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.runtime.launch import Event, Ranks, cores, ending_on_signals
from placewright.runtime.results import RunReport
from placewright.system.pinning import pinned, refuse_elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.export import ExportedProgram

    from placewright.runtime.local import Values
    from placewright.runtime.stages import Stage

    Progress = Callable[[str, float], None]


_LONGEST_TIMEOUT = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Assignment:
    """Op → rank, and the order of the ops (None: the program's own)."""

    device_of: Mapping[str, int]
    order: Sequence[str] | None = None


def run_plan(
    plan: Plan,
    *,
    repeats: int = 5,
    timeout: float = 60.0,
    threads: int | None = None,
    on_progress: Progress | None = None,
) -> RunReport:
    """Run a plan for ``torch:PACKAGE.MODULE:FACTORY``, a rank per device it uses, in its order.

    A rank whose device is cores of this machine is pinned to them, and has as many threads; any
    other has as many as `device_threads` says. `threads` is another number for all.

    OptionError for a plan of anything else, since only a factory brings weights and inputs, and
    for one on GPUs of this machine; ClusterError for cores that are not there.
    """
    kind, _, factory = plan.source.partition(":")
    if kind != "torch" or not factory:
        raise OptionError(
            f"the plan's source is '{plan.source}', but only a factory brings weights and "
            "inputs to run; plan torch:PACKAGE.MODULE:FACTORY"
        )
    if plan.problem.is_backward.any():
        raise OptionError("the plan is for training; only inference can be run so far")
    used = sorted(set(plan.placement.device.tolist()))
    rank_cores = [_cores_of(plan.problem, device) for device in used]
    if threads is None:
        unpinned = device_threads(plan.problem, used)
        threads_of: int | list[int] = [len(mine) or unpinned for mine in rank_cores]
    else:
        threads_of = threads
    devices = plan.placement.device.tolist()
    device_of = {
        op: used.index(device) for op, device in zip(plan.problem.op_names, devices, strict=True)
    }
    report = execute(
        factory,
        device_of,
        len(used),
        schedule_order(plan),
        repeats=repeats,
        timeout=timeout,
        threads=threads_of,
        rank_cores=rank_cores,
        on_progress=on_progress,
    )
    names = tuple(plan.problem.device_names[device] for device in used)
    return replace(report, predicted=plan.value, devices=names)


def _cores_of(problem: Problem, device: int) -> tuple[int, ...]:
    """The logical CPUs that `device` is, none where that is not said."""
    run = problem.device_run(device)
    if run is None:
        return ()
    if not isinstance(run, CpuRun):
        raise OptionError(
            f"the plan's device '{problem.device_names[device]}' runs on {run}, and GPUs are not "
            "run yet; plan on devices that run on cpu"
        )
    refuse_elsewhere(problem.device_names[device], run.host)
    with pinned(run.cores):  # told before anything is exported
        return run.cores


def schedule_order(plan: Plan) -> list[str]:
    """The ops by their start in the schedule, and always topological, whatever rounding did."""
    problem, schedule = plan.problem, plan.schedule
    waiting = [0] * problem.op_count
    successors: list[list[int]] = [[] for _ in range(problem.op_count)]
    edges = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    for producer, consumer in edges:
        successors[producer].append(consumer)
        waiting[consumer] += 1
    when = list(zip(schedule.op_start.tolist(), schedule.op_finish.tolist(), strict=True))
    ready = [(when[op], op) for op in range(problem.op_count) if not waiting[op]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, op = heapq.heappop(ready)
        order.append(problem.op_names[op])
        for successor in successors[op]:
            waiting[successor] -= 1
            if not waiting[successor]:
                heapq.heappush(ready, (when[successor], successor))
    return order


def execute(
    factory: str,
    device_of: Mapping[str, int],
    ranks: int,
    order: Sequence[str] | None = None,
    repeats: int = 5,
    timeout: float = 60.0,
    threads: int | Sequence[int] | None = None,
    on_progress: Progress | None = None,
    *,
    rank_cores: Sequence[Sequence[int]] = (),
) -> RunReport:
    """Run what ``PACKAGE.MODULE:FACTORY`` returns on `ranks` processes and compare the outputs.

    `device_of` gives every op of the exported program its rank, `order` the order of the ops
    (see `stages.cut`), `threads` are those of each rank, one number or a number for each, and
    `rank_cores` the logical CPUs each is pinned to (none: to none). Raises InputError for a
    factory, placement or order that does not fit, and ExecutionError, all ranks being ended, if a
    rank fails, or if no rank reports anything for `timeout` seconds.
    """
    from placewright.importers.torch.export import export_inference
    from placewright.importers.torch.sources import load_factory
    from placewright.importers.torch.tracing import import_torch

    import_torch("running a plan")
    from placewright.runtime.local import bind

    _check_request(ranks, repeats, timeout, threads)
    progress = on_progress or (lambda what, done: None)
    progress("exporting", 0.0)
    module, args, kwargs = load_factory(factory.removeprefix("torch:"))
    program = export_inference(module, args, kwargs)
    return run_assignments(
        program,
        bind(program, args, kwargs),
        [Assignment(device_of, order)],
        ranks,
        repeats=repeats,
        timeout=timeout,
        threads=threads,
        rank_cores=rank_cores,
        on_progress=progress,
        modules=[factory.removeprefix("torch:").partition(":")[0]],
    )[0]


def run_assignments(
    program: ExportedProgram,
    values: Values,
    assignments: Sequence[Assignment],
    ranks: int,
    *,
    repeats: int = 5,
    timeout: float = 60.0,
    threads: int | Sequence[int] | None = None,
    rank_cores: Sequence[Sequence[int]] = (),
    on_progress: Progress | None = None,
    modules: Sequence[str] = (),
) -> list[RunReport]:
    """Run each of several assignments of one program in turn, the ranks being started once.

    Each rank has `threads`; by default the cores are shared out over the ranks. A rank is pinned
    to its `rank_cores`, if there are any.
    `modules` are imported by a rank of a program with operators that torch does not define.
    """
    from placewright.runtime.local import time_single
    from placewright.runtime.stages import cut

    _check_request(ranks, repeats, timeout, threads)
    progress = on_progress or (lambda what, done: None)
    cuts = [cut(program, each.device_of, each.order, ranks) for each in assignments]
    progress("running in one process", 0.1)
    own = _Own.of(ranks, threads or max(1, cores() // ranks), rank_cores)
    expected, single = time_single(program, values, repeats, max(own.threads))
    with ending_on_signals(), tempfile.TemporaryDirectory(prefix="placewright-") as name:
        folder = Path(name)
        _write_jobs(folder, cuts, values, ranks)
        settings = {
            "ranks": ranks,
            "threads": own.threads,
            "cores": own.cores,
            "repeats": repeats,
            "timeout": timeout,
            "path": sys.path,
            "modules": _modules(cuts, modules),
        }
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        progress(f"starting {ranks} ranks", 0.2)
        with Ranks(folder, ranks, own.threads) as processes:
            times = _Times(len(cuts), ranks, repeats)
            for rank, event in processes.events(timeout):
                times.add(rank, event)
                progress(f"running on {ranks} ranks", 0.3 + 0.7 * times.share)
        return _reports(folder, cuts, times, expected, single, own)


@dataclass(frozen=True)
class _Own:
    """What each rank has for itself: threads, and the logical CPUs it is pinned to."""

    threads: tuple[int, ...]
    cores: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, ranks: int, threads: int | Sequence[int], cores: Sequence[Sequence[int]]) -> _Own:
        each = (threads,) * ranks if isinstance(threads, int) else tuple(threads)
        return cls(each, tuple(map(tuple, cores)) or ((),) * ranks)


def device_threads(problem: Problem, used: Sequence[int]) -> int:
    """CPU threads of one device, where the devices `used` run as ranks of this machine.

    The CPUs of the cluster share its cores, whether or not the plan uses them all. Where it uses
    an accelerator, a rank stands for that too, and all devices share the cores.
    """
    only_cpus = bool(problem.is_cpu[list(used)].all())
    count = int(problem.is_cpu.sum()) if only_cpus else problem.device_count
    return max(1, cores() // count)


def _check_request(
    ranks: int, repeats: int, timeout: float, threads: int | Sequence[int] | None
) -> None:
    if os.name != "posix":
        raise ExecutionError("running a plan needs Linux or macOS")
    least = threads if isinstance(threads, int) else min(threads or (1,))
    counts = {"ranks": ranks, "repeats": repeats, "threads": least}
    for name, value in counts.items():
        if value < 1:
            raise OptionError(f"{name} is {value}; it must be at least 1")
    if not 0 < timeout <= _LONGEST_TIMEOUT:
        raise OptionError(f"timeout is {timeout}; it must be more than 0 s and at most a week")


def _write_jobs(folder: Path, cuts: Sequence[Sequence[Stage]], values: Values, ranks: int) -> None:
    from placewright.runtime.jobs import save_job

    for rank in range(ranks):
        save_job(folder, rank, [stages[rank] for stages in cuts], values)


def _modules(cuts: Sequence[Sequence[Stage]], given: Sequence[str]) -> list[str]:
    """What ranks must import: nothing, unless there are operators of others than torch."""
    from placewright.runtime.code import calls
    from placewright.runtime.targets import defining_modules, is_custom

    codes = [stage.code for stages in cuts for stage in stages]
    custom = any(is_custom(call.target) for code in codes for call in calls(code))
    return [*defining_modules(codes), *given] if custom else []


class _Times:
    """`runs[placement][repeat][rank]`: the event that tells when that run began and ended."""

    def __init__(self, placements: int, ranks: int, repeats: int) -> None:
        self.runs: list[list[dict[int, Event]]] = [
            [{} for _ in range(repeats + 1)] for _ in range(placements)
        ]
        self._expected = placements * (repeats + 1) * ranks
        self._seen = 0

    def add(self, rank: int, event: Event) -> None:
        if event["event"] == "run":
            self.runs[event["placement"]][event["repeat"]][rank] = event
            self._seen += 1

    @property
    def share(self) -> float:
        return self._seen / self._expected

    def makespans(self, placement: int) -> list[float]:
        """Of the timed repeats: the first, repeat 0, was the warm-up."""
        return [
            max(e["finished"] for e in run.values()) - min(e["started"] for e in run.values())
            for run in self.runs[placement][1:]
        ]

    def busy(self, placement: int, rank: int) -> float:
        timed = [run[rank] for run in self.runs[placement][1:]]
        seconds = [float(e["finished"] - e["started"] - e["waited"]) for e in timed]
        return statistics.median(seconds)


def _reports(
    folder: Path,
    cuts: Sequence[Sequence[Stage]],
    times: _Times,
    expected: Sequence[Any],
    single: float,
    own: _Own,
) -> list[RunReport]:
    from placewright.runtime.jobs import load_outputs
    from placewright.runtime.local import gather, max_abs_difference

    ranks = len(cuts[0]) if cuts else 0
    outputs = [load_outputs(folder, rank) for rank in range(ranks)]
    reports = []
    for number, stages in enumerate(cuts):
        found = gather(stages, [outputs[rank][number] for rank in range(ranks)])
        sends = [transfer for stage in stages for transfer in stage.sends]
        makespans = times.makespans(number)
        reports.append(
            RunReport(
                measured=statistics.median(makespans),
                fastest=min(makespans),
                single_process_seconds=single,
                max_abs_difference=max_abs_difference(expected, found),
                rank_busy_seconds=tuple(times.busy(number, rank) for rank in range(ranks)),
                transfer_count=len(sends),
                transfer_bytes=sum(transfer.bytes for transfer in sends),
                ranks=ranks,
                threads_per_rank=max(own.threads),
                repeats=len(makespans),
                rank_threads=own.threads,
                rank_cores=own.cores if any(own.cores) else (),
            )
        )
    return reports
