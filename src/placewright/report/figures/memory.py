"""Memory over time of each device, of plans for latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placewright.graph import Floats
from placewright.plan import Plan
from placewright.report.figures.style import INK, WIDTH, bytes_axis, hue, seconds_axis, short
from placewright.report.html.memory import highest
from placewright.simulate.peak import tensor_lives

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = 0.75  # inches
MOST_PANELS = 12
MOMENTS = 400


def memory(plan: Plan) -> Figure:
    """A panel per device with ops: what they keep, tensors alive on top, and the capacity."""
    from matplotlib.figure import Figure

    used = plan.used_devices[:MOST_PANELS]
    size = (WIDTH, 0.45 + PANEL * len(used))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(used), 1, sharex=True, squeeze=False)[:, 0]
    lives = tensor_lives(plan.problem, plan.placement, plan.schedule)
    for axes, device in zip(panels, used, strict=True):
        alive = highest(lives[lives[:, 0] == device, 1:], plan.value, MOMENTS)
        _panel(axes, plan, device, alive)
    scale = seconds_axis(panels[-1].xaxis, plan.value)
    panels[-1].set_xlim(0, plan.value)
    panels[-1].xaxis.set_major_formatter(lambda moment, _: f"{moment * scale:g}")
    return figure


def _panel(axes: Axes, plan: Plan, device: int, alive: Floats) -> None:
    kept = float(plan.device_memory[device])
    capacity = float(plan.problem.device_memory[device])
    limited = np.isfinite(capacity)
    most = max(kept + float(alive.max(initial=0.0)), capacity if limited else 0.0, 1.0)
    scale = bytes_axis(axes.yaxis, most)
    edges = np.linspace(0.0, plan.value, len(alive) + 1)
    axes.fill_between([0, plan.value], 0, kept * scale, color=hue(device), linewidth=0)
    axes.stairs((kept + alive) * scale, edges, baseline=kept * scale, fill=True, alpha=0.45,
                color=hue(device), linewidth=0)  # fmt: skip
    if limited:
        axes.axhline(capacity * scale, color=INK, linewidth=0.8, linestyle="--")
    axes.set_ylim(0, 1.08 * most * scale)
    axes.set_title(short(plan.problem.device_names[device]), loc="left", pad=2)
