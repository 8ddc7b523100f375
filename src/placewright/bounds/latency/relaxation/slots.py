"""Which devices get a copy of a region's first tensor, and when: how long the region takes then.

*Cases* say which devices get a copy and within which times it arrives. For each,
`kernels.latency.bound_slots` tells of ever longer horizons that nothing is done before them; the
least horizon of all cases holds. The case with the least is looked at next: if a horizon longer by
its *stride* is not ruled out, a shorter stride is tried; if that is no gain, the case is split by
one more device, or by the middle of the times of a copy. What is said of one of several devices
that are alike tells of others (`receivers`).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from placewright.bounds.latency.relaxation.forest import forest_of
from placewright.bounds.latency.relaxation.network import Indices
from placewright.bounds.latency.relaxation.receivers import Receivers
from placewright.budget import Budget
from placewright.graph import Flags, Floats
from placewright.kernels.latency.bound_fan_out import heads_and_tails
from placewright.kernels.latency.bound_slots import SURE, Copies, Forest, slots_bound
from placewright.kernels.latency.dual_ascent import Part, Routes

INTERVALS = 20
EACH = 8  # slots of an interval
MOST_WORK = 300_000_000  # steps · ops · pairs of devices · slots
MOST_IDLE = 45_000_000  # of it that brings no gain
STEPS = 1000
FEWEST_STEPS = 30  # without gain; a forest that has no time for them is left
FIRST_STEPS = 50  # while devices are left open
STRIDE = 0.03  # at first, as a share of the horizon
MOST_STRIDE = 0.1
LONGER, FEW = 1.5, 20  # a longer stride after one that took few steps
SHORTER = 0.75
SPLIT_STRIDE = 0.01  # a case that can be split is not tried with less
LAST_STRIDE = 0.003
SHORT = 0.125  # of the horizon: times of a copy that are not cut


@dataclass(frozen=True, eq=False)
class Case:
    """Nothing is done before `horizon` where `copy`, `low`, `high` hold; see `bound_slots`.

    `weight` are the prices to go on from.
    """

    horizon: float
    stride: float
    copy: Indices
    low: Floats
    high: Floats
    weight: Floats
    memory: Floats


def bound_in_slots(
    part: Part, reader: Flags, receivers: Receivers, routes: Routes,
    ends: tuple[int, int], known: float, budget: Budget,
) -> float:  # fmt: skip
    """A bound on what a part takes with its ends on devices `ends`; `known` holds already.

    `part` is of a `FanOut`, `reader` says who needs a copy where the ends are.
    """
    first, last = ends
    if known <= 0.0:
        return known
    head, tail = heads_and_tails(part, routes, first, last, part.closed > 0)
    forest = forest_of(part, reader, head, tail)
    search = _Search(forest, receivers, bool(reader[-1]), routes, first, last)
    return search.run(known, budget)


@dataclass(eq=False)
class _Search:
    forest: Forest
    receivers: Receivers
    last_reads: bool
    routes: Routes
    first: int
    last: int

    @property
    def work(self) -> int:
        """Of a step."""
        return len(self.forest.time) * len(self.receivers.send) ** 2 * INTERVALS * EACH

    def run(self, known: float, budget: Budget) -> float:
        """The least horizon of all cases when there is no gain or no work left."""
        number = count()
        waiting = [(known, next(number), self._whole(known))]
        left, idle = float(MOST_WORK), float(MOST_IDLE)
        if self.work * FEWEST_STEPS > MOST_IDLE:
            return known
        while waiting and min(left, idle) > 0 and budget.left > 0:
            least, _, case = waiting[0]
            steps, value = self._try(case)
            left -= steps * self.work
            idle -= steps * self.work
            found = [_raised(case, steps)] if value > SURE else self._look_closer(case, value)
            if not found:
                break
            heapq.heappop(waiting)
            for one in found:
                if np.isfinite(one.horizon):
                    heapq.heappush(waiting, (one.horizon, next(number), one))
            if waiting and waiting[0][0] > least:
                idle = float(MOST_IDLE)
        return waiting[0][0] if waiting else float("inf")

    def _whole(self, known: float) -> Case:
        devices = len(self.receivers.send)
        rows = devices + self.routes.channel_count
        share = 1.0 / (rows * INTERVALS + devices)
        copy = np.full(devices, -1)
        if self.last_reads:
            copy[self.last] = 1
        return Case(
            known, STRIDE, copy, self.receivers.earliest(), np.full(devices, np.inf),
            np.full((rows, INTERVALS), share), np.full(devices, share),
        )  # fmt: skip

    def _try(self, case: Case) -> tuple[int, float]:
        """Steps taken for a horizon longer by the stride, and what came of them."""
        steps = STEPS if self.receivers.first_unsaid(case.copy) < 0 else FIRST_STEPS
        steps = min(steps, MOST_IDLE // self.work)
        copies = Copies(self.receivers.send, case.copy, case.low, case.high)
        value, taken = slots_bound(
            self.forest, self.routes, self.first, self.last, copies,
            case.horizon * (1.0 + case.stride), EACH, case.weight, case.memory, steps,
        )  # fmt: skip
        return taken, value

    def _look_closer(self, case: Case, value: float) -> list[Case]:
        """The case with a stride shorter by what was missing, or split; nothing for no gain."""
        stride = min((1.0 + case.stride) * value - 1.0, SHORTER * case.stride)
        if stride >= SPLIT_STRIDE:
            return [replace(case, stride=stride)]
        found = self._split(case)
        stride = max(stride, 0.5 * case.stride)
        if not found and stride >= LAST_STRIDE:
            return [replace(case, stride=stride)]
        return found

    def _split(self, case: Case) -> list[Case]:
        """By whether one more device gets a copy, or by the middle of the times of one."""
        device = self.receivers.first_unsaid(case.copy)
        if device >= 0:
            parts = self.receivers.without_and_with(case.copy, device)
            return [_part_of(case, copy=copy) for copy in parts]
        until = np.minimum(case.high, case.horizon * (1.0 + case.stride))
        span = np.where(case.copy == 1, until - case.low, 0.0)
        device = int(span.argmax())
        if span[device] <= SHORT * case.horizon:
            return []
        low, high = case.low.copy(), case.high.copy()
        low[device] = high[device] = case.low[device] + 0.5 * span[device]
        return [
            _part_of(case, high=self.receivers.sooner(high)),
            _part_of(case, low=self.receivers.later(low)),
        ]


def _raised(case: Case, steps: int) -> Case:
    longer = LONGER if steps < FEW else 1.0
    stride = min(case.stride * longer, MOST_STRIDE)
    return replace(case, horizon=case.horizon * (1.0 + case.stride), stride=stride)


def _part_of(
    case: Case, copy: Indices | None = None, low: Floats | None = None, high: Floats | None = None
) -> Case:
    """Where more is said of copies; with prices of its own."""
    return replace(
        case,
        stride=STRIDE,
        copy=case.copy if copy is None else copy,
        low=case.low if low is None else low,
        high=case.high if high is None else high,
        weight=case.weight.copy(),
        memory=case.memory.copy(),
    )
