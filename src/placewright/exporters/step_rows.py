"""Rows of stages by what a step of micro-batches takes at least, by dynamic programming.

A step takes at least as long as any chain of passes of which each waits for the one before. One
chain goes with the first micro-batch from the first stage to the last and back to stage s, follows
that stage to its last backward pass, and goes down to the first with the last micro-batch; another
follows stage s from its first to its last forward pass on the way up. The first stage then
exchanges gradients with its data-parallel replicas, for x seconds. With loads l = F + B, of which
what neighbours do together counts once, the longer of the two takes

    Σ l + x + (M − 1) l_s − (n_s − 1) min(F_s, B_s)

under 1F1B, with n_s micro-batches in flight. Under GPipe a chain follows s both ways, and in
inference there is one way only: nothing comes off. So a row takes at least the sum of what its
stages have as a sum, and the highest of what they have as a peak. For a limit on peaks the least
sum is found from the last stage backwards: how many stages come after one, and with that n_s, is
known then. Limits fall from the highest peak of one row to that of the next until no row can be
better, so none is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placewright.errors import OptionError
from placewright.exporters.rows import MOST_WORK, Stage
from placewright.exporters.step_costs import StepCosts
from placewright.graph import Floats
from placewright.outcome import BACKWARD

MOST_LIMITS = 1000
Used = tuple[int, ...]
"""Devices of each class."""


@dataclass(frozen=True)
class StepRow:
    """Stages in the order of the data, and the seconds that their step takes at least."""

    bound: float
    stages: tuple[Stage, ...]


def best_rows(costs: StepCosts) -> tuple[float, list[StepRow]]:
    """What every row takes at least, and rows that take little; no rows where none fits.

    OptionError for more devices than that can be done for.
    """
    search = _Search(costs)
    lowest = search.least_peak()
    if not math.isfinite(lowest):
        return math.inf, []
    rows: list[StepRow] = []
    limit, best = math.inf, math.inf
    for _ in range(MOST_LIMITS):
        found = search.least_sum(limit)
        if found is None:
            return best, rows
        total, peak, stages = found
        if total + lowest >= best:
            return best, rows
        rows.append(StepRow(total + peak, stages))
        best, limit = min(best, total + peak), peak
    return min(best, total + lowest), rows


class StageTables:
    """By how many stages come after one, infinite for what is no such stage: ``sums[after][class,
    i, j]`` and ``peaks[after]``.
    """

    def __init__(self, costs: StepCosts) -> None:
        self.costs = costs
        self.sums = [self._sums(after) for after in range(costs.most_stages)]
        self.peaks = [self._peaks(after) for after in range(costs.most_stages)]

    def _sums(self, after: int) -> Floats:
        costs = self.costs
        sent = costs.sent.sum(axis=0) if after else costs.sent[BACKWARD]
        found: Floats = np.maximum(costs.passes[after].sum(axis=0) - sent, 0.0)
        found[:, 0] += costs.exchange[:, 0]
        return found

    def _peaks(self, after: int) -> Floats:
        costs, may = self.costs, self.costs.may(after)
        forward, backward = np.where(may, costs.passes[after], 0.0)
        ahead = 0.0 if costs.is_gpipe else costs.in_flight[after] - 1
        peak = (costs.micro_batches - 1) * (forward + backward)
        return np.where(may, peak - ahead * np.minimum(forward, backward), np.inf)


class _Search:
    """The rows that stages make."""

    def __init__(self, costs: StepCosts) -> None:
        self.costs, self.count = costs, costs.count
        self.available = tuple(len(members) for members in costs.classes[1])
        states = math.prod(each + 1 for each in self.available)
        if states * len(self.available) * self.count**2 * 10 > MOST_WORK:
            raise OptionError(
                f"{sum(self.available)} devices of {len(self.available)} kinds are too many for "
                "an exact row of stages; name fewer devices in the cluster"
            )
        self.tables = StageTables(costs)

    def least_peak(self) -> float:
        """The least highest peak of any row."""
        found = self._tables(math.inf, by_peak=True)
        return min((float(table[0]) for table, _ in found.values()), default=math.inf)

    def least_sum(self, limit: float) -> tuple[float, float, tuple[Stage, ...]] | None:
        """The least sum of rows whose peaks are all below a limit, its highest peak and stages."""
        tables = self._tables(limit, by_peak=False)
        used = min(tables, key=lambda each: float(tables[each][0][0]), default=None)
        if used is None or not math.isfinite(total := float(tables[used][0][0])):
            return None
        stages, peak, first = [], 0.0, 0
        while first < self.count:
            one, last = (int(each) for each in tables[used][1][first])
            stages.append((one, first, last))
            used = tuple(each - (number == one) for number, each in enumerate(used))
            peak = max(peak, float(self.tables.peaks[sum(used)][one, first, last]))
            first = last + 1
        return total, peak, tuple(stages)

    def _tables(self, limit: float, *, by_peak: bool) -> dict[Used, tuple[Floats, Floats]]:
        """By the devices used: ``[i]`` the least of pieces i …, and the class and last piece of the
        stage that begins with i.
        """
        end, count = np.full(self.count + 1, np.inf), self.count
        end[count] = 0.0
        nobody = (0,) * len(self.available)
        tables = {nobody: (end, np.full((count + 1, 2), -1))}
        stages = [np.where(peak < limit, peak, np.inf) for peak in self.tables.peaks]
        if not by_peak:
            sums = self.tables.sums
            stages = [
                np.where(np.isfinite(p), s, np.inf) for p, s in zip(stages, sums, strict=True)
            ]
        for used in self._sets():
            after = sum(used) - 1
            least, how = np.full(count + 1, np.inf), np.full((count + 1, 2), -1)
            for one in np.flatnonzero(used).tolist():
                rest = tables[tuple(n - (k == one) for k, n in enumerate(used))][0]
                both = np.maximum if by_peak else np.add
                total = both(stages[after][one], rest[None, 1:])
                last = total.argmin(axis=1)
                value = total[np.arange(count), last]
                better = np.flatnonzero(value < least[:count])
                least[better], how[better, 0], how[better, 1] = value[better], one, last[better]
            tables[used] = least, how
        del tables[nobody]
        return tables

    def _sets(self) -> Iterator[Used]:
        """Devices of each class, fewer in all first, no more than there can be stages."""
        every = np.ndindex(*(each + 1 for each in self.available))
        some = [used for used in every if 0 < sum(used) <= self.costs.most_stages]
        return iter(sorted(some, key=lambda used: (sum(used), used)))
