"""The best row for throughput where ways between devices differ: every order of devices by itself.

In a given order the neighbours of a stage are known, so what it sends to the next piece and gets
from the one before takes what the way between the two takes. Only tensors that go further (a mask
that all layers read) are counted over the quickest way there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from placewright.exporters.crossing import Amounts, Crossing
from placewright.exporters.devices import NOBODY
from placewright.exporters.pieces import Pieces
from placewright.exporters.row_costs import RowCosts, compute_seconds, ways
from placewright.exporters.rows import Row, Stage
from placewright.graph import Floats
from placewright.problem import ROUNDING
from placewright.simulate.throughput import combined

MOST_ORDERS = 3000
Order = tuple[int, ...]


def best_of_orders(pieces: Pieces, costs: RowCosts) -> Row | None:
    """The row of least value over all orders of devices; None where there are too many, or none."""
    usable: list[bool] = [bool(np.isfinite(stages).any()) for stages in costs.seconds]
    counts = tuple(
        len(members) if able else 0 for members, able in zip(costs.classes[1], usable, strict=True)
    )
    orders = list(_orders(counts, MOST_ORDERS + 1))
    if len(orders) > MOST_ORDERS or pieces.problem.staging == "host":
        return None
    loads, best = _Loads(pieces, costs), None
    for order in orders:
        best = _best_cuts(loads, order, np.inf if best is None else best.value) or best
    return best


def _orders(counts: tuple[int, ...], most: int) -> Iterator[Order]:
    """Rows of classes, no class more often than there are devices of it; the first so many."""
    waiting: list[Order] = [(one,) for one, count in enumerate(counts) if count]
    for order in waiting:  # grows while it is read
        if most <= 0:
            return
        most -= 1
        yield order
        if len(waiting) < MOST_ORDERS * len(counts):
            waiting += [
                (*order, one) for one, count in enumerate(counts) if order.count(one) < count
            ]


def _best_cuts(loads: _Loads, order: Order, below: float) -> Row | None:
    """The best cuts of the pieces into one stage per device of the order, if less than `below`."""
    around = (NOBODY, *order, NOBODY)
    best: list[Floats] = []
    cut_of: list[Floats] = []
    for k, one in enumerate(order):
        stage = loads.of(one, around[k], around[k + 2])
        if not best:
            best.append(stage[0])
            cut_of.append(np.zeros(len(stage)))
            continue
        if best[-1].min() >= below:
            return None
        arrived = np.concatenate([[np.inf], best[-1][:-1]])
        total = np.maximum(arrived[:, None], stage)
        cut = total.argmin(axis=0)
        best.append(total[cut, np.arange(len(cut))])
        cut_of.append(cut)
    value = float(best[-1][-1])
    if value >= below:
        return None
    stages: list[Stage] = []
    end = len(best[-1]) - 1
    for one, cut in zip(reversed(order), reversed(cut_of), strict=True):
        first = int(cut[end])
        stages.append((one, first, end))
        end = first - 1
    return Row(value, tuple(reversed(stages)))


@dataclass
class _Loads:
    """`of(class, before, after)[i, j]`: the load of a stage between two neighbours, or none."""

    pieces: Pieces
    costs: RowCosts
    known: dict[tuple[int, int, int], Floats] = field(default_factory=dict)
    compute: dict[int, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.crossing = Crossing(self.pieces)
        self.sent, self.received = self.crossing.tables()
        self.sent_after, self.sent_before = self.crossing.sent_to_neighbours()
        self.got_before, self.got_after = self.crossing.received_from_neighbours()

    def of(self, one: int, before: int, after: int) -> Floats:
        key = (one, before, after)
        if key not in self.known:
            self.known[key] = self._load(*key)
        return self.known[key]

    def _load(self, one: int, before: int, after: int) -> Floats:
        problem = self.pieces.problem
        device = self.costs.classes[1][one][0]
        out, into = ways(problem, device)
        outgoing = self._seconds(
            out, self.sent, [(one, after, self.sent_after), (one, before, self.sent_before)]
        )
        incoming = self._seconds(
            into, self.received, [(before, one, self.got_before), (after, one, self.got_after)]
        )
        if device not in self.compute:
            self.compute[device] = compute_seconds(self.pieces, device)
        load = combined(problem.options, self.compute[device], outgoing, incoming)
        room = problem.device_memory[device] * (1 + ROUNDING)
        load[~np.isfinite(self.costs.seconds[one]) | (self.costs.memory > room)] = np.inf
        load[np.tril_indices(len(load), -1)] = np.inf
        return load

    def _seconds(
        self,
        least: tuple[float, float],
        every: Amounts,
        between: list[tuple[int, int, Amounts]],
    ) -> Floats:
        """What goes between neighbours over their way, and the rest over the quickest."""
        count, nbytes = every[0].copy(), every[1].copy()
        seconds = np.zeros_like(count)
        for source, target, amounts in between:
            if NOBODY in (source, target):
                continue
            latency, rate = self._way(source, target)
            seconds += latency * amounts[0] + rate * amounts[1]
            count -= amounts[0]
            nbytes -= amounts[1]
        rest: Floats = least[0] * np.maximum(count, 0.0) + least[1] * np.maximum(nbytes, 0.0)
        return seconds + rest

    def _way(self, source: int, target: int) -> tuple[float, float]:
        problem, members = self.pieces.problem, self.costs.classes[1]
        a = members[source][0]
        b = next(each for each in members[target] if each != a)
        return float(problem.link_latency[a, b]), float(problem.link_seconds_per_byte[a, b])
