"""What-if answers as people read them: tables, records for ``--json``, a sweep's figure."""

from __future__ import annotations

import html
import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from placewright.errors import MissingExtraError, OptionError
from placewright.formats import files
from placewright.plan import Plan
from placewright.report.records import plan_record
from placewright.report.serving import serving_record
from placewright.report.words import rate_words, value_title
from placewright.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from placewright.serving.planning import ServingPlan
    from placewright.whatif.replan import Point, Replan
    from placewright.whatif.robustness import Percentiles
    from placewright.whatif.sweep import SweepLine

EXTRA = "report"
_LIBRARY = {".html": "plotly", ".htm": "plotly", ".png": "matplotlib"}
MOST_LABELS = 12  # beyond, only the front is named in a picture
_FRONT, _OTHER = "#1f77b4", "#999999"


# -- sweep -----------------------------------------------------------------------------------


def sweep_table(lines: Sequence[SweepLine], title: str) -> Table:
    """A line per variant, those on the front marked; one without a plan has the reason."""
    if any(line.served for line in lines):
        return _served_table(lines, title)
    priced = any(line.price is not None for line in lines)
    plans = [line.plan for line in lines if line.plan is not None]
    many = any(plan.throughput is not None for plan in plans)
    rate = (f"{rate_words(plans[0].problem)}/s",) if many else ()
    table = Table(title=escape(title), title_justify="left")
    table.add_column("variant")
    columns = ("devices", _value_title(plans), *rate, "lower bound", "gap")
    for column in (*columns, *(("USD/hour",) if priced else ())):
        table.add_column(column, justify="right")
    table.add_column("planner")
    for line in lines:
        figures = ["-"] * (3 + many) if line.plan is None else _figures(line.plan, many)
        table.add_row(
            escape(line.name) + (" *" if line.front else ""),
            str(line.devices),
            *figures,
            *([f"{line.price:.2f}" if line.price is not None else "-"] if priced else []),
            escape(line.error) if line.plan is None else escape(line.plan.planner),
            style="bold" if line.front else "dim" if line.plan is None else "",
        )
    return table


def _served_table(lines: Sequence[SweepLine], title: str) -> Table:
    """What requests take on each variant, and what their tokens cost."""
    priced = any(line.price is not None for line in lines)
    table = Table(title=escape(title), title_justify="left")
    table.add_column("variant")
    columns = ("devices", "first token", "per token", "tokens/s", "gap", "sequences")
    for column in (*columns, *(("USD/hour", "USD/1M tokens") if priced else ())):
        table.add_column(column, justify="right")
    table.add_column("planner")
    for line in lines:
        prices = [_dollars(each) for each in (line.price, line.price_of_tokens)] if priced else []
        table.add_row(
            escape(line.name) + (" *" if line.front else ""),
            str(line.devices),
            *(["-"] * 5 if line.served is None else _served_figures(line.served)),
            *prices,
            escape(line.error) if line.plan is None else escape(line.plan.planner),
            style="bold" if line.front else "dim" if line.plan is None else "",
        )
    return table


def _served_figures(served: ServingPlan) -> list[str]:
    fit = served.capacity.fit
    return [
        format_seconds(served.seconds_to_first_token),
        format_seconds(served.seconds_per_token),
        f"{served.tokens_per_second:.4g}",
        f"{served.gap:.1%}",
        "-" if fit is None else str(fit),
    ]


def _dollars(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:.2f}"


def _value_title(plans: Sequence[Plan]) -> str:
    """What the values are, where they are of one kind: batches of many sizes are not."""
    titles = {value_title(plan.problem) for plan in plans}
    return titles.pop() if len(titles) == 1 else "value"


def _figures(plan: Plan, many: bool) -> list[str]:
    throughput = [] if not many else ["-" if plan.throughput is None else f"{plan.throughput:.4g}"]
    bound = format_seconds(plan.lower_bound)
    return [format_seconds(plan.value), *throughput, bound, f"{plan.gap:.1%}"]


def sweep_legend(lines: Sequence[SweepLine]) -> str:
    """What the mark means."""
    what = "tokens per second" if any(line.served for line in lines) else "the objective"
    cost = "price" if any(line.price is not None for line in lines) else "number of devices"
    return f"* no other variant is better in {what} and the {cost}"


def sweep_records(lines: Sequence[SweepLine]) -> list[dict[str, Any]]:
    """A record per variant: that of its plan, or ``value`` null and ``error``, with its name.

    `device_count`, `price` (USD per hour or null) and `front` (on the Pareto front) besides; for a
    mix also `price_of_tokens` (USD per million of the output, or null).
    """
    return [
        {
            "variant": line.name,
            "device_count": line.devices,
            "price": line.price,
            "front": line.front,
            **_line_record(line),
        }
        for line in lines
    ]


def _line_record(line: SweepLine) -> dict[str, Any]:
    if line.plan is None:
        return {"value": None, "status": "unknown", "error": line.error}
    if line.served is None:
        return plan_record(line.plan)
    return {"price_of_tokens": line.price_of_tokens, **serving_record(line.served)}


# -- replan ----------------------------------------------------------------------------------


def replan_table(result: Replan) -> Table:
    """A line per answer, from the fewest bytes moved to the most; the chosen one is marked."""
    problem = result.chosen.plan.problem
    table = Table(title=escape(problem.name), title_justify="left")
    table.add_column("answer")
    for column in ("moved", "of all", "ops", value_title(problem), "gap"):
        table.add_column(column, justify="right")
    for point in result.points:
        mark = " *" if point is result.chosen else ""
        share = point.moved_bytes / result.total_bytes if result.total_bytes else 0.0
        table.add_row(
            point.kind + mark,
            format_bytes(point.moved_bytes),
            f"{share:.1%}",
            str(point.moved_ops),
            format_seconds(point.plan.value),
            f"{point.plan.gap:.1%}",
            style="bold" if mark else "",
        )
    return table


def replan_record(result: Replan, path: str | Path | None = None) -> dict[str, Any]:
    """`chosen` as ``plan --json`` has it, and the `points`; bytes moved in all and by force."""
    return {
        "chosen": _point_record(result.chosen) | {"plan": None if path is None else str(path)},
        "points": [
            _point_record(point) | {"chosen": point is result.chosen} for point in result.points
        ],
        "forced_bytes": result.forced_bytes,
        "total_bytes": result.total_bytes,
    }


def _point_record(point: Point) -> dict[str, Any]:
    return {
        "kind": point.kind,
        "moved_bytes": point.moved_bytes,
        "moved_ops": point.moved_ops,
        **plan_record(point.plan),
    }


# -- robustness ------------------------------------------------------------------------------


def percentiles_line(found: Percentiles, noise: float) -> str:
    """The three percentiles in words, for under the summary of a plan."""
    return (
        f"with costs varying by {noise:.0%}: median {format_seconds(found.p50)}, 90% of runs "
        f"between {format_seconds(found.p5)} and {format_seconds(found.p95)}"
    )


def robust_line(before: Percentiles, after: Percentiles) -> str:
    """What a robust plan gains over the plan it started from."""
    if after.p95 >= before.p95:
        return "robust: no plan with a smaller 95th percentile was found"
    gain = 1 - after.p95 / before.p95
    return (
        f"robust: 95th percentile {format_seconds(before.p95)} → {format_seconds(after.p95)} "
        f"({-gain:.1%})"
    )


# -- figure ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Dot:
    """One variant in the figure; `bound` is the best its value may be, or None."""

    x: float | str
    y: float
    bound: float | None
    name: str
    front: bool


def check_figure(path: Path) -> None:
    """OptionError for a file that is no figure; MissingExtraError if what draws it is missing."""
    library = _LIBRARY.get(path.suffix.lower())
    if library is None:
        raise OptionError(f"{path}: no kind of figure; name a file .html or .png")
    if find_spec(library) is None:
        raise MissingExtraError(EXTRA, f"drawing {path.suffix} figures")


def write_figure(lines: Sequence[SweepLine], path: Path, title: str) -> None:
    """Draw value against cost, the front joined, to ``.html`` (interactive) or ``.png``.

    Where all variants cost the same, one is beside the other instead.
    """
    check_figure(path)
    dots, x_title, y_title = _dots(lines)
    if _LIBRARY[path.suffix.lower()] == "plotly":
        files.write_text(path, _html(dots, title, x_title, y_title))
    else:
        files.write_bytes(path, _png(dots, title, x_title, y_title))


def _dots(lines: Sequence[SweepLine]) -> tuple[list[_Dot], str, str]:
    planned = [(line, line.plan) for line in lines if line.plan is not None]
    apart = len({line.cost for line, _ in planned}) > 1
    dots = []
    for line, plan in planned:
        throughput = plan.throughput
        low = plan.lower_bound
        if throughput is None:
            y, bound = plan.value * 1e3, low * 1e3
        else:
            y, bound = throughput, throughput * plan.value / low if low > 0 else math.inf
        known = bound if math.isfinite(bound) and low > 0 else None
        dots.append(_Dot(line.cost if apart else line.name, y, known, line.name, line.front))
    rate = any(plan.throughput is not None for _, plan in planned)
    priced = any(line.price is not None for line, _ in planned)
    x_title = "USD per hour" if priced else "devices"
    problem = planned[0][1].problem if planned else None
    objective = problem.options.objective if problem else "value"
    y_title = f"{rate_words(problem)} per second" if rate and problem else f"{objective} (ms)"
    return dots, x_title if apart else "variant", y_title


def _front(dots: Sequence[_Dot]) -> list[_Dot]:
    """The dots to join, from the cheapest on; none where dots are beside each other."""
    front = [dot for dot in dots if dot.front and not isinstance(dot.x, str)]
    return sorted(front, key=lambda dot: float(dot.x))


def _html(dots: Sequence[_Dot], title: str, x_title: str, y_title: str) -> str:
    import plotly.graph_objects as go
    import plotly.io

    # Plotly takes text for HTML of a kind, so what comes from files and arguments is escaped.
    def text(value: float | str) -> float | str:
        return html.escape(value) if isinstance(value, str) else value

    def marks(chosen: Sequence[_Dot], name: str, color: str) -> Any:
        return go.Scatter(
            x=[text(dot.x) for dot in chosen],
            y=[dot.y for dot in chosen],
            text=[html.escape(dot.name) for dot in chosen],
            mode="markers",
            name=name,
            marker={"size": 11, "color": color},
            hovertemplate="%{text}<br>%{y:.4g}<extra></extra>",
        )

    bounded = [dot for dot in dots if dot.bound is not None]
    front = _front(dots)
    figure = go.Figure(
        [
            go.Scatter(
                x=[text(dot.x) for dot in front],
                y=[dot.y for dot in front],
                mode="lines",
                line={"color": _FRONT, "shape": "hv"},
                showlegend=False,
                hoverinfo="skip",
            ),
            marks([dot for dot in dots if dot.front], "on the front", _FRONT),
            marks([dot for dot in dots if not dot.front], "beaten", _OTHER),
            go.Scatter(
                x=[text(dot.x) for dot in bounded],
                y=[dot.bound for dot in bounded],
                mode="markers",
                name="bound: no plan is better",
                marker={"symbol": "line-ew-open", "size": 16, "color": "#d62728"},
                hovertemplate="%{y:.4g}<extra></extra>",
            ),
        ]
    )
    figure.update_layout(
        title={"text": html.escape(title)},
        xaxis={"title": {"text": x_title}},
        yaxis={"title": {"text": y_title}, "rangemode": "tozero"},
        template="plotly_white",
    )
    page: str = plotly.io.to_html(figure, include_plotlyjs=True, full_html=True)
    return page


def _png(dots: Sequence[_Dot], title: str, x_title: str, y_title: str) -> bytes:
    from matplotlib.figure import Figure

    def text(value: float | str) -> float | str:  # a dollar would begin a formula
        return value.replace("$", r"\$") if isinstance(value, str) else value

    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    front = _front(dots)
    if front:
        axes.step([dot.x for dot in front], [dot.y for dot in front], where="post", color=_FRONT)
    for chosen, name, color in (
        ([dot for dot in dots if dot.front], "on the front", _FRONT),
        ([dot for dot in dots if not dot.front], "beaten", _OTHER),
    ):
        if chosen:
            axes.scatter([text(dot.x) for dot in chosen], [dot.y for dot in chosen],
                         color=color, label=name, zorder=3)  # fmt: skip
    bounds = [(dot.x, dot.bound) for dot in dots if dot.bound is not None]
    if bounds:
        axes.scatter(
            [text(x) for x, _ in bounds],
            [bound for _, bound in bounds],
            color="#d62728",
            marker="_",
            s=150,
            label="bound: no plan is better",
        )
    axes.margins(x=0.12)
    if not any(isinstance(dot.x, str) for dot in dots):
        for dot in dots if len(dots) <= MOST_LABELS else front:
            axes.annotate(str(text(dot.name)), (dot.x, dot.y), xytext=(5, 5), fontsize=7,
                          textcoords="offset points")  # fmt: skip
    axes.set_title(str(text(title)))
    axes.set_xlabel(x_title)
    axes.set_ylabel(y_title)
    axes.set_ylim(bottom=0.0)
    if dots:
        axes.legend()
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the font lacks is drawn as a box
        figure.savefig(content, format="png")
    return content.getvalue()
