"""How far costs are off: of each op what its plan expects against what a run measured."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from placewright.errors import InputError
from placewright.graph import Floats, Ints
from placewright.outcome import Schedule
from placewright.plan import Plan
from placewright.report.figures.style import INK, hue, new_figure, seconds_axis, short
from placewright.report.html.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 3.1  # inches
MARKS = "osD^vPX*"  # of devices, so that a print without colour tells them apart


def errors(plan: Plan, run: Run) -> Figure:
    """A dot per op, both axes by their logarithm; on the line the run took what was planned.

    InputError for a plan without a schedule of ops, or a run that has none of them.
    """
    from matplotlib.ticker import NullFormatter

    op, planned, measured = _seconds(plan, run)
    figure, axes = new_figure(HEIGHT)
    both = np.concatenate([planned, measured])
    scale = seconds_axis(axes.xaxis, float(both.max()))
    unit = axes.xaxis.get_label_text().replace("time ", "")
    ends = np.array([both.min() / 1.5, both.max() * 1.5]) * scale
    axes.fill_between(ends, ends / 2, ends * 2, color=INK, alpha=0.08, lw=0, label="within 2×")
    axes.plot(ends, ends, color=INK, linewidth=0.8, label="as planned")
    device = plan.placement.device[op]
    for number in np.unique(device).tolist():
        mine, mark = device == number, MARKS[number % len(MARKS)]
        name = short(plan.problem.device_names[number])
        axes.scatter(planned[mine] * scale, measured[mine] * scale, 12, hue(number),
                     marker=mark, alpha=0.7, linewidths=0, label=name)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.set(xlabel=f"planned {unit}", ylabel=f"measured {unit}")
    off = float(np.median(np.abs(planned / measured - 1)))
    axes.set_title(f"{len(op)} ops, costs off by {off:.0%} (median)", loc="left")
    axes.legend(loc="upper left", handletextpad=0.3)
    return figure


def _seconds(plan: Plan, run: Run) -> tuple[Ints, Floats, Floats]:
    """Ops, and of each the seconds planned and measured (all its calls); those that take none of
    either are left out, as they have no place on axes of logarithms."""
    if not isinstance(plan.outcome, Schedule):
        raise InputError(
            f"the plan is for {plan.problem.options.objective}, and only of plans for latency is "
            "known what each op of a run took; leave out the run"
        )
    took: dict[str, float] = defaultdict(float)
    for _, kind, name, start, finish in run.steps:
        if kind == "op":
            took[name] += finish - start
    names = plan.problem.op_names
    planned = plan.schedule.op_finish - plan.schedule.op_start
    op = np.array([k for k, name in enumerate(names) if took.get(name) and planned[k]], np.int32)
    if not len(op):
        raise InputError("the run has no op of the plan; give the plan that was run")
    return op, planned[op], np.array([took[names[k]] for k in op])
