"""Ranks as processes of this machine, beside a single process that does the same.

The program is exported once, here, and cut; each rank is given its own stage with the weights it
needs, in a private temporary directory (so factories need not be deterministic, nor is a model
built once per rank; the directory holds a copy of the weights while the run lasts). Ranks talk
over torch.distributed's gloo backend on the loopback interface.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.runtime.launch import Ranks, cores, ending_on_signals
from placewright.runtime.measured import Measured, Own, make_report
from placewright.runtime.results import RunReport
from placewright.runtime.run_options import RunOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from placewright.importers.torch.programs import Executable
    from placewright.runtime.calls import Calls
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
    """Run a source's program on `ranks` processes and compare the results with one process.

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
    measured = Measured(len(cuts), ranks, calls)
    with ending_on_signals(), tempfile.TemporaryDirectory(prefix="placewright-") as name:
        folder = Path(name)
        _write_jobs(folder, cuts, values, ranks)
        _write_settings(folder, own, calls, options.timeout, _modules(cuts, modules))
        progress(f"starting {ranks} ranks", 0.2)
        with Ranks(folder, ranks, own.threads) as processes:
            for rank, event in processes.events(options.timeout):
                measured.add(rank, event)
                progress(f"running on {ranks} ranks", 0.3 + 0.7 * measured.share)
        results = _results(folder, cuts)
    return [
        make_report(program, stages, measured.of[number], results[number], own, reference)
        for number, stages in enumerate(cuts)
    ]


def _write_settings(
    folder: Path, own: Own, calls: Calls, timeout: float, modules: Sequence[str]
) -> None:
    settings = {
        "ranks": len(own.threads),
        "threads": own.threads,
        "cores": own.cores,
        "calls": calls.to_document(),
        "timeout": timeout,
        "path": sys.path,
        "modules": modules,
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")


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


def _results(folder: Path, cuts: Sequence[Sequence[Stage]]) -> list[list[list[Any]]]:
    """`[assignment][call]`: the program's results, in its order."""
    from placewright.runtime.jobs import load_outputs
    from placewright.runtime.reference import gather

    ranks = len(cuts[0]) if cuts else 0
    outputs = [load_outputs(folder, rank) for rank in range(ranks)]
    return [
        [gather(stages, call) for call in zip(*(each[number] for each in outputs), strict=True)]
        for number, stages in enumerate(cuts)
    ]


def _modules_of(source: str) -> list[str]:
    """The Python module of a factory, which may define operators of its own."""
    kind, _, spec = source.partition(":")
    return [spec.partition(":")[0]] if kind == "torch" else []
