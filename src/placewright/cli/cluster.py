"""``placewright cluster``: presets, and what this machine is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placewright.cli import completion
from placewright.cli import options as o
from placewright.cli.groups import grouped
from placewright.cli.measured_links import Measuring

if TYPE_CHECKING:
    from placewright.cluster import Cluster

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
    from rich.table import Table

    table = Table()
    for column in ("preset", "devices", "description"):
        table.add_column(column)
    for preset in presets():
        table.add_row(preset.name, preset.devices, preset.description)
    console().print(table)


@app.command()
def kinds(json: o.Json = False) -> None:
    """List the kinds of device of the catalog, which clusters may name."""
    from placewright.cli.output import console, print_json
    from placewright.costs.catalog import kinds as known

    if json:
        found = ({**vars(each), "peak_flops": dict(each.peak_flops)} for each in known().values())
        print_json(list(found))
        return
    from rich.table import Table

    from placewright.units import format_count

    table = Table()
    for column in ("kind", "memory", "bandwidth", "peak FLOP/s"):
        table.add_column(column)
    for each in known().values():
        table.add_row(
            each.name,
            "of its machine" if each.memory is None else f"{each.memory / 1e9:g} GB",
            f"{format_count(each.memory_bandwidth)}B/s",
            _peaks(each.peak_flops),
        )
    console().print(table)


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
    from placewright.cli.output import console, print_json
    from placewright.cluster import naming_file
    from placewright.costs.links import routes

    with naming_file(cluster):
        paths = routes(cluster)  # refuses a disconnected cluster before anything is printed
    if json:
        print_json(cluster.to_document())
        return
    from rich.markup import escape
    from rich.table import Table

    from placewright.units import format_bytes, format_count, format_seconds

    out = console()
    table = Table(title=escape(cluster.name), title_justify="left")
    runs = any(device.run for device in cluster.devices)
    columns = ("device", "kind", "host", "memory", "bandwidth", "peak FLOP/s", "overhead")
    for column in (*columns, *(("runs on",) if runs else ())):
        table.add_column(column)
    for device in cluster.devices:
        table.add_row(
            escape(device.name),
            escape(device.kind),
            escape(device.host),
            "-" if device.memory is None else format_bytes(device.memory),
            f"{format_count(device.memory_bandwidth)}B/s" if device.memory_bandwidth else "-",
            _peaks(device.peak_flops or {}),
            format_seconds(device.launch_overhead or 0.0),
            *((str(device.run or "-"),) if runs else ()),
        )
    out.print(table)
    pairs = Table(title="routes: bandwidth, latency", title_justify="left")
    pairs.add_column("from / to")
    for name in cluster.device_names:
        pairs.add_column(escape(name))
    for a, name in enumerate(cluster.device_names):
        cells = []
        for b in range(cluster.device_count):
            seconds = float(paths.link_seconds_per_byte[a, b])
            speed = f"{format_count(1 / seconds)}B/s" if seconds else "unlimited"
            latency = format_seconds(float(paths.link_latency[a, b]))
            cells.append("-" if a == b else f"{speed}, {latency}")
        pairs.add_row(escape(name), *cells)
    if cluster.device_count <= 16:
        out.print(pairs)
    _print_measured(cluster)
    if cluster.description:
        out.print(cluster.description, markup=False)


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
