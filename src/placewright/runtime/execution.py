"""Running assignments of a program to ranks, beside a single process that does the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placewright.runtime.job import Event, Job, Launcher, Own, Results
from placewright.runtime.launch import cores
from placewright.runtime.measured import Measured, make_report
from placewright.runtime.results import RunReport
from placewright.runtime.run_options import RunOptions

if TYPE_CHECKING:
    from placewright.importers.torch.programs import Executable
    from placewright.runtime.stages import Stage
    from placewright.runtime.values import Values

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Assignment:
    """Op → rank, and the order of the ops (None: the program's own)."""

    device_of: Mapping[str, int]
    order: Sequence[str] | None = None


def execute(
    source: str,
    device_of: Mapping[str, int],
    ranks: int,
    order: Sequence[str] | None = None,
    *,
    training: bool = False,
    options: RunOptions | None = None,
    on_progress: Progress | None = None,
) -> RunReport:
    """Run a source's program on `ranks` ranks and compare the results with one process.

    `device_of` gives every op of the exported program its rank, `order` the order of the ops
    (see `stages.cut`). Raises InputError for a source, placement or order that does not fit, and
    ExecutionError, all ranks being ended, if a rank fails, or if no rank reports anything for
    ``options.timeout`` seconds.
    """
    from placewright.importers.torch.programs import load_executable
    from placewright.importers.torch.tracing import import_torch

    import_torch("running a plan")
    from placewright.runtime.values import values_of

    options = options or RunOptions()
    options.check(ranks)
    progress = on_progress or (lambda what, done: None)
    progress("exporting", 0.0)
    program = load_executable(source, training=training)
    return run_assignments(
        program,
        values_of(program),
        [Assignment(device_of, order)],
        ranks,
        options=options,
        on_progress=progress,
        modules=_modules_of(source),
    )[0]


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

    `modules` are imported by a rank of a program with operators that torch does not define.
    """
    from placewright.runtime.reference import time_single
    from placewright.runtime.stages import cut

    options = options or RunOptions()
    options.check(ranks)
    progress = on_progress or (lambda what, done: None)
    cuts = [cut(program, each.device_of, each.order, ranks) for each in assignments]
    calls = options.calls(program)
    own = Own.of(ranks, options.threads or max(1, cores() // ranks), options.rank_cores)
    progress("running in one process", 0.1)
    threads = max(own.threads)
    reference = time_single(program, values, 1 + calls.repeats, threads, calls.optimizer)
    progress(f"starting {ranks} ranks", 0.2)
    measured = Measured(len(cuts), ranks, calls)

    def hear(rank: int, event: Event) -> None:
        measured.add(rank, event)
        progress(f"running on {ranks} ranks", 0.3 + 0.7 * measured.share)

    job = Job(cuts, values, own, calls, options.timeout, _modules(cuts, modules))
    results = _in_order(cuts, _launcher(options.launcher)(job, hear))
    return [
        make_report(program, stages, measured.of[number], results[number], own, reference)
        for number, stages in enumerate(cuts)
    ]


def _launcher(name: str) -> Launcher:
    if name == "local":
        from placewright.runtime.local import launch_threads

        return launch_threads
    from placewright.runtime.distributed import launch_processes

    return launch_processes


def _in_order(cuts: Sequence[Sequence[Stage]], results: Results) -> list[list[list[Any]]]:
    """`[assignment][call]`: the program's results, in its order."""
    from placewright.runtime.reference import gather

    return [
        [gather(stages, call) for call in zip(*(each[number] for each in results), strict=True)]
        for number, stages in enumerate(cuts)
    ]


def _modules(cuts: Sequence[Sequence[Stage]], given: Sequence[str]) -> list[str]:
    """What ranks must import: nothing, unless there are operators of others than torch."""
    from placewright.runtime.code import calls
    from placewright.runtime.targets import defining_modules, is_custom

    codes = [stage.code for stages in cuts for stage in stages]
    custom = any(is_custom(call.target) for code in codes for call in calls(code))
    return [*defining_modules(codes), *given] if custom else []


def _modules_of(source: str) -> list[str]:
    """The Python module of a factory, which may define operators of its own."""
    kind, _, spec = source.partition(":")
    return [spec.partition(":")[0]] if kind == "torch" else []
