"""Value and bound over the time of planning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from placewright.plan import Plan
from placewright.report.figures.style import HUES, hue, new_figure, seconds_axis, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 2.0  # inches
SHOWN = 2.0  # times the last value: plans far above it are cut off
LEAST = 1e-3  # seconds where the axis begins


def convergence(plans: Sequence[Plan], labels: Sequence[str]) -> Figure:
    """The plans that have a history: value solid, bound dashed, time by its logarithm."""
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, axes = new_figure(HEIGHT)
    told = [each for each in zip(plans, labels, strict=True) if each[0].history is not None]
    scale = seconds_axis(axes.yaxis, max(plan.value for plan, _ in told))
    axes.yaxis.set_label_text(axes.yaxis.get_label_text().replace("time", "value and bound"))
    top = max(min(_most(plan), SHOWN * plan.value) for plan, _ in told)
    for number, (plan, label) in enumerate(told):
        history = plan.history
        assert history is not None
        moments = np.maximum(history.seconds, LEAST)
        value = np.where(np.isfinite(history.value), history.value, np.nan)
        for column, line in ((value, "-"), (history.lower_bound, "--")):
            name = short(label) if line == "-" else None
            axes.step(moments, column * scale, line, where="post", color=hue(number), label=name)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if _is_short(told) else (1.0,)))
    axes.xaxis.set_major_formatter(lambda moment, _: f"{moment:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("planning (s)")
    axes.set_ylim(None, 1.03 * top * scale)
    axes.plot([], [], "--", color=HUES[-1], label="lower bound")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


def _is_short(told: Sequence[tuple[Plan, str]]) -> bool:
    """Whether the axis goes over so few powers of ten that others have room too."""
    moments = [plan.history.seconds for plan, _ in told if plan.history is not None]
    first = max(min(float(each[0]) for each in moments), LEAST)
    return max(float(each[-1]) for each in moments) < 100 * first


def _most(plan: Plan) -> float:
    assert plan.history is not None
    return float(plan.history.value[np.isfinite(plan.history.value)].max(initial=0.0))
