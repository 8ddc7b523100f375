"""``placewright run``: execute a plan for real."""

from __future__ import annotations

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
    from placewright.plan import Plan

    loaded = Plan.load(plan)
    report = _run(loaded, how.options(loaded), quiet=json)
    if report is not None:
        use_results(loaded, report, plan, uses, json=json)


def _run(plan: Plan, options: RunOptions, *, quiet: bool) -> RunReport | None:
    """None where another process of torchrun's reports."""
    from placewright.cli.output import progress
    from placewright.runtime import run_plan, run_rank

    if options.launcher == "torchrun":
        return run_rank(plan, options)
    with progress(quiet=quiet) as on_progress:
        return run_plan(plan, options, on_progress=on_progress)
