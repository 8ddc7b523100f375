"""``placewright improve``: go on from a plan file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placewright.cli import options as o
from placewright.cli.groups import grouped


@grouped
def command(
    plan: Annotated[Path, typer.Argument(help="A plan file.", metavar="PLAN")],
    *,
    planner: o.Planner = "auto",
    time_limit: o.TimeLimit = float("inf"),
    search: o.Search,
    seed: o.Seed = 0,
    events: o.Events = None,
    output: o.Output = None,
    quiet: o.Quiet = False,
    wide: o.Wide = False,
    json: o.Json = False,
) -> None:
    """Look for a better plan than PLAN, and for a better proof, on the problem that it carries.

    The better plan replaces PLAN, or is written to --output; a plan that cannot be bettered stays
    as it is, with the better bound.
    """
    from placewright.cli.gaps import Gaps
    from placewright.cli.observing import observed
    from placewright.cli.output import (
        announce_compilation,
        in_one_line,
        print_line,
        print_plan,
        print_remarks,
        progress,
    )
    from placewright.formats.files import check_writable
    from placewright.planning import improve

    target = output or plan
    if output is None:
        check_writable(plan)  # before the time that planning takes
    o.keep_inputs("--events", events, plan, target)
    if not quiet:
        announce_compilation()
    gaps = Gaps()
    with (
        progress(quiet=json or quiet, gaps=gaps) as on_progress,
        observed(events, planner, gaps=gaps) as on_event,
    ):
        better = improve(
            plan,
            planner=planner,
            planner_options=search.planner_options,
            time_limit=time_limit,
            seed=seed,
            checkpoint=target,
            on_event=on_event,
            on_progress=on_progress,
        )
    better.save(target)
    if json or not in_one_line(quiet, wide):
        print_plan(better, target, json, wide=wide)
        return
    print_line(better, target)
    if not quiet:
        print_remarks([better])
