"""``placewright run``: execute a plan for real."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placewright.cli import options as o
from placewright.cli.groups import grouped
from placewright.cli.run_options import How
from placewright.cli.run_results import Uses, use_results

if TYPE_CHECKING:
    from placewright.plan import Plan
    from placewright.runtime import RunOptions, RunReport


@grouped
def command(
    plan: Annotated[Path, typer.Argument(help="A plan file.", metavar="PLAN")],
    how: How,
    uses: Uses,
    json: o.Json = False,
) -> None:
    """Run a plan, a rank per device it uses; compare with a single process.

    Prints measured beside predicted time, of the whole and of what lost most, and how far the
    outputs are from those of one process.
    """
    o.keep_inputs("--trace", uses.trace, plan, uses.profiles)
    from placewright.runtime.torchrun_summary import errors_told_to_torchrun

    with errors_told_to_torchrun() if how.launcher == "torchrun" else nullcontext():
        _run_file(plan, how, uses, json=json)


def _run_file(path: Path, how: How, uses: Uses, *, json: bool) -> None:
    from placewright.plan import Plan
    from placewright.runtime.dispatch import is_onnx
    from placewright.verify import verify

    plan = Plan.load(path)
    verify(plan).raise_if_failed()
    if plan.problem.options.objective == "throughput" and not is_onnx(plan.source):
        _run_pipeline(plan, path, how, uses, json=json)
        return
    how.refuse_pipeline_options(onnx=is_onnx(plan.source))
    report = _run(plan, how.options(plan), quiet=json)
    if report is not None:
        use_results(plan, report, path, uses, json=json)


def _run(plan: Plan, options: RunOptions, *, quiet: bool) -> RunReport | None:
    """None where another process of torchrun's reports."""
    from placewright.cli.output import progress
    from placewright.runtime import run_plan, run_rank

    if options.launcher == "torchrun":
        return run_rank(plan, options)
    with progress(quiet=quiet) as on_progress:
        return run_plan(plan, options, on_progress=on_progress)


def _run_pipeline(plan: Plan, path: Path, how: How, uses: Uses, *, json: bool) -> None:
    from placewright.cli.output import console, print_json, progress
    from placewright.report.pipelines import pipeline_record, pipeline_table
    from placewright.runtime.pipelined import run_pipeline

    uses.refuse("a pipeline's steps are torch's own, of which no clock is read")
    with progress(quiet=json) as on_progress:
        report = run_pipeline(
            plan,
            how.options(plan),
            schedule=how.schedule,
            micro_batches=how.micro_batches,
            steps=how.steps,
            on_progress=on_progress,
        )
    if json:
        print_json(pipeline_record(plan, report, path))
    else:
        console().print(pipeline_table(plan, report))
