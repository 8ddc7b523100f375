"""``placewright cluster``: presets, and what this machine is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placewright.cli import completion
from placewright.cli import options as o
from placewright.cli.groups import grouped
from placewright.cli.measured_links import Measuring

if TYPE_CHECKING:
    from rich.table import Table

    from placewright.cluster import Cluster
    from placewright.costs.links import Routes
    from placewright.report.fitted_table import FittedTable

MOST_ROUTED = 16  # devices, of which the routes between each two are shown

app = typer.Typer(
    help="List, show or detect clusters.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("list")
def list_presets(json: o.Json = False) -> None:
    """List the presets."""
    from placewright.cli.output import console, print_json
    from placewright.costs.clusters import presets

    if json:
        print_json(
            [
                {"name": preset.name, "devices": preset.devices, "description": preset.description}
                for preset in presets()
            ]
        )
        return
    from placewright.report.fitted_table import LIST_NOTE, Column, FittedTable

    there = list(presets())
    text = partial(Column, number=False, breaks=True, room=16)
    columns = (
        Column("preset", [each.name for each in there], number=False),
        text("devices", [each.devices for each in there]),
        text("description", [each.description for each in there], spare=1),
    )
    console().print(FittedTable("", columns, note=LIST_NOTE))


@app.command()
def kinds(json: o.Json = False) -> None:
    """List the kinds of device of the catalog, which clusters may name."""
    from placewright.cli.output import console, print_json
    from placewright.costs.catalog import kinds as known

    if json:
        found = ({**vars(each), "peak_flops": dict(each.peak_flops)} for each in known().values())
        print_json(list(found))
        return
    from placewright.report.fitted_table import LIST_NOTE, Column, FittedTable
    from placewright.units import format_count

    there = list(known().values())
    memory = [
        "of its machine" if each.memory is None else f"{each.memory / 1e9:g} GB" for each in there
    ]
    bandwidth = [f"{format_count(each.memory_bandwidth)}B/s" for each in there]
    text = partial(Column, number=False, breaks=True, room=13)
    columns = (
        text("kind", [each.name for each in there]),
        text("memory", memory, room=7),
        text("bandwidth", bandwidth, spare=1),
        text("peak FLOP/s", [_peaks(each.peak_flops) for each in there], spare=2),
    )
    console().print(FittedTable("", columns, note=LIST_NOTE))


@app.command()
def show(
    cluster: Annotated[
        str,
        typer.Argument(
            help="A preset or a file.", metavar="CLUSTER", autocompletion=completion.clusters
        ),
    ],
    json: o.Json = False,
) -> None:
    """Show a cluster with every figure filled in from the catalog."""
    from placewright.costs.clusters import load_cluster

    _print(load_cluster(cluster), json)


@app.command()
@grouped
def detect(
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", callback=o.writable, help="Write it to this YAML or JSON file."
        ),
    ] = None,
    split_cpu: Annotated[
        int | None,
        typer.Option(help="Describe the CPU as this many devices, each of its own cores.", min=1),
    ] = None,
    measuring: Measuring,
    json: o.Json = False,
) -> None:
    """Describe this machine, or several hosts that meet, as a cluster.

    With --measure latency and bandwidth between CPU devices are fitted to the times of transfers.
    With --rendezvous every host runs this command; node 0 prints and writes the cluster of all.
    """
    measuring.check()
    found = measuring.cluster(split_cpu, quiet=json)
    if found is None:
        return
    if output is not None:
        found.save(output)
    _print(found, json)


def _print(cluster: Cluster, json: bool) -> None:
    from placewright.cli.output import UNBOUNDED, console, print_json
    from placewright.cluster import naming_file
    from placewright.costs.links import routes

    with naming_file(cluster):
        paths = routes(cluster)  # refuses a disconnected cluster before anything is printed
    if json:
        print_json(cluster.to_document())
        return
    out = console()
    out.print(_device_table(cluster))
    if cluster.device_count <= MOST_ROUTED:
        table = _route_table(cluster, paths)
        fits = out.measure(table, options=out.options.update(max_width=UNBOUNDED)).minimum
        note = "routes: in a wider terminal, or with --json"
        out.print(table if fits <= out.width else note)
    _print_measured(cluster)
    if cluster.description:
        out.print(cluster.description, markup=False)


def _device_table(cluster: Cluster) -> FittedTable:
    """A line per device, with every figure that it has."""
    from placewright.report.fitted_table import LIST_NOTE, Column, FittedTable
    from placewright.units import format_bytes, format_count, format_seconds

    devices = cluster.devices
    text = partial(Column, number=False, breaks=True)
    columns = [
        text("device", [each.name for each in devices]),
        text("kind", [each.kind for each in devices], spare=4),
        text("host", [each.host for each in devices], spare=6),
        text(
            "memory",
            ["-" if each.memory is None else format_bytes(each.memory) for each in devices],
        ),
        text(
            "bandwidth",
            [
                f"{format_count(each.memory_bandwidth)}B/s" if each.memory_bandwidth else "-"
                for each in devices
            ],
            spare=2,
        ),
        text("peak FLOP/s", [_peaks(each.peak_flops or {}) for each in devices], room=13, spare=1),
        text(
            "overhead",
            [format_seconds(each.launch_overhead or 0.0) for each in devices],
            spare=5,
        ),
    ]
    if any(each.run for each in devices):
        columns.append(text("runs on", [str(each.run or "-") for each in devices], spare=3))
    return FittedTable(cluster.name, columns, note=LIST_NOTE)


def _route_table(cluster: Cluster, paths: Routes) -> Table:
    """Bandwidth and latency from each device to each other."""
    from rich.markup import escape
    from rich.table import Table

    from placewright.units import format_count, format_seconds

    table = Table(title="routes: bandwidth, latency", title_justify="left")
    table.add_column("from / to")
    for name in cluster.device_names:
        table.add_column(escape(name), overflow="fold")
    for a, name in enumerate(cluster.device_names):
        cells = []
        for b in range(cluster.device_count):
            seconds = float(paths.link_seconds_per_byte[a, b])
            speed = f"{format_count(1 / seconds)}B/s" if seconds else "unlimited"
            latency = format_seconds(float(paths.link_latency[a, b]))
            cells.append("-" if a == b else f"{speed}, {latency}")
        table.add_row(escape(name), *cells)
    return table


def _peaks(peak_flops: Mapping[str, float]) -> str:
    from placewright.units import format_count

    return ", ".join(f"{dtype} {format_count(peak)}" for dtype, peak in peak_flops.items())


def _print_measured(cluster: Cluster) -> None:
    """How well latency and bandwidth of the measured links, if any, describe the times."""
    from rich.markup import escape
    from rich.table import Table

    from placewright.cli.output import console
    from placewright.units import format_count, format_seconds

    links = [link for link in cluster.links if link.measured is not None]
    if not links:
        return
    title = "measured links: t = latency + bytes / bandwidth, and its errors from 1 KiB to 64 MiB"
    table = Table(title=title, title_justify="left")
    for column in ("link", "by"):
        table.add_column(column)
    for column in ("latency", "bandwidth", "median error", "largest"):
        table.add_column(column, justify="right")
    for link in links:
        assert link.measured is not None
        table.add_row(
            escape(f"{link.a} – {link.b}"),
            link.measured.transport,
            format_seconds(link.latency),
            f"{format_count(link.bandwidth)}B/s",
            f"{link.measured.median_error:.1%}",
            f"{link.measured.largest_error:.1%}",
        )
    console().print(table)
