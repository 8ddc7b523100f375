"""``placewright run``: execute a plan for real."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placewright.cli import options as o


def command(
    plan: Annotated[Path, typer.Argument(help="A plan file.", metavar="PLAN")],
    repeats: Annotated[int, typer.Option(help="Timed runs, after one warm-up.", min=1)] = 5,
    timeout: Annotated[float, typer.Option(help="Seconds before a rank counts as stuck.")] = 60.0,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of each rank; if not given, those of its device.", min=1),
    ] = None,
    json: o.Json = False,
) -> None:
    """Run a plan on CPU ranks of this machine, one per device it uses; compare with one process.

    The plan's source must be torch:PACKAGE.MODULE:FACTORY. Prints measured beside predicted
    time, and how far the outputs are from those of a single process.
    """
    from placewright.cli.output import console, print_json, progress
    from placewright.plan import Plan
    from placewright.runtime import RunOptions, run_plan

    loaded = Plan.load(plan)
    with progress(quiet=json) as on_progress:
        options = RunOptions(repeats=repeats, timeout=timeout, threads=threads)
        report = run_plan(loaded, options, on_progress=on_progress)
    if json:
        from placewright.report.records import plan_record

        print_json(plan_record(loaded, plan) | report.to_document())
        return
    from placewright.report.terminal import run_table

    console().print(run_table(loaded, report))
