"""How figures look: the width of a paper's column, small type, colours that all can tell apart."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH = 3.5  # inches: a column of a paper
SMALL, TEXT = 7.0, 8.0  # points
DOTS = 300  # per inch, of a PNG
NAME = 18  # characters of a device or plan that are shown
HUES = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#b8a800", "#7f7f7f",
)  # fmt: skip
"""Okabe and Ito's, which people tell apart however they see colours."""
VALUE, BOUND = HUES[0], HUES[3]
INK, FAINT = "#222222", "#bbbbbb"
SETTINGS: dict[Any, object] = {
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "hatch.linewidth": 0.5,
    "svg.hashsalt": "placewright",
    "svg.fonttype": "none",
    "text.parse_math": False,
}


def hue(number: int) -> str:
    return HUES[number % len(HUES)]


def short(name: str) -> str:
    """A name as short as a figure has room for; `$` and the like mean nothing in it."""
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


@contextmanager
def styled() -> Iterator[None]:
    """Figures that are made and drawn inside look so."""
    import matplotlib

    with matplotlib.rc_context(SETTINGS):
        yield


def new_figure(height: float) -> tuple[Figure, Axes]:
    """A figure of a column's width, `height` inches high, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def seconds_axis(axis: Axis, most: float) -> float:
    """Label an axis of times up to `most` seconds; what a second is on it."""
    scale, unit = _unit(most, ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")))
    axis.set_label_text(f"time ({unit})")
    return 1.0 / scale


def bytes_axis(axis: Axis, most: float) -> float:
    """Label an axis of memory up to `most` bytes; what a byte is on it."""
    scale, unit = _unit(most, ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")))
    axis.set_label_text(unit)
    return 1.0 / scale


def _unit(most: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The first of the units, the largest first, of which there is one; else the last."""
    return next((each for each in units if most >= each[0]), units[-1])


def rows_of(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of a figure, the first on top."""
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def drawn(figure: Figure, kind: str) -> bytes:
    """The file of a figure; the same for the same figure."""
    stream = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    figure.savefig(stream, format=kind, dpi=DOTS, metadata=metadata)
    return stream.getvalue()
