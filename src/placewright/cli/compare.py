"""``placewright compare``: several planners side by side on one problem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from placewright.cli import completion
from placewright.cli import options as o
from placewright.cli.groups import grouped


@grouped
def command(
    source: o.Source,
    *,
    cluster: o.Cluster = None,
    planners: Annotated[
        str | None,
        typer.Option(
            help="Names parted by commas (the quick ones if not given).",
            autocompletion=completion.planners_in_a_row,
        ),
    ] = None,
    problem: o.Problem,
    coarsen: o.Coarsening = "none",
    granularity: o.Granularity = "op",
    mix: o.Mix = None,
    time_limit: o.TimeLimit = float("inf"),
    seed: o.Seed = 0,
    output: o.Output = None,
    wide: o.Wide = False,
    json: o.Json = False,
) -> None:
    """Plan SOURCE with several planners and print them side by side.

    The time limit is for all of them together; each may take an even share of what is left.
    """
    from placewright.cli.output import (
        announce_compilation,
        console,
        print_json,
        print_remarks,
        progress,
        remark,
    )
    from placewright.planning import make_problem
    from placewright.report.records import comparison_records
    from placewright.solving import best_of, compare

    o.keep_inputs("--output", output, source, cluster, problem.profiles)
    announce_compilation()
    names = None if planners is None else [name.strip() for name in planners.split(",")]
    if mix is not None:
        asked = problem.of_requests(granularity)
        asked |= {"coarsening": coarsen, "time_limit": time_limit, "seed": seed}
        _compare_mix(source, cluster, mix, names, asked, output, json, wide=wide)
        return
    with progress(quiet=json) as on_progress:
        made, source_name = make_problem(
            source,
            cluster,
            problem.options,
            training=problem.training,
            costs=problem.costs,
            pinned=problem.pinned,
            coarsening=coarsen,
            granularity=granularity,
        )
        lines = compare(
            made,
            names,
            coarsening=coarsen,
            time_limit=time_limit,
            seed=seed,
            source=source_name,
            on_progress=on_progress,
        )
    if json:
        if output is not None and any(line.plan for line in lines):
            best_of(lines).save(output)
        print_json(comparison_records(lines, output))
    else:
        from placewright.report.terminal import ComparisonTable, failures

        console(wide).print(ComparisonTable(lines, made.name))
        if any(line.plan for line in lines):  # else the error below has them all
            for failure in failures(lines):
                remark(failure)
    best = best_of(lines)
    if not json:
        if output is not None:
            best.save(output)
        print_remarks([best])


def _compare_mix(
    source: str,
    cluster: str | None,
    mix: str,
    names: list[str] | None,
    asked: dict[str, Any],
    output: Path | None,
    json: bool,
    *,
    wide: bool,
) -> None:
    """Prefill and decode of a source together, by each planner; `asked` is of the problem and the
    search."""
    from placewright.cli.output import console, print_json, progress, remark
    from placewright.report.serving import request_records, request_table
    from placewright.report.terminal import failures
    from placewright.serving.planning import compare_requests

    with progress(quiet=json) as on_progress:
        lines = compare_requests(source, cluster, mix, names, on_progress=on_progress, **asked)
    if output is not None:
        served = [line.served for line in lines if line.served is not None]
        min(served, key=lambda each: each.value).plan.save(output)
    if json:
        print_json(request_records(lines, output))
        return
    console(wide).print(request_table(lines))
    for failure in failures(lines):
        remark(failure)
