"""Latency and bandwidth of a link from measured times: t = latency + bytes / bandwidth.

Caches, pages and protocols bend the true curve, over sizes and times that span powers of ten. So
the line is the one whose *relative* errors are smallest, and it follows most sizes rather than pass
between all: of |log(t / measured t)| it minimises the mean of the smallest 80 % (least trimmed
absolute deviations, Hawkins and Olive 1999). What other work disturbs moves it little. With fewer
sizes, down to the half of them whose largest error is the median's, the line gives up one end of a
bent curve for nothing: the median error stays as it is, and the rest is off by as much as a factor
of four.

>>> found = fit([1e3, 1e5, 1e7], [2e-5 + size / 1e9 for size in (1e3, 1e5, 1e7)])
>>> f"{found.latency:.1e} s, {found.bandwidth:.1e} B/s, {found.largest_error:.0%}"
'2.0e-05 s, 1.0e+09 B/s, 0%'
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placewright.errors import ExecutionError
from placewright.graph import Floats

FEWEST_SIZES = 3  # of which two would fit any line exactly
KEPT = 0.8  # of the sizes, those closest to the line
COARSE, FINE = 1000, 200  # candidates for where latency and bytes weigh the same
ZOOMS = 3


@dataclass(frozen=True)
class LinkFit:
    """Seconds, bytes per second, and |predicted / measured - 1| over the sizes measured."""

    latency: float
    bandwidth: float
    median_error: float
    largest_error: float
    decades: tuple[tuple[float, float], ...] = ()
    """By decade of sizes: the power of ten that they start from, and their median error."""

    def seconds(self, size: float) -> float:
        return self.latency + size / self.bandwidth


def fit(sizes: Sequence[float], seconds: Sequence[float], *, kept: float = KEPT) -> LinkFit:
    """The line closest to a share of `seconds[size]`, with its errors at all sizes.

    ExecutionError for times no line with a finite bandwidth describes: too few sizes, times that
    are not above 0, or that do not grow with the size.
    """
    size, measured = np.asarray(sizes, dtype=float), np.asarray(seconds, dtype=float)
    _check(size, measured)
    # latency = knee · slope: with the knee given, the slope is a matter of medians of logarithms.
    low, high = float(size.min()) / 100, float(size.max()) * 100
    knees = np.geomspace(low, high, COARSE)
    for _ in range(ZOOMS):
        slopes, score = _slopes(knees, size, measured, kept)
        best = int(np.argmin(score))
        knee, slope = float(knees[best]), float(slopes[best])
        ends = knees[max(best - 1, 0)], knees[min(best + 1, len(knees) - 1)]
        knees = np.geomspace(*ends, FINE)
    if knee > size.max() * 50:
        raise ExecutionError(
            f"transfers of {size.max():g} bytes took no longer than those of {size.min():g}, so "
            "no bandwidth can be told; measure again when the machine does less else"
        )
    errors = np.abs((knee + size) * slope / measured - 1)
    latency = 0.0 if knee <= low else knee * slope
    return LinkFit(
        latency, 1 / slope, float(np.median(errors)), float(errors.max()), by_decade(size, errors)
    )


def by_decade(sizes: Sequence[float] | Floats, errors: Floats) -> tuple[tuple[float, float], ...]:
    """The median of `errors[size]` in each decade of sizes: its start in bytes, and the error.

    >>> by_decade([1e3, 5e3, 2e4], np.array([0.1, 0.3, 0.5]))
    ((1000.0, 0.2), (10000.0, 0.5))
    """
    decade = np.floor(np.log10(sizes) + 1e-9)
    return tuple(
        (float(10**each), float(np.median(errors[decade == each]))) for each in np.unique(decade)
    )


def _slopes(knees: Floats, size: Floats, measured: Floats, share: float) -> tuple[Floats, Floats]:
    """For each knee the best seconds per byte, and the trimmed mean error in logarithms with it.

    The sizes kept are neighbours when those logarithms are sorted, and their median is best.
    """
    logs = np.sort(np.log(measured) - np.log(knees[:, None] + size), axis=1)
    kept = max(math.ceil(share * len(size)), FEWEST_SIZES)
    windows = np.lib.stride_tricks.sliding_window_view(logs, kept, axis=1)
    middles = np.median(windows, axis=2)
    scores = np.abs(windows - middles[:, :, None]).mean(axis=2)
    best = np.argmin(scores, axis=1)[:, None]
    slopes = np.exp(np.take_along_axis(middles, best, axis=1))
    return slopes[:, 0], np.take_along_axis(scores, best, axis=1)[:, 0]


def _check(size: Floats, measured: Floats) -> None:
    if size.shape != measured.shape or len(np.unique(size)) < FEWEST_SIZES:
        raise ExecutionError(
            f"transfers of {len(np.unique(size))} sizes were measured; a line needs the times of "
            f"{FEWEST_SIZES} or more"
        )
    if not (np.isfinite(size).all() and (size > 0).all()):
        raise ExecutionError("a transfer was measured whose size is not above 0 bytes")
    if not (np.isfinite(measured).all() and (measured > 0).all()):
        raise ExecutionError("a transfer was measured to take no time; measure again")
