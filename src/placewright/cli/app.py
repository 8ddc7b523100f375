"""The application: every command, in the order of the help page."""

from __future__ import annotations

from typing import Annotated

import typer

from placewright.cli import (
    cluster,
    compare,
    demo,
    explain,
    export,
    imports,
    improve,
    info,
    judge,
    plan,
    planners,
    profile,
    profiles,
    replan,
    report,
    run,
    schema,
    sweep,
    tune,
    verify,
    warm_up,
    zoo,
)

app = typer.Typer(
    name="placewright",
    help="Decide where each operator of a neural network runs, and prove how good the answer is.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("plan")(plan.command)
app.command("improve")(improve.command)
app.command("compare")(compare.command)
app.command("sweep")(sweep.command)
app.command("replan")(replan.command)
app.command("verify")(verify.command)
app.command("judge")(judge.command)
app.command("explain")(explain.command)
app.command("export")(export.command)
app.command("report")(report.command)
app.command("run")(run.command)
app.command("tune")(tune.command)
app.command("info")(info.command)
app.command("planners")(planners.command)
app.command("zoo")(zoo.command)
app.add_typer(cluster.app, name="cluster")
app.command("profile")(profile.command)
app.add_typer(profiles.app, name="profiles")
app.command("schema")(schema.command)
app.command("demo")(demo.command)
app.command("imports")(imports.command)
app.command("warm-up")(warm_up.command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from placewright.version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version"),
    ] = False,
) -> None:
    """Decide where each operator of a neural network runs, and prove how good the answer is."""
