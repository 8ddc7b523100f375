"""``placewright demo``: the whole path on a real model and a real cluster, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placewright.cli import options as o

MODEL = "zoo:gpt3-13b"
CLUSTER = "moirai-inter-server"


def command(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", callback=o.writable, help="Where the best plan is written."),
    ] = Path("placewright-demo.json"),
    json: o.Json = False,
) -> None:
    """Plan a 13-billion-parameter GPT on four unequal GPU servers with every quick planner.

    The model is GPT-3 13B at Moirai's granularity, the cluster Moirai's inter-server testbed
    (Table III). Transfers contend for ports (Moirai eq. 8). The best plan is judged once more
    from its file.
    """
    from placewright.cli.output import announce_compilation, console, print_json, progress, remark
    from placewright.plan import Plan
    from placewright.planning import make_problem
    from placewright.report.records import comparison_records, plan_record
    from placewright.solving import best_of, compare
    from placewright.verify import verify

    announce_compilation()
    with progress(quiet=json) as on_progress:
        problem, source = make_problem(MODEL, CLUSTER, {"contention": "port"})
        lines = compare(problem, source=source, on_progress=on_progress)
    best = best_of(lines)
    best.save(output)
    verify(Plan.load(output)).raise_if_failed()
    if json:
        print_json({"planners": comparison_records(lines), "best": plan_record(best, output)})
        return
    from placewright.report.terminal import ComparisonTable, device_table, failures, summary

    out = console()
    out.print(ComparisonTable(lines, f"{MODEL} on {CLUSTER}"))
    for failure in failures(lines):
        remark(failure)
    out.print(device_table(best))
    out.print(summary(best), markup=False)
    out.print(f"verified, and written to {output}", markup=False)
