"""``placewright profile``: measure a source's ops on the devices at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from placewright.cli import completion
from placewright.cli import options as o
from placewright.cli.groups import grouped
from placewright.costs.profiles.entry import Missing, Way
from placewright.errors import OptionError

if TYPE_CHECKING:
    from placewright.cli.standard_evaluation import Asked
    from placewright.costs.profiles.profiling import DeviceProfile

QUIETEN = "quieten the machine, prune these and profile again"
METHODS, MISSING = get_args(Way), get_args(Missing)
STEPPERS = ("sgd", "adam", "adamw", "none")


@dataclass(frozen=True)
class Ways:
    """How ops are measured: a group of options (see `groups`)."""

    method: Annotated[
        str,
        o.chosen(
            "Run the program as a whole (context), each op by itself (isolated), or auto: "
            "as a whole where memory allows.",
            METHODS,
        ),
    ] = "auto"
    missing: Annotated[
        str,
        o.chosen(
            "An op that fails: end there (refuse), or leave its time to the model (predict).",
            MISSING,
        ),
    ] = "refuse"
    compiled: Annotated[
        bool,
        typer.Option(
            "--compiled",
            help="Also measure what --coarsen fusion groups, compiled by Inductor (C++ compiler).",
        ),
    ] = False
    optimizer: Annotated[
        str | None,
        o.chosen(
            "With --training: also measure steps of sgd, adam or adamw (default), or none.",
            STEPPERS,
        ),
    ] = None


@dataclass(frozen=True)
class LargeBatch:
    """What is asked of a Standard Evaluation: a group of options."""

    standard_evaluation: Annotated[
        bool,
        typer.Option(
            "--standard-evaluation",
            help="For a batch too large for a device: regress its ops from small batches, then "
            "correct them by a few steps of it, placed sequentially.",
        ),
    ] = False
    batches: Annotated[
        str | None,
        typer.Option(help="The small batches, as 2,4,8; the largest halvings that fit, if none."),
    ] = None
    steps: Annotated[int | None, typer.Option(help="Steps of the large batch (5); 0 for none.")] = (
        None
    )


@grouped
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
    training: o.TrainingRun = False,
    ways: Ways,
    large: LargeBatch,
    json: o.Json = False,
) -> None:
    """Measure what the ops of SOURCE take on devices of this machine, and keep it for 'plan'.

    Each distinct op is measured once, for all models that have it. Ctrl-C keeps what is done.
    """
    from placewright.cli.output import print_json, remark
    from placewright.cli.standard_evaluation import Asked, evaluate
    from placewright.costs.clusters import load_cluster

    _check(ways, large, training)
    asked = Asked(
        source,
        load_cluster(cluster or "this-machine"),
        profiles,
        device or (),
        training,
        large.batches,
        large.steps,
    )
    if large.standard_evaluation:
        evaluate(asked, json=json)
        return
    done, path = _profile(asked, ways, json)
    if json:
        print_json([_record(each, path) for each in done])
    else:
        _print(done, path)
    for each in done:
        for what in _disturbances(each):
            remark(f"placewright: on {each.identity} {what}; {QUIETEN}")


def _check(ways: Ways, large: LargeBatch, training: bool) -> None:
    """OptionError for options that do not go together."""
    if ways.optimizer is not None and (not training or large.standard_evaluation):
        raise OptionError(
            "--optimizer is for steps of --training, without --standard-evaluation; add the one "
            "and leave out the other, or leave it out"
        )
    if not large.standard_evaluation:
        if large.batches is not None or large.steps is not None:
            raise OptionError("--batches and --steps are those of --standard-evaluation; add it")
        return
    if ways.compiled:
        raise OptionError(
            "--compiled goes without --standard-evaluation; measure one, then the other"
        )
    if (ways.method, ways.missing) != ("auto", "refuse"):
        raise OptionError(
            "--standard-evaluation runs the program as a whole; leave out --method and --missing"
        )


def _profile(asked: Asked, ways: Ways, json: bool) -> tuple[list[DeviceProfile], Path]:
    """Measure the ops and, if asked for, the groups; what was done, and the store's file."""
    from placewright.cli.output import progress
    from placewright.costs.profiles.profiling import profile
    from placewright.costs.profiles.store import ProfileStore

    with ProfileStore(asked.profiles) as store, progress(quiet=json) as on_progress:
        given: dict[str, Any] = {
            "devices": asked.devices,
            "on_progress": on_progress,
        }
        ops = {**given, "training": asked.training, "missing": ways.missing}
        further: list[DeviceProfile] = []
        if ways.compiled or asked.training:
            from placewright.importers.torch.once import Source

            ops["exported"] = Source(asked.source, training=asked.training)
        if ways.compiled:  # before what takes long: it is refused without a compiler
            from placewright.measuring.fused_groups import profile_groups

            further += profile_groups(asked.source, asked.cluster, store, **ops)
        method = cast(Any, ways.method)  # it checks them
        done = profile(asked.source, asked.cluster, store, method=method, **ops)
        if asked.training:
            from placewright.measuring.optimizer_steps import profile_steps

            stepper = cast(Any, ways.optimizer or "adamw")
            further += profile_steps(ops["exported"], stepper, asked.cluster, store, **given)
        return done + further, store.path


def _disturbances(done: DeviceProfile) -> Iterator[str]:
    """Signs that other work was in the way."""
    if done.is_busy:
        yield f"other work took {done.busy:.0%} of the cores before measuring began"
    if done.is_unsteady:
        steady = f"{done.steady} of {done.passes} passes"
        yield f"the machine was as fast as at its best in {steady}, so all of them count"
    if done.is_noisy:
        yield f"the times of whole passes vary by {done.noise:.0%}"


def _record(done: DeviceProfile, path: Path) -> dict[str, object]:
    return {
        "devices": list(done.devices),
        "identity": done.identity,
        "library": done.library,
        "method": done.method,
        "compiled": done.compiled,
        "optimizer": done.optimizer,
        "measured": done.measured,
        "known": done.known,
        "failed": dict(done.failed),
        "passes": done.passes,
        "steady": done.steady,
        "noise": done.noise,
        "busy": done.busy,
        "seconds": done.seconds,
        "profiles": str(path),
    }


def _what(done: DeviceProfile) -> str:
    if done.compiled:
        return "compiled"
    return f"steps of {done.optimizer}" if done.optimizer else done.method or "-"


def _print(done: list[DeviceProfile], path: Path) -> None:
    from placewright.cli.output import console, profiles_table

    out = console()
    out.print(
        profiles_table(
            path,
            ("method",),
            ("measured", "known", "failed"),
            (
                (
                    each,
                    _what(each),
                    each.measured,
                    each.known,
                    len(each.failed),
                )
                for each in done
            ),
        )
    )
    for each in done:
        for reason in each.failed.values():
            out.print(reason, markup=False)
