"""What each device and link does when; for throughput, what each device does per input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.graph import Floats
from placewright.outcome import Loads
from placewright.plan import Plan
from placewright.report.figures.style import FAINT, INK, hue, new_figure, rows_of, seconds_axis
from placewright.report.html.drawing import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.22  # inches
MOST_ROWS = 40
MANY = 2000  # slices, from which on they are pixels in an SVG too
LINK_TALL, TALL = 0.35, 0.8


def gantt(plan: Plan) -> Figure:
    """The schedule: a row per device and link at work; the critical path dark, all else pale."""
    if isinstance(plan.outcome, Loads):
        return _stages(plan, plan.outcome)
    timeline = drawing(plan).timeline
    assert timeline is not None  # every objective but throughput has one
    record = timeline.slices
    used = np.unique(record.track)[:MOST_ROWS]
    figure, axes = new_figure(0.5 + ROW * len(used))
    scale = seconds_axis(axes.xaxis, plan.value)
    marked = bool(record.critical.any())
    for row, number in enumerate(used.tolist()):
        track = timeline.tracks[number]
        mine = record.track == number
        tall = LINK_TALL if track.kind == "link" else TALL
        for critical in (False, True):
            shown = mine & (record.critical == critical)
            spans = np.stack([record.start[shown], (record.finish - record.start)[shown]], axis=1)
            pale = 0.4 if marked and not critical else 1.0
            _bars(axes, spans * scale, row, tall, hue(track.device), pale)
    rows_of(axes, [timeline.tracks[number].name for number in used.tolist()])
    axes.set_xlim(0, plan.value * scale)
    return figure


def _bars(axes: Axes, spans: Any, row: int, tall: float, colour: str, alpha: float) -> None:
    axes.broken_barh(
        spans.tolist(),
        (row - tall / 2, tall),
        facecolor=colour,
        alpha=alpha,
        linewidth=0,
        rasterized=len(spans) > MANY,
    )


def _stages(plan: Plan, loads: Loads) -> Figure:
    """Per device at work the seconds per input of computing, and of transfers in and out.

    In a row where they add up, else above one another.
    """
    devices = np.flatnonzero(loads.load > 0)[:MOST_ROWS].tolist()
    figure, axes = new_figure(0.75 + ROW * len(devices))
    parts = _parts(loads)
    most = max(float(sum(seconds[devices].max() for seconds, _ in parts.values())), plan.value)
    scale = seconds_axis(axes.xaxis, most)
    in_a_row = plan.problem.options.load == "sum"
    tall = TALL if in_a_row else TALL / len(parts)
    left = np.zeros(len(devices))
    for number, (name, (seconds, hatch)) in enumerate(parts.items()):
        lower = 0.0 if in_a_row else (number + 0.5) * tall - TALL / 2
        axes.barh(
            np.arange(len(devices)) + lower,
            seconds[devices] * scale,
            tall,
            left,
            color=[(hue(each), 1.0 if hatch is None else 0.45) for each in devices],
            hatch=hatch,
            edgecolor=INK if hatch else FAINT,
            linewidth=0,
            label=name,
        )
        left += seconds[devices] * scale * in_a_row
    axes.axvline(plan.value * scale, color=INK, linewidth=0.8, linestyle="--", label="per input")
    rows_of(axes, [plan.problem.device_names[each] for each in devices])
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, handlelength=1.2,
                columnspacing=0.8)  # fmt: skip
    return figure


def _parts(loads: Loads) -> dict[str, tuple[Floats, str | None]]:
    """What devices do → `[device]` seconds per input, and a hatch; what none does is left out."""
    parts: dict[str, tuple[Floats, str | None]] = {
        "compute": (loads.compute.sum(axis=0), None),
        "in": (loads.incoming.sum(axis=0), "////"),
        "out": (loads.outgoing.sum(axis=0), "\\\\\\\\"),
        "synchronise": (loads.sync, "xxxx"),
    }
    return {name: part for name, part in parts.items() if part[0].any()}
