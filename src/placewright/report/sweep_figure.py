"""The figure of a sweep: value against cost, bars to the bounds, the Pareto front joined."""

from __future__ import annotations

import html
import io
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.errors import MissingExtraError, OptionError
from placewright.formats import files
from placewright.report.words import rate_words

if TYPE_CHECKING:
    from placewright.whatif.sweep_lines import SweepLine

EXTRA = "report"
_LIBRARY = {".html": "plotly", ".htm": "plotly", ".png": "matplotlib"}
MOST_LABELS = 12  # beyond, only the front is named in a picture
_FRONT, _OTHER, _BOUND = "#1f77b4", "#999999", "#d62728"
_TO_BOUND = "to the bound: no plan is better"


@dataclass(frozen=True)
class _Dot:
    """One variant in the figure; `bound` is the best its value may be, or None."""

    x: float | str
    y: float
    bound: float | None
    name: str
    front: bool

    @property
    def reach(self) -> tuple[float, float]:
        """How far the bound is below and above the value."""
        away = 0.0 if self.bound is None else self.bound - self.y
        return max(-away, 0.0), max(away, 0.0)


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
            _bars(bounded, text),
        ]
    )
    figure.update_layout(
        title={"text": html.escape(title)},
        xaxis={"title": {"text": x_title}, **_order([text(dot.x) for dot in dots])},
        yaxis={"title": {"text": y_title}, "rangemode": "tozero"},
        template="plotly_white",
    )
    page: str = plotly.io.to_html(figure, include_plotlyjs=True, full_html=True)
    return page


def _bars(bounded: Sequence[_Dot], text: Callable[[float | str], float | str]) -> Any:
    """From the bounds, which are marked, to the values."""
    import plotly.graph_objects as go

    return go.Scatter(
        x=[text(dot.x) for dot in bounded],
        y=[dot.bound for dot in bounded],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [dot.reach[0] for dot in bounded],
            "arrayminus": [dot.reach[1] for dot in bounded],
            "color": _BOUND,
            "thickness": 1.2,
            "width": 0,
        },
        mode="markers",
        name=_TO_BOUND,
        marker={"symbol": "line-ew-open", "size": 16, "color": _BOUND},
        hovertemplate="%{y:.4g}<extra></extra>",
    )


def _order(values: Sequence[float | str]) -> dict[str, Any]:
    """Names in the order of the table, whatever is drawn first."""
    if not values or not isinstance(values[0], str):
        return {}
    return {"categoryorder": "array", "categoryarray": list(values)}


def _png(dots: Sequence[_Dot], title: str, x_title: str, y_title: str) -> bytes:
    from matplotlib.figure import Figure

    def text(value: float | str) -> float | str:  # a dollar would begin a formula
        return value.replace("$", r"\$") if isinstance(value, str) else value

    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    if dots and isinstance(dots[0].x, str):  # names come in the order in which they are drawn first
        axes.scatter([text(dot.x) for dot in dots], [dot.y for dot in dots], alpha=0.0)
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
    bounded = [dot for dot in dots if dot.bound is not None]
    if bounded:
        axes.errorbar(
            [text(dot.x) for dot in bounded],
            [dot.y for dot in bounded],
            [[dot.reach[0] for dot in bounded], [dot.reach[1] for dot in bounded]],
            fmt="none",
            ecolor=_BOUND,
            capsize=5,
            label=_TO_BOUND,
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
