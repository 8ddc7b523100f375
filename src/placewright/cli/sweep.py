"""``placewright sweep``: one model on many clusters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placewright.cli import completion
from placewright.cli import options as o
from placewright.cli.groups import grouped
from placewright.errors import OptionError
from placewright.objectives import BATCH

if TYPE_CHECKING:
    from placewright.cluster import Cluster
    from placewright.importers import Imported
    from placewright.whatif.sweep_lines import SweepLine
    from placewright.whatif.variants import Variant


def _figure(path: Path | None) -> Path | None:
    """Refuse a figure that could not be drawn before, not after, the work of minutes."""
    from placewright.report.sweep_figure import check_figure

    if o.writable(path) is not None and path is not None:
        check_figure(path)
    return path


@dataclass(frozen=True)
class Varied:
    """What varies: a group of options (see `groups`)."""

    cluster: o.Cluster = None
    clusters: Annotated[
        str | None,
        typer.Option(
            help="Presets and files parted by commas, each a variant.",
            autocompletion=completion.clusters_in_a_row,
        ),
    ] = None
    count: Annotated[
        list[str] | None,
        typer.Option(
            help="KIND=1..8 or KIND=1,2,4: numbers of devices of a kind. May be repeated."
        ),
    ] = None
    bandwidth: Annotated[
        list[str] | None,
        typer.Option(
            help="[NAME=]10GB/s,25GB/s or [NAME=]x0.5,x2: what links carry, all or those of a "
            "channel, device or pair A-B. May be repeated."
        ),
    ] = None
    batches: Annotated[
        str | None, typer.Option(help="1,4,16: sizes of the batch (batch throughput).")
    ] = None

    def variants(self, imported: Imported | None) -> list[Variant]:
        """Every combination, of clusters by name and of what is changed in them."""
        from placewright.whatif import variants as v

        if not (self.clusters or self.count or self.bandwidth or self.batches):
            raise OptionError("nothing varies; give --clusters, --count, --bandwidth or --batches")
        return v.variants(
            self._bases(imported),
            [v.parse_count(text) for text in self.count or ()],
            [v.parse_bandwidths(text) for text in self.bandwidth or ()],
            () if self.batches is None else v.parse_batches(self.batches),
        )

    def _bases(self, imported: Imported | None) -> list[Cluster]:
        from placewright.costs.catalog import complete
        from placewright.costs.clusters import load_cluster
        from placewright.whatif import variants as v
        from placewright.whatif.sweep import own_cluster

        if self.clusters is None:
            if self.cluster is not None:
                return [load_cluster(str(self.cluster))]
            if imported is None:
                raise OptionError(
                    "--mix needs devices, and --for; name them with --cluster or --clusters"
                )
            return [complete(own_cluster(imported))]
        if self.cluster is not None:
            raise OptionError("--cluster and --clusters are both given; give one of them")
        names = [name.strip() for name in self.clusters.split(",")]
        if "" in names:
            raise OptionError(f"--clusters {self.clusters}: one of the names is empty")
        v.check_distinct(names)
        return v.told_apart(names, [load_cluster(name) for name in names])

    def objective(self, problem: o.Problem) -> str | None:
        """That of `problem`, or what batches belong to."""
        if self.batches is None:
            return problem.objective
        if problem.batch is not None:
            raise OptionError("--batch and --batches are both given; give one of them")
        if problem.objective not in (None, BATCH.name):
            raise OptionError(
                f"--batches belongs to objective {BATCH.name}, not to {problem.objective}; leave "
                "one of the two out"
            )
        return BATCH.name


@grouped
def command(
    source: o.Source,
    *,
    varied: Varied,
    price: Annotated[
        list[str] | None,
        typer.Option(help="KIND=USD: price of a device per hour. May be repeated."),
    ] = None,
    planner: o.Planner = "auto",
    problem: o.PlannedProblem,
    planner_option: o.PlannerOptions = None,
    coarsen: o.Coarsening = "none",
    engine: o.Engine = None,
    mix: o.Mix = None,
    time_limit: Annotated[
        float,
        typer.Option(help="Seconds for each variant (planner auto: 2, if none).", min=0.0),
    ] = float("inf"),
    seed: o.Seed = 0,
    figure: Annotated[
        Path | None,
        typer.Option(callback=_figure, help="Draw the sweep to this .html or .png file."),
    ] = None,
    wide: o.Wide = False,
    json: o.Json = False,
) -> None:
    """Plan SOURCE for many clusters, links or batches, and show which of them pay.

    Every combination of what is varied is a variant. The time limit is for each of them.
    """
    from placewright.cli.output import announce_compilation
    from placewright.whatif.sweep import require_plan

    announce_compilation()
    asked: dict[str, Any] = {
        **problem.options,
        "objective": varied.objective(problem),
        "training": problem.training,
        "costs": problem.costs,
        "pinned": problem.pinned,
        "prices": _prices(price),
        "seed": seed,
    }
    if engine is not None:
        if (planner, coarsen, planner_option, time_limit) != ("auto", "none", None, math.inf):
            raise OptionError(
                "--for has a way of its own to plan; leave out -p, -O, --coarsen and --time-limit"
            )
        if mix is not None:
            problem.of_requests("op")
        lines = _for_engine(source, varied, engine, mix, asked, quiet=json)
    else:
        asked |= {
            "planner": planner,
            "planner_options": o.pairs(planner_option, "-O"),
            "coarsening": coarsen,
            "time_limit": time_limit,
        }
        lines = _searched(source, varied, mix, asked, quiet=json)
    _print(lines, source, json, wide)
    require_plan(lines)
    _print_remarks(lines, json)
    if figure is not None:
        from placewright.report.sweep_figure import write_figure

        write_figure(lines, figure, source)


def _searched(
    source: str, varied: Varied, mix: str | None, asked: dict[str, Any], *, quiet: bool
) -> list[SweepLine]:
    """Each variant planned by a planner."""
    from placewright.cli.output import progress
    from placewright.importers import load as load_source
    from placewright.serving.mix import read_mix
    from placewright.whatif.sweep import sweep

    with progress(quiet=quiet) as on_progress:
        imported = None if mix else load_source(source, training=asked["training"])
        return sweep(
            imported or source,
            varied.variants(imported),
            mix=read_mix(mix) if mix else None,
            on_progress=on_progress,
            **asked,
        )


def _for_engine(
    source: str, varied: Varied, engine: str, mix: str | None, asked: dict[str, Any], *, quiet: bool
) -> list[SweepLine]:
    """Each variant planned for an engine."""
    from placewright.cli.output import progress
    from placewright.exporters.sweeping import sweep_for

    with progress(quiet=quiet) as on_progress:
        variants = varied.variants(None)
        return sweep_for(source, variants, engine, mix=mix, on_progress=on_progress, **asked)


def _print(lines: list[SweepLine], source: str, json: bool, wide: bool) -> None:
    from placewright.cli.output import console, print_json
    from placewright.report.whatif import sweep_legend, sweep_records, sweep_table

    if json:
        print_json(sweep_records(lines))
        return
    out = console(wide)
    out.print(sweep_table(lines, source))
    out.print(sweep_legend(lines), markup=False)


def _print_remarks(lines: list[SweepLine], json: bool) -> None:
    """What limits the plans, unless they are read by a program; and that Ctrl-C came."""
    from placewright.cli.output import print_remarks, remark
    from placewright.solving import INTERRUPTED

    if not json:
        print_remarks(line.plan for line in lines if line.plan is not None)
    if left := sum(line.error == INTERRUPTED for line in lines):
        remark(f"placewright: interrupted with {left} of {len(lines)} variants left")


def _prices(price: list[str] | None) -> dict[str, float]:
    found = {}
    for kind, text in o.pairs(price, "--price").items():
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not (math.isfinite(value) and value >= 0):
            raise OptionError(f"--price {kind}={text}: give USD per hour, such as {kind}=1.20")
        found[kind] = value
    return found
