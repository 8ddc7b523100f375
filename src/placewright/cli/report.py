"""``placewright report``: plans as a page of HTML, and as figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placewright.cli import options as o
from placewright.errors import OptionError


def command(
    plans: Annotated[list[Path], typer.Argument(help="Plan files.", metavar="PLANS")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            callback=o.writable,
            help="Write the page to this file.",
            metavar="FILE",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Draw figures for a paper, SVG and PNG, into this new folder (extra 'figures').",
            metavar="DIR",
        ),
    ] = None,
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

    Several plans are compared. The file needs no network and no server. With --figures they are
    drawn for a paper too. Each plan is judged first: exit code 4 if one is wrong.
    """
    from placewright.cli.output import announce_compilation, console, print_json

    if output is None and figures is None:
        raise OptionError("say what to write: a page (-o FILE), figures (--figures DIR), or both")
    if output is None and what_if is not None:
        raise OptionError("--what-if is shown on a page; give -o FILE too")
    o.keep_inputs("--output", output, *plans, run)
    announce_compilation()
    drawn = [] if figures is None else _drawn(plans, figures, run)
    if output is not None:
        _page(plans, output, run=run, what_if=what_if, quiet=json)
    if json:
        print_json(
            {
                "path": None if output is None else str(output),
                "bytes": None if output is None else output.stat().st_size,
                "plans": [str(plan) for plan in plans],
                "run": None if run is None else str(run),
                "figures": [str(path) for path in drawn],
            }
        )
        return
    for path in (*drawn, *([output] if output is not None else [])):
        console().print(f"written to {path}", markup=False, soft_wrap=True)


def _drawn(plans: list[Path], folder: Path, run: Path | None) -> list[Path]:
    from placewright.plan import Plan
    from placewright.report.figures.writing import check_figures, figures

    check_figures(folder)
    return figures([Plan.load(plan) for plan in plans], folder, run)


def _page(
    plans: list[Path], output: Path, *, run: Path | None, what_if: float | None, quiet: bool
) -> None:
    from placewright.cli.output import progress
    from placewright.report.html.writing import report

    with progress(quiet=quiet or what_if is None) as on_progress:
        report(plans, output, run=run, what_if=what_if, on_progress=on_progress)
