"""``placewright demo``: the whole path on a real model and a real cluster, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placewright.cli import options as o

MODEL = "zoo:llama-13b"
CLUSTER = "4090+3060"
SECONDS = 25.0  # the quick planners take two, the default planner the rest


def command(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", callback=o.writable, help="Where the best plan is written."),
    ] = Path("placewright-demo.json"),
    wide: o.Wide = False,
    json: o.Json = False,
) -> None:
    """Plan a Llama of 13 billion parameters on an RTX 4090 and an RTX 3060, by several planners.

    Its weights fit neither GPU alone. The quick planners take a moment each, the default planner
    `auto` the rest of 25 seconds. The best plan is judged once more from its file.
    """
    from placewright.cli.output import announce_compilation, console, print_json, progress, remark
    from placewright.plan import Plan
    from placewright.planning import AUTO, make_problem
    from placewright.report.records import comparison_records, plan_record
    from placewright.solving import best_of, compare, quick_planners
    from placewright.verify import verify

    announce_compilation()
    with progress(quiet=json) as on_progress:
        problem, source = make_problem(MODEL, CLUSTER)
        planners = [*quick_planners(problem), AUTO]
        lines = compare(
            problem, planners, time_limit=SECONDS, source=source, on_progress=on_progress
        )
    best = best_of(lines)
    best.save(output)
    verify(Plan.load(output)).raise_if_failed()
    if json:
        print_json({"planners": comparison_records(lines), "best": plan_record(best, output)})
        return
    from placewright.report.device_table import device_table
    from placewright.report.terminal import ComparisonTable, failures, summary

    out = console(wide)
    out.print(ComparisonTable(lines, f"{MODEL} on {CLUSTER}"))
    for failure in failures(lines):
        remark(failure)
    out.print(device_table(best))
    out.print(summary(best), markup=False)
    out.print(f"verified, and written to {output}", markup=False)
