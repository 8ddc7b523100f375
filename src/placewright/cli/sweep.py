"""``placewright sweep``: one model on many clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placewright.cli import completion
from placewright.cli import options as o
from placewright.errors import OptionError

if TYPE_CHECKING:
    from placewright.importers import Imported
    from placewright.whatif.variants import Variant


def _figure(path: Path | None) -> Path | None:
    """Refuse a figure that could not be drawn before, not after, the work of minutes."""
    from placewright.report.whatif import check_figure

    if o.writable(path) is not None and path is not None:
        check_figure(path)
    return path


def command(
    source: o.Source,
    cluster: o.Cluster = None,
    clusters: Annotated[
        str | None,
        typer.Option(
            help="Presets and files parted by commas, each a variant.",
            autocompletion=completion.clusters_in_a_row,
        ),
    ] = None,
    count: Annotated[
        list[str] | None,
        typer.Option(
            help="KIND=1..8 or KIND=1,2,4: numbers of devices of a kind. May be repeated."
        ),
    ] = None,
    bandwidth: Annotated[
        list[str] | None,
        typer.Option(
            help="[NAME=]10GB/s,25GB/s or [NAME=]x0.5,x2: what links carry, all or those of a "
            "channel, device or pair A-B. May be repeated."
        ),
    ] = None,
    batches: Annotated[
        str | None, typer.Option(help="1,4,16: sizes of the batch (batch throughput).")
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(help="KIND=USD: price of a device per hour. May be repeated."),
    ] = None,
    planner: o.Planner = "auto",
    objective: o.Objective = None,
    transfer_unit: o.TransferUnit = None,
    contention: o.Contention = None,
    memory: o.Memory = None,
    load: o.Load = None,
    contiguous: o.Contiguous = None,
    schedule: o.Schedule = None,
    replicate: o.Replicate = None,
    subgraphs: o.Subgraphs = None,
    batch: o.Batch = None,
    training: o.Training = False,
    optimizer: o.Optimizer = "adam",
    pin: o.Pins = None,
    planner_option: o.PlannerOptions = None,
    coarsen: o.Coarsening = "none",
    time_limit: Annotated[
        float,
        typer.Option(help="Seconds for each variant (planner auto: 2, if none).", min=0.0),
    ] = float("inf"),
    seed: o.Seed = 0,
    figure: Annotated[
        Path | None,
        typer.Option(callback=_figure, help="Draw the sweep to this .html or .png file."),
    ] = None,
    json: o.Json = False,
) -> None:
    """Plan SOURCE for many clusters, links or batches, and show which of them pay.

    Every combination of what is varied is a variant. The time limit is for each of them.
    """
    from placewright.cli.output import (
        announce_compilation,
        console,
        print_json,
        print_remarks,
        progress,
        remark,
    )
    from placewright.costs.roofline import CostOptions
    from placewright.importers import load as load_source
    from placewright.report.whatif import sweep_legend, sweep_records, sweep_table, write_figure
    from placewright.whatif.sweep import INTERRUPTED, require_plan, sweep

    announce_compilation()
    if batches is not None:
        if batch is not None:
            raise OptionError("--batch and --batches are both given; give one of them")
        if objective not in (None, "batch-throughput"):
            raise OptionError(
                f"--batches belongs to objective batch-throughput, not to {objective}; leave one "
                "of the two out"
            )
        objective = "batch-throughput"
    given = o.problem_options(
        objective, transfer_unit, contention, memory, load, contiguous, schedule, replicate,
        subgraphs, batch,
    )  # fmt: skip
    prices = _prices(price)
    with progress(quiet=json) as on_progress:
        imported = load_source(source, training=training)
        lines = sweep(
            imported,
            _variants(imported, cluster, clusters, count, bandwidth, batches),
            planner=planner,
            costs=CostOptions(optimizer=o.optimizer(optimizer)),
            pinned=o.pairs(pin, "--pin"),
            planner_options=o.pairs(planner_option, "-O"),
            coarsening=coarsen,
            prices=prices,
            time_limit=time_limit,
            seed=seed,
            on_progress=on_progress,
            **given,
        )
    if json:
        print_json(sweep_records(lines))
    else:
        out = console()
        out.print(sweep_table(lines, source))
        out.print(sweep_legend(lines), markup=False)
    require_plan(lines)
    if not json:
        print_remarks(line.plan for line in lines if line.plan is not None)
    left = sum(line.error == INTERRUPTED for line in lines)
    if left:
        remark(f"placewright: interrupted with {left} of {len(lines)} variants left")
    if figure is not None:
        write_figure(lines, figure, source)


def _variants(
    imported: Imported,
    cluster: str | None,
    clusters: str | None,
    count: list[str] | None,
    bandwidth: list[str] | None,
    batches: str | None,
) -> list[Variant]:
    from placewright.costs.catalog import complete
    from placewright.costs.clusters import load_cluster
    from placewright.whatif import variants as v
    from placewright.whatif.sweep import own_cluster

    if cluster is not None and clusters is not None:
        raise OptionError("--cluster and --clusters are both given; give one of them")
    if not (clusters or count or bandwidth or batches):
        raise OptionError("nothing varies; give --clusters, --count, --bandwidth or --batches")
    names = [cluster] if clusters is None else [name.strip() for name in clusters.split(",")]
    if "" in names:
        raise OptionError(f"--clusters {clusters}: one of the names is empty")
    bases = [complete(own_cluster(imported)) if n is None else load_cluster(n) for n in names]
    return v.variants(
        bases,
        [v.parse_count(text) for text in count or ()],
        [v.parse_bandwidths(text) for text in bandwidth or ()],
        () if batches is None else v.parse_batches(batches),
    )


def _prices(price: list[str] | None) -> dict[str, float]:
    import math

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
