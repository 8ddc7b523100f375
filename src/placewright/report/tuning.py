"""What calibrations and tunings did: tables for the terminal, records for ``--json``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table

from placewright.units import format_count, format_seconds, listed

if TYPE_CHECKING:
    from placewright.runtime.tuning.calibrate import CalibrationReport
    from placewright.runtime.tuning.link_correction import LinkCorrection
    from placewright.runtime.tuning.tuning import Round


def calibration_lines(done: CalibrationReport) -> Iterator[str]:
    """What was kept of a run, how far the plan's times were, and what was not kept."""
    yield (
        f"calibrated: {done.kept} distinct ops kept ({done.new} new), from {done.samples} samples; "
        f"the plan's times were {done.error:.0%} off (median), {format_seconds(done.planned)} "
        f"instead of {format_seconds(done.measured)} in all"
    )
    if done.is_noisy:
        yield (
            f"the clocked calls differ by {done.noise:.0%}, so other work was in the way; quieten "
            "the machine and run again"
        )
    for link in done.links:
        yield f"link {link.a} – {link.b}: {_figures(link)}"
    if done.set_aside:
        yield (
            f"set aside, as few samples were far from what was measured before: "
            f"{listed(done.set_aside)}"
        )
    for device, why in done.left_out.items():
        yield f"nothing is kept of device '{device}', which {why}"


def _figures(link: LinkCorrection) -> str:
    """Latency and bandwidth before and now."""
    before, now = (
        f"{format_seconds(latency)} and {_rate(bandwidth)}"
        for latency, bandwidth in (
            (link.latency_before, link.bandwidth_before),
            (link.latency, link.bandwidth),
        )
    )
    how = "a line through" if link.fit else "corrected by"
    return f"{before} planned, {now} seen ({how} {link.messages} transfers)"


def calibration_record(done: CalibrationReport) -> dict[str, Any]:
    """Seconds and bytes per second; a bandwidth without limit is null."""
    return {
        "kept": done.kept,
        "new": done.new,
        "samples": done.samples,
        "set_aside": list(done.set_aside),
        "planned": done.planned,
        "measured": done.measured,
        "error": done.error,
        "noise": done.noise,
        "links": [
            {
                "a": link.a,
                "b": link.b,
                "messages": link.messages,
                "latency": link.latency,
                "bandwidth": _finite(link.bandwidth),
                "latency_before": link.latency_before,
                "bandwidth_before": _finite(link.bandwidth_before),
                "fitted": link.fit is not None,
            }
            for link in done.links
        ],
        "left_out": dict(done.left_out),
    }


def _finite(amount: float) -> float | None:
    return amount if math.isfinite(amount) else None


def rounds_table(rounds: Iterable[Round]) -> Table:
    """A line per round of a tuning: predicted, measured, how far apart, whether it was kept."""
    table = Table(title="rounds", title_justify="left")
    for column in ("round", "predicted", "measured", "error", "ops off by"):
        table.add_column(column, justify="right")
    table.add_column("kept")
    for each in rounds:
        table.add_row(
            str(each.number),
            format_seconds(each.predicted),
            format_seconds(each.measured),
            f"{each.error:.1%}",
            f"{each.calibration.error:.1%}",
            "yes" if each.kept else "no",
        )
    return table


def round_records(rounds: Iterable[Round]) -> list[dict[str, Any]]:
    """A record per round, with what its run taught."""
    return [
        {
            "round": each.number,
            "predicted": each.predicted,
            "measured": each.measured,
            "error": each.error,
            "kept": each.kept,
            "calibration": calibration_record(each.calibration),
        }
        for each in rounds
    ]


def _rate(bandwidth: float) -> str:
    """As clusters have it, in files and tables."""
    return "unlimited" if math.isinf(bandwidth) else f"{format_count(bandwidth)}B/s"
