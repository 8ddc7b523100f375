"""``placewright profile``: measure a source's ops on the devices at hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from placewright.cli import completion
from placewright.cli import options as o
from placewright.costs.profiles.entry import Missing, Way
from placewright.errors import OptionError

if TYPE_CHECKING:
    from placewright.costs.profiles.profiling import DeviceProfile

QUIETEN = "quieten the machine, prune these and profile again"
METHODS, MISSING = get_args(Way), get_args(Missing)


def command(
    source: Annotated[
        str,
        typer.Argument(
            help="torch:PACKAGE.MODULE:FACTORY, hf:CONFIG, an exported .pt2 or an ONNX file.",
            metavar="SOURCE",
            autocompletion=completion.sources,
        ),
    ],
    *,
    cluster: o.Cluster = "this-machine",
    device: Annotated[
        list[str] | None,
        typer.Option(help="A device to measure; all that are at hand, if none. May be repeated."),
    ] = None,
    profiles: o.Profiles = None,
    training: o.Training = False,
    method: Annotated[
        str,
        o.chosen(
            "Run the program as a whole (context), each op by itself (isolated), or auto: "
            "as a whole where memory allows.",
            METHODS,
        ),
    ] = "auto",
    missing: Annotated[
        str,
        o.chosen(
            "An op that fails: end there (refuse), or leave its time to the model (predict).",
            MISSING,
        ),
    ] = "refuse",
    standard_evaluation: Annotated[
        bool,
        typer.Option(
            "--standard-evaluation",
            help="For a batch too large for a device: regress its ops from small batches, then "
            "correct them by a few steps of it, placed sequentially.",
        ),
    ] = False,
    batches: Annotated[
        str | None,
        typer.Option(help="The small batches, as 2,4,8; the largest halvings that fit, if none."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps of the large batch (5); 0 for none.")
    ] = None,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compiled",
            help="Also measure what --coarsen fusion groups, compiled by Inductor (C++ compiler).",
        ),
    ] = False,
    json: o.Json = False,
) -> None:
    """Measure what the ops of SOURCE take on devices of this machine, and keep it for 'plan'.

    Each distinct op is measured once, for all models that have it. Ctrl-C keeps what is done.
    """
    from placewright.cli.output import print_json, progress, remark
    from placewright.cli.standard_evaluation import Asked, evaluate
    from placewright.costs.clusters import load_cluster
    from placewright.costs.profiles.profiling import profile
    from placewright.costs.profiles.store import ProfileStore

    found = load_cluster(cluster or "this-machine")
    if standard_evaluation and compiled:
        raise OptionError(
            "--compiled goes without --standard-evaluation; measure one, then the other"
        )
    if standard_evaluation:
        if (method, missing) != ("auto", "refuse"):
            raise OptionError(
                "--standard-evaluation runs the program as a whole; leave out --method and "
                "--missing"
            )
        asked = Asked(source, found, profiles, device or (), training, batches, steps)
        evaluate(asked, json=json)
        return
    if batches is not None or steps is not None:
        raise OptionError("--batches and --steps are those of --standard-evaluation; add it")
    with ProfileStore(profiles) as store, progress(quiet=json) as on_progress:
        groups = []
        if compiled:  # before what takes long: it is refused without a compiler
            from placewright.measuring.fused_groups import profile_groups

            groups = profile_groups(
                source,
                found,
                store,
                devices=device or (),
                training=training,
                missing=cast(Any, missing),
                on_progress=on_progress,
            )
        done = profile(
            source,
            found,
            store,
            devices=device or (),
            training=training,
            method=cast(Any, method),  # it checks them
            missing=cast(Any, missing),
            on_progress=on_progress,
        )
        done += groups
        path = store.path
    if json:
        print_json([_record(each, path) for each in done])
    else:
        _print(done, path)
    for each in done:
        for what in _disturbances(each):
            remark(f"placewright: on {each.identity} {what}; {QUIETEN}")


def _disturbances(done: DeviceProfile) -> Iterator[str]:
    """Signs that other work was in the way."""
    if done.is_busy:
        yield f"other work took {done.busy:.0%} of the cores before measuring began"
    if done.is_noisy:
        yield f"the times of whole passes vary by {done.noise:.0%}"


def _record(done: DeviceProfile, path: Path) -> dict[str, object]:
    return {
        "devices": list(done.devices),
        "identity": done.identity,
        "library": done.library,
        "method": done.method,
        "compiled": done.compiled,
        "measured": done.measured,
        "known": done.known,
        "failed": dict(done.failed),
        "noise": done.noise,
        "busy": done.busy,
        "seconds": done.seconds,
        "profiles": str(path),
    }


def _print(done: list[DeviceProfile], path: Path) -> None:
    from rich.markup import escape
    from rich.table import Table

    from placewright.cli.output import console
    from placewright.units import format_seconds

    table = Table(title=f"profiles: {escape(str(path))}", title_justify="left")
    for column in ("devices", "what they are", "method"):
        table.add_column(column)
    for column in ("measured", "known", "failed", "took"):
        table.add_column(column, justify="right")
    for each in done:
        table.add_row(
            escape(", ".join(each.devices)),
            escape(each.identity),
            "compiled" if each.compiled else each.method or "-",
            str(each.measured),
            str(each.known),
            str(len(each.failed)),
            format_seconds(each.seconds),
        )
    out = console()
    out.print(table)
    for each in done:
        for reason in each.failed.values():
            out.print(reason, markup=False)
