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
    json: o.Json = False,
) -> None:
    """Write PLANS as one HTML file: the answer, the schedule, the devices, the model.

    Several plans are compared. The file needs no network and no server. Each plan is judged first:
    exit code 4 if one is wrong.
    """
    from placewright.cli.output import console, print_json
    from placewright.report.html.writing import report

    report(plans, output, run=run)
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
