"""``placewright report``: plans as a page of HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placewright.cli import options as o


def command(
    plans: Annotated[list[Path], typer.Argument(help="Plan files.", metavar="PLANS")],
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            callback=o.writable,
            help="Write the page to this file.",
            metavar="FILE",
        ),
    ],
    run: Annotated[
        Path | None,
        typer.Option(
            help="Show a run beside its plan: what 'run PLAN --json' printed.", metavar="FILE"
        ),
    ] = None,
    what_if: Annotated[
        float | None,
        typer.Option(
            help="Plan for so many seconds what more memory, a faster link or a device less would "
            "do to each plan, and show it.",
            metavar="SECONDS",
        ),
    ] = None,
    json: o.Json = False,
) -> None:
    """Write PLANS as one HTML file: the answer, the schedule, the devices, the model.

    Several plans are compared. The file needs no network and no server. Each plan is judged first:
    exit code 4 if one is wrong.
    """
    from placewright.cli.output import announce_compilation, console, print_json, progress
    from placewright.report.html.writing import report

    announce_compilation()
    with progress(quiet=json or what_if is None) as on_progress:
        report(plans, output, run=run, what_if=what_if, on_progress=on_progress)
    size = output.stat().st_size
    if json:
        print_json(
            {
                "path": str(output),
                "bytes": size,
                "plans": [str(plan) for plan in plans],
                "run": None if run is None else str(run),
            }
        )
        return
    console().print(f"written to {output}", markup=False, soft_wrap=True)
