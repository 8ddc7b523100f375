"""``placewright replan``: a plan, and fewer or other devices than it was made for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placewright.cli import completion
from placewright.cli import options as o
from placewright.errors import OptionError

if TYPE_CHECKING:
    from placewright.whatif.replan import Replan


def command(
    plan: Annotated[Path, typer.Argument(help="A plan file.", metavar="PLAN")],
    *,
    lost: Annotated[
        list[str] | None,
        typer.Option(help="A device of the plan that is gone. May be repeated."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            "-c",
            help="The devices there are now: a preset, or a YAML or JSON file.",
            autocompletion=completion.clusters,
        ),
    ] = None,
    keep: Annotated[
        float,
        typer.Option(help="Share of the value that moving all weights has to save.", min=0.0),
    ] = 0.1,
    max_move: Annotated[
        str | None, typer.Option(help="Move at most so many bytes, such as 2GiB.")
    ] = None,
    planner: o.Planner = "auto",
    time_limit: Annotated[
        float,
        typer.Option(help="Seconds that planning may take; else work is counted.", min=0.0),
    ] = float("inf"),
    seed: o.Seed = 0,
    output: o.Output = None,
    wide: o.Wide = False,
    json: o.Json = False,
) -> None:
    """Plan again after devices are lost or changed, moving only the weights that are worth it.

    Prints what is gained for how many bytes moved, from repairing the plan to planning anew, and
    chooses. With --cluster the plan's source is read again (a torch: source runs its code).
    """
    from placewright.cli.output import announce_compilation, progress, remark
    from placewright.plan import Plan
    from placewright.verify import verify
    from placewright.whatif.changes import forwarders, on_cluster, without_devices
    from placewright.whatif.replan import check_objective, replan

    announce_compilation()
    if bool(lost) == (cluster is not None):
        both = "--lost and --cluster are two ways to say what has changed; give one of them"
        neither = "say what has changed: give either --lost DEVICE or --cluster"
        raise OptionError(both if lost else neither)
    limit = _bytes(max_move)
    old = Plan.load(plan)
    check_objective(old)
    o.keep_inputs("--output", output, cluster, old.source)
    verify(old).raise_if_failed()  # before what it says is believed, such as its pins
    with progress(quiet=json) as on_progress:
        if lost:
            problem = without_devices(old.problem, lost)
        else:
            assert cluster is not None
            problem = on_cluster(old, cluster)
        result = replan(
            old,
            problem,
            keep=keep,
            max_move=limit,
            planner=planner,
            time_limit=time_limit,
            seed=seed,
            on_progress=on_progress,
        )
    for name in forwarders(old.problem, lost or ()):
        remark(
            f"placewright: routes between other devices went over '{name}' and are kept; "
            "if they are gone, give --cluster"
        )
    if output is not None:
        result.chosen.plan.save(output)
    _print(result, output, json, wide)


def _print(result: Replan, output: Path | None, json: bool, wide: bool) -> None:
    from placewright.cli.output import console, print_json
    from placewright.report.device_table import device_table
    from placewright.report.terminal import summary
    from placewright.report.whatif import replan_record, replan_table

    if json:
        print_json(replan_record(result, output))
        return
    out = console(wide)
    out.print(replan_table(result))
    out.print(device_table(result.chosen.plan))
    out.print(summary(result.chosen.plan), markup=False)
    if output is not None:
        out.print(f"written to {output}", markup=False)


def _bytes(text: str | None) -> float:
    from placewright.units import parse_bytes

    if text is None:
        return float("inf")
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise OptionError(f"--max-move: {error}") from None
