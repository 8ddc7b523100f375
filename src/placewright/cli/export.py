"""``placewright export``: a plan as what an engine reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placewright.cli import options as o
from placewright.exporters.engines import ENGINES

_OPTIONS = "; ".join(
    f"{row.name}: {', '.join(row.options)}" for row in ENGINES.values() if row.options
)
FOLDERS = " and ".join(name for name, row in ENGINES.items() if row.folder)


def command(
    plan: Annotated[Path, typer.Argument(help="A plan file.", metavar="PLAN")],
    *,
    to: Annotated[str, o.chosen("The engine or format.", tuple(ENGINES))],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            callback=o.named_file,
            help=f"Write to this file; for {FOLDERS}, to this new folder.",
            metavar="PATH",
        ),
    ],
    option: Annotated[
        list[str] | None,
        typer.Option(
            "-O", help=f"KEY=VALUE: an option of the engine ({_OPTIONS}). May be repeated."
        ),
    ] = None,
    json: o.Json = False,
) -> None:
    """Write PLAN as what an engine reads, and say how to use it.

    Exit code 2, with the reason, for a plan that the engine cannot express.
    """
    from placewright.cli.output import console, print_json
    from placewright.exporters.exporting import export
    from placewright.plan import Plan

    loaded = Plan.load(plan)
    o.keep_inputs("--output", output, plan, loaded.source)
    lines = export(loaded, to, output, o.pairs(option, "-O"))
    if json:
        print_json({"plan": str(plan), "engine": to, "path": str(output), "use": lines})
        return
    for line in lines:
        console().print(line, markup=False, soft_wrap=True)
    console().print(f"written to {output}", markup=False)
