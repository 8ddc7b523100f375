"""What more devices buy: the value of plans against the number of devices that they use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from placewright.plan import Plan
from placewright.report.figures.style import (
    BOUND,
    FAINT,
    INK,
    TEXT,
    VALUE,
    new_figure,
    seconds_axis,
    short,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 2.2  # inches
MOST_LABELS = 12


def is_pareto(plans: Sequence[Plan]) -> bool:
    """Whether there is anything to see: one objective, different numbers of devices."""
    objectives = {plan.problem.options.objective for plan in plans}
    return len(objectives) == 1 and len({len(plan.used_devices) for plan in plans}) > 1


def pareto(plans: Sequence[Plan], labels: Sequence[str]) -> Figure:
    """A dot per plan, its bound below; a line joins those that no other plan is better than."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = new_figure(HEIGHT)
    scale = seconds_axis(axes.yaxis, max(plan.value for plan in plans))
    axes.yaxis.set_label_text(axes.yaxis.get_label_text().replace("time", "value"))
    dots = [(len(plan.used_devices), plan.value * scale) for plan in plans]
    front = _front(dots)
    axes.step(*zip(*front, strict=True), where="post", color=VALUE, zorder=2)
    beaten = [dot for dot in dots if dot not in front]
    for chosen, name, colour in ((front, "no plan is better", VALUE), (beaten, "beaten", FAINT)):
        if chosen:
            devices, values = zip(*chosen, strict=True)
            axes.scatter(devices, values, 22, colour, label=name, zorder=3,
                         edgecolors=INK, linewidths=0.4)  # fmt: skip
    bounds = [plan.lower_bound * scale for plan in plans]
    axes.scatter([x for x, _ in dots], bounds, 60, BOUND, marker="_", label="lower bound")
    if len(plans) <= MOST_LABELS:
        for dot in sorted(set(dots)):
            named = (label for each, label in zip(dots, labels, strict=True) if each == dot)
            axes.annotate(short(", ".join(named)), dot, xytext=(4, 4), textcoords="offset points",
                          fontsize=TEXT - 2)  # fmt: skip
    axes.set_xlabel("devices used")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(bottom=0.0)
    axes.margins(x=0.15)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=1.0)
    return figure


def _front(dots: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The dots that have less of one than any with no more of the other, by devices."""
    found: list[tuple[int, float]] = []
    for dot in sorted(dots):
        if not found or dot[1] < found[-1][1]:
            found.append(dot)
    return found
