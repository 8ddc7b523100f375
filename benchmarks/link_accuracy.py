"""How true measured links are: times of transfers beside latency + bytes / bandwidth.

    python benchmarks/link_accuracy.py [--transport shared|gloo|copy] [--devices 2] [--times 3]

The CPU of this machine is split into devices; the links between them are measured and fitted as
`placewright cluster detect --measure` does. Then they are measured again, by new processes, and
those times are predicted. `noise` is how far the two measurements lie apart: an error below it
says nothing. All that is done several times over.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from placewright.costs.detect import detect
from placewright.costs.link_fit import by_decade, fit
from placewright.runtime.links.copies import copy_times
from placewright.runtime.links.measured import cores_of, measurable
from placewright.runtime.links.pace import Times
from placewright.runtime.links.pairs import Pair
from placewright.runtime.links.ranks import process_times
from placewright.units import format_bytes, format_seconds


@dataclass(frozen=True)
class Row:
    """Seconds of a transfer of `size` bytes; `error` and `noise` as shares of `measured`."""

    link: str
    time: int
    size: int
    fitted: float
    predicted: float
    measured: float
    error: float
    noise: float


def main() -> None:
    arguments = _arguments()
    rows = []
    for time in range(arguments.times):
        latest = list(_rows(arguments.transport, arguments.devices, time))
        rows += latest
        median = statistics.median(abs(row.error) for row in latest)
        print(f"{time + 1}: median error {median:.1%}", file=sys.stderr)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print(rows, arguments.transport)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--transport", choices=("shared", "gloo", "copy"), default="shared")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _rows(transport: str, devices: int, time: int) -> Iterator[Row]:
    cores = [cores_of(device) for device in measurable(detect(devices, link_cpus=False))]
    first, second = _times(transport, cores), _times(transport, cores)
    for (a, b), fitted in first.items():
        line, again = fit(fitted.sizes, fitted.seconds), second[a, b]
        for size, before, measured in zip(
            fitted.sizes, fitted.seconds, again.seconds, strict=False
        ):
            predicted = line.seconds(size)
            error, noise = predicted / measured - 1, abs(before / measured - 1)
            yield Row(f"{a} – {b}", time, size, before, predicted, measured, error, noise)


def _times(transport: str, cores: list[tuple[int, ...]]) -> dict[Pair, Times]:
    if transport == "copy":
        return copy_times(cores)
    return process_times(cores, shared=transport == "shared")


def _print(rows: list[Row], transport: str) -> None:
    title = f"links by {transport}: predicted against measured again"
    table = Table(title=title, title_justify="left")
    for column in ("time", "link", "size", "fitted to", "predicted", "measured", "error", "noise"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row.time + 1),
            row.link,
            format_bytes(row.size),
            format_seconds(row.fitted),
            format_seconds(row.predicted),
            format_seconds(row.measured),
            f"{row.error:+.1%}",
            f"{row.noise:.1%}",
        )
    console = Console(width=120)
    console.print(table)
    errors, noises = [abs(row.error) for row in rows], [row.noise for row in rows]
    console.print(
        f"of {len(rows)} transfers: median error {statistics.median(errors):.1%}, worst "
        f"{max(errors):.1%}; median noise {statistics.median(noises):.1%}, worst {max(noises):.1%}"
    )
    sizes = [row.size for row in rows]
    for (start, error), (_, noise) in zip(
        by_decade(sizes, np.array(errors)), by_decade(sizes, np.array(noises)), strict=True
    ):
        console.print(f"from {start:.0e} B: median error {error:.1%}, median noise {noise:.1%}")


if __name__ == "__main__":
    main()
