"""``placewright compare``: several planners side by side on one problem."""

from __future__ import annotations

from typing import Annotated

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

    announce_compilation()
    names = None if planners is None else [name.strip() for name in planners.split(",")]
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
        print_json(comparison_records(lines))
    else:
        from placewright.report.terminal import ComparisonTable, failures

        console(wide).print(ComparisonTable(lines, made.name))
        if any(line.plan for line in lines):  # else the error below has them all
            for failure in failures(lines):
                remark(failure)
    best = best_of(lines)
    if output is not None:
        best.save(output)
    if not json:
        print_remarks([best])
