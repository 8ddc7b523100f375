"""``placewright tune``: plan, run, learn from the run, plan again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placewright.cli import completion
from placewright.cli import options as o

if TYPE_CHECKING:
    from placewright.runtime.tuning.tuning import Round, Tuning


def command(
    source: Annotated[
        str,
        typer.Argument(
            help="torch:PACKAGE.MODULE:FACTORY, or another source that can be run.",
            metavar="SOURCE",
            autocompletion=completion.sources,
        ),
    ],
    *,
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster",
            "-c",
            help="A cluster of devices of this machine, as 'cluster detect --split-cpu 2' writes.",
            autocompletion=completion.clusters,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", callback=o.writable, help="Write the fastest plan to this file."
        ),
    ],
    rounds: Annotated[int, typer.Option(help="Plan and run at most so many times.", min=1)] = 3,
    planner: o.LatencyPlanner = "auto",
    time_limit: o.TimeLimit = float("inf"),
    training: o.TrainingRun = False,
    repeats: Annotated[int, typer.Option(help="Timed calls in each run.", min=1)] = 5,
    timeout: Annotated[float, typer.Option(help="Seconds before a rank counts as stuck.")] = 60.0,
    profiles: o.Profiles = None,
    seed: o.Seed = 0,
    wide: o.Wide = False,
    json: o.Json = False,
) -> None:
    """Look for the plan that is fastest when it is run: measure ops, plan, run, learn, again.

    The plan of the least measured time is in the output file as soon as it was run.
    """
    from functools import partial

    from placewright.cli.output import announce_compilation, progress
    from placewright.costs.profiles.store import ProfileStore
    from placewright.runtime import RunOptions, run_plan
    from placewright.runtime.tuning.tuning import TuneOptions, tune

    def keep(done: Round) -> None:
        if done.kept:
            done.plan.save(output)

    o.keep_inputs("--output", output, source, cluster, profiles)
    announce_compilation()
    asked = TuneOptions(rounds, planner, time_limit, seed, training)
    with ProfileStore(profiles) as store, progress(quiet=json) as on_progress:
        run = partial(
            run_plan,
            options=RunOptions(repeats=repeats, timeout=timeout),
            on_progress=on_progress,
        )
        found = tune(source, cluster, store, asked, run=run, on_round=keep, on_progress=on_progress)
    _print(found, output, json, wide)


def _print(found: Tuning, output: Path, json: bool, wide: bool) -> None:
    from placewright.cli.output import console, print_json, print_plan
    from placewright.report.records import plan_record
    from placewright.report.tuning import calibration_lines, round_records, rounds_table

    best = found.best
    if json:
        measured = {"predicted": best.predicted, "measured": best.measured, "round": best.number}
        rounds = {"rounds": round_records(found.rounds)}
        print_json(plan_record(best.plan, output) | measured | rounds)
        return
    out = console(wide)
    out.print(rounds_table(found.rounds))
    for line in calibration_lines(found.rounds[-1].calibration):
        out.print(line, markup=False, soft_wrap=True)
    print_plan(best.plan, output, json, wide=wide)
