"""Several plans side by side: their values, and what no plan can beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from placewright.plan import Plan
from placewright.report.figures.style import BOUND, VALUE, new_figure, rows_of, seconds_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.22  # inches


def comparison(plans: Sequence[Plan], labels: Sequence[str]) -> Figure:
    """A bar per plan, and a mark where its lower bound is."""
    figure, axes = new_figure(0.75 + ROW * len(plans))
    scale = seconds_axis(axes.xaxis, max(plan.value for plan in plans))
    axes.xaxis.set_label_text(axes.xaxis.get_label_text().replace("time", "value"))
    rows = range(len(plans))
    axes.barh(rows, [plan.value * scale for plan in plans], 0.7, color=VALUE, label="value")
    bounds = [plan.lower_bound * scale for plan in plans]
    axes.scatter(bounds, rows, 60, BOUND, marker="|", linewidths=2, zorder=3, label="lower bound")
    rows_of(axes, labels)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return figure
