"""Running assignments of a program to ranks, beside a single process that does the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placewright.budget import Progress, no_progress
from placewright.costs.machine import available_memory
from placewright.runtime.decoding import prepared, with_tokens
from placewright.runtime.measured import Measured, make_report
from placewright.runtime.ranks.job import Event, Job, Launcher, Own, Results
from placewright.runtime.ranks.launch import cores
from placewright.runtime.results import RunReport
from placewright.runtime.run_options import RunOptions

if TYPE_CHECKING:
    from placewright.importers.torch.programs import Executable
    from placewright.problem import Problem
    from placewright.runtime.reference import Reference
    from placewright.runtime.stages.cutting import Stage
    from placewright.runtime.values import Values


@dataclass(frozen=True)
class Assignment:
    """Op → rank, and the order of the ops (None: the program's own).

    `program` is what ranks run, where that is not the program that one process runs beside them.
    """

    device_of: Mapping[str, int]
    order: Sequence[str] | None = None
    program: Executable | None = None


def execute(
    source: str,
    device_of: Mapping[str, int],
    ranks: int,
    order: Sequence[str] | None = None,
    *,
    training: bool = False,
    problem: Problem | None = None,
    options: RunOptions | None = None,
    on_progress: Progress | None = None,
) -> RunReport | None:
    """Run a source's program on `ranks` ranks and compare the results with one process.

    None where another process that torchrun started reports.

    `device_of` gives every op of the exported program its rank, `order` the order of the ops
    (see `stages.cut`). Where a plan's `problem` has ops that run again, so do the program's.

    Raises InputError for a source, placement or order that does not fit, and ExecutionError, all
    ranks being ended, if a rank fails, or if no rank reports anything for ``options.timeout``
    seconds.
    """
    options = options or RunOptions()
    options.check(ranks)
    progress = on_progress or no_progress
    progress("exporting", 0.0)
    program, values = load(source, options, training=training)
    options, values = prepared(program, values, options)
    reports = run_assignments(
        program,
        values,
        [Assignment(device_of, order, _recomputed(program, problem))],
        ranks,
        options=options,
        on_progress=progress,
        modules=modules_of(source),
    )
    return with_tokens(reports[0], values, options) if reports else None


def load(source: str, options: RunOptions, *, training: bool) -> tuple[Executable, Values]:
    """The program of a source, and what it is run on. OptionError where there is no program.

    A module whose weights come from elsewhere is built without memory.
    """
    from placewright.importers.torch import programs
    from placewright.importers.torch.tracing import import_torch

    import_torch("running a plan")
    from placewright.runtime.stages.constants import without_constants
    from placewright.runtime.values import loaded_values

    module = None
    if source.startswith(("torch:", "hf:")):
        is_elsewhere = options.weights is not None
        loaded = programs.load_module(source, meta=is_elsewhere, training=training)
        module, program = loaded[0], programs.from_module(loaded, source, training=training)
    else:
        program = programs.load_executable(source, training=training)
    program = without_constants(program)
    values = loaded_values(
        source, program, module, options.weights, options.seed, inputs=options.inputs
    )
    return program, values


def _recomputed(program: Executable, problem: Problem | None) -> Executable | None:
    if problem is None:
        return None
    from placewright.runtime.stages.recomputed import with_recomputed

    return with_recomputed(program, problem)


def run_assignments(
    program: Executable,
    values: Values,
    assignments: Sequence[Assignment],
    ranks: int,
    *,
    options: RunOptions | None = None,
    on_progress: Progress | None = None,
    modules: Sequence[str] = (),
) -> list[RunReport]:
    """Run each of several assignments of one program in turn, the ranks being started once.

    `modules` are imported by a rank of a program with operators that torch does not define. No
    reports where another process that torchrun started makes them.
    """
    from placewright.runtime.stages.cutting import cut

    options = options or RunOptions()
    options.check(ranks)
    progress = on_progress or no_progress
    cuts = [cut(each.program or program, each.device_of, each.order, ranks) for each in assignments]
    job = _job(program, values, cuts, options, modules)
    measured = Measured(len(cuts), ranks, job.calls)
    progress(f"starting {ranks} ranks", 0.1)

    def hear(rank: int, event: Event) -> None:
        measured.add(rank, event)
        progress(f"running on {ranks} ranks", 0.2 + 0.6 * measured.share)

    results = _launcher(options.launcher)(job, hear)
    if results is None:
        return []
    progress("running in one process", 0.8)
    found = _in_order(cuts, results)
    reference = _reference(program, values, job)
    progress("done", 1.0)
    return [
        make_report(program, stages, measured, number, found[number], job.own, reference)
        for number, stages in enumerate(cuts)
    ]


def _job(
    program: Executable,
    values: Values,
    cuts: Sequence[Sequence[Stage]],
    options: RunOptions,
    modules: Sequence[str],
) -> Job:
    from placewright.runtime.stages.targets import modules_to_import

    ranks = len(cuts[0])
    return Job(
        cuts,
        values,
        Own.of(
            ranks,
            options.threads or max(1, cores() // ranks),
            options.rank_cores,
            options.rank_gpus,
        ),
        options.calls(program),
        options.timeout,
        modules_to_import([stage.code for stages in cuts for stage in stages], modules),
        options.memory_limits,
        options.interface,
    )


def _reference(program: Executable, values: Values, job: Job) -> Reference:
    """What one process gives; weights that are more than half of free memory are streamed."""
    from placewright.runtime.ranks.failures import compared_with
    from placewright.runtime.reference import run_streamed, time_single
    from placewright.runtime.weights import bytes_of

    amount = bytes_of(values.weights, set(program.weights.values()))
    calls, threads = job.calls, max(job.own.threads)
    with compared_with():
        if amount > available_memory() / 2 and not calls.keep_all:
            return run_streamed(program, values)
        return time_single(program, values, 1 + calls.repeats, threads, calls.optimizer)


def _launcher(name: str) -> Launcher:
    if name == "local":
        from placewright.runtime.ranks.local import launch_threads

        return launch_threads
    if name == "torchrun":
        from placewright.runtime.torchrun import launch_torchrun

        return launch_torchrun
    from placewright.runtime.ranks.distributed import launch_processes

    return launch_processes


def _in_order(cuts: Sequence[Sequence[Stage]], results: Results) -> list[list[list[Any]]]:
    """`[assignment][call]`: the program's results, in its order."""
    from placewright.runtime.reference import gather

    return [
        [gather(stages, call) for call in zip(*(each[number] for each in results), strict=True)]
        for number, stages in enumerate(cuts)
    ]


def modules_of(source: str) -> list[str]:
    """The Python module of a factory, which may define operators of its own."""
    kind, _, spec = source.partition(":")
    return [spec.partition(":")[0]] if kind == "torch" else []
