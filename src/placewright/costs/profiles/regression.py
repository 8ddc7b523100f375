"""What a larger batch takes, from measurements of smaller ones: a line for each op.

Celeritas §4.2.1: a linear regression of every op's memory, and roughly of its time, against the
batch. Errors are relative, for ops take from microseconds to seconds and a median is as uncertain
as it is long; a line that falls, or that starts below 0, is none of an op.

>>> line = fitted([1, 2, 4], [3.0, 5.0, 9.0])
>>> round(line.at(32), 6)
65.0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placewright.costs.profiles.entry import Measured
from placewright.importers.costs import Cost

LEAST_SHARE = 0.01  # of the largest value: what is less is weighed as if it were so much


@dataclass(frozen=True)
class Line:
    """``fixed + per_sample · batch``, neither below 0."""

    fixed: float
    per_sample: float

    def at(self, batch: float) -> float:
        return self.fixed + self.per_sample * batch


def fitted(batches: Sequence[float], values: Sequence[float]) -> Line:
    """The line nearest to `values`, none below 0, by the squares of relative errors."""
    x, y = np.asarray(batches, dtype=float), np.asarray(values, dtype=float)
    largest = float(y.max())
    if not largest:
        return Line(0.0, 0.0)
    weight = 1.0 / np.maximum(y, LEAST_SHARE * largest)
    columns, target = np.stack([weight, weight * x], axis=1), weight * y
    both, *_ = np.linalg.lstsq(columns, target, rcond=None)
    if (both >= 0.0).all():
        return Line(float(both[0]), float(both[1]))
    # Of a convex function on a quadrant the least is then on one of its edges.
    alone = np.diag(columns.T @ target / (columns**2).sum(axis=0))
    errors = ((columns @ alone - target[:, None]) ** 2).sum(axis=0)
    best = alone[int(errors.argmin())]
    return Line(float(best[0]), float(best[1]))


def regressed(
    batches: Sequence[float],
    measured: Sequence[Measured],
    memory: Sequence[float],
    batch: float,
    work: Cost,
    outputs: float,
) -> Measured:
    """The entry of an op at `batch`, from those of the same op at smaller `batches`.

    `memory` is bytes beyond its inputs at each of them: what it makes and needs on the way;
    `work` is what it has to do at `batch`, and `outputs` the bytes it makes then.
    """
    seconds, low, high = (
        fitted(batches, [getattr(each, name) for each in measured]).at(batch)
        for name in ("seconds", "low", "high")
    )
    return Measured(
        seconds,
        min(low, seconds),
        max(high, seconds),
        sum(each.samples for each in measured),
        "regressed",
        max(fitted(batches, memory).at(batch) - outputs, 0.0),
        flops=work.flops,
        bytes_read=work.bytes_read,
        bytes_written=work.bytes_written,
        dtype=work.dtype,
    )
