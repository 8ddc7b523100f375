"""Which limit on the loads can a chain of ideals keep? (Tarnawski et al. §5.1.1)

A contiguous split is a chain of ideals of the nodes' DAG. The search starts from the best split of
a few linear orders and asks whether any chain of ideals keeps all stages below that; if none does,
it is the best. Ideals that no split below the bound can pass through are never kept, and the
table says only how few devices do for the rest (see `kernels.throughput.ideals`,
`kernels.throughput.ideal_dp`). All options of the objective are exact:

- ``gpipe`` asks about pairs of limits, forward and backward, until no pair with a smaller sum is
  left open;
- replicas are kinds of stages of their own (App. C.2);
- under staging ``direct``, what a tensor costs its producer depends on how many stages read it,
  and where links differ (hosts with slower links between them, App. C.3) on which devices they
  have. There the table charges the least, and the chains it allows are tried one by one.

Where ideals, pairs or chains are too many for the time or memory given, a better split is asked
for elsewhere, and then lower limits, which fewer ideals can keep: each that no chain keeps is a
bound, each that one keeps is a better split.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from placewright.budget import Budget, Progress
from placewright.graph import Wide
from placewright.kernels.throughput.dominance import PARTS_PER_IDEAL
from placewright.kernels.throughput.ideal_dp import (
    FOUND,
    GAVE_UP,
    NONE,
    fewest,
    find_chain,
    followed,
    survivors,
)
from placewright.kernels.throughput.ideal_listing import surviving_ideals
from placewright.kernels.throughput.ideals import Ideals, passable, unpacked
from placewright.kernels.throughput.least_chain import least_chain
from placewright.kernels.throughput.stage_transfers import Beside, beside_ideals
from placewright.plan import Placement
from placewright.planners.throughput.splits import (
    Split,
    best_of_lines,
    evaluated,
    least_load,
    linear_orders,
    most_load,
    open_positions,
)
from placewright.planners.throughput.stages import StageTables
from placewright.planners.throughput.windows import WindowTables
from placewright.problem import LONG_ROUNDING, ROUNDING

START_ORDERS = 4
NARROW = 0.015  # of the value: rectangles of ``gpipe`` limits wider than that are halved first
CLOSE = 0.015  # of the value: then the least load is worked out rather than asked about
FINE = 0.0005  # the same where that takes long
HALVINGS = 6  # of what is open, by what all devices can do together
MOST_IDEALS = 20_000_000  # looked at
IDEALS_PER_SECOND = 1e6
PLACES_PER_IDEAL = 24  # pairs of places of an order that are looked at while one ideal is listed
PAIRS_PER_SECOND = 1e7
MOMENT = 0.05  # seconds that are given in any case
MOST_KEPT_BYTES = 1 << 30
MOST_KEPT = 200_000
MOST_WORK = 600_000_000  # without a limit of time: pairs of ideals, some count as several
MOST_TIMED_WORK = 10_000_000_000  # in one table
MOST_WORKED_OUT = 20_000  # ideals of which the least load of all chains is worked out
MOST_CHAINS = 300_000  # tried where the table is only a necessary condition
CHAINS_SHARE = 0.25  # of the work left, for the chains of one limit: there are others to ask about


@dataclass
class Question:
    """Which limit to ask about next, so that few questions find the least one that can be kept.

    First just below the best split, which is most often the answer. If a split is found there,
    halfway down to what no split can keep, until that is close.
    """

    lower: float
    """No split keeps this limit."""
    unknown: float = math.inf
    """The least limit that it was not possible to decide about."""
    _asked: bool = False

    def close(self, top: float, share: float = CLOSE) -> bool:
        return self._asked and top - self.lower < share * top

    def next(self, top: float, share: float = CLOSE) -> float | None:
        """The limit to ask about when the best split is just above `top`; None to give up.

        From `share` of the value on, halving what is open is not worth it.
        """
        if not self._asked:
            return top
        if self.unknown < math.inf and self.close(min(top, self.unknown)):
            return None
        return top if self.close(top, share) else (self.lower + min(top, self.unknown)) / 2

    def answered(self, limit: float, answer: int) -> None:
        self._asked = True
        if answer == NONE:
            self.lower = max(self.lower, limit)
        elif answer != FOUND:
            self.unknown = min(self.unknown, limit)


class Listed(NamedTuple):
    """Ideals, and what a stage that begins or ends at one of them sends and fetches."""

    ideals: Ideals
    beside: Beside


class Answer(Protocol):
    """A split: its seconds per input, and where the ops are."""

    @property
    def value(self) -> float: ...

    def placement(self) -> Placement: ...


def _nowhere() -> Answer | None:
    return None


@dataclass
class Search:
    """The best split so far, and what is proved about all others."""

    budget: Budget
    most_ideals: int
    on_progress: Progress
    inflate: float = 1.0
    """The starting bound is taken so many times larger (a check that it does not matter)."""
    orders: int = START_ORDERS
    """Linear orders to start from; without any, the search starts from the most a load can be."""
    elsewhere: Callable[[], Answer | None] = _nowhere
    """Asked once for a better split, when ideals are too many."""
    best: Answer | None = None
    limit: float = math.inf
    """No split above this is of interest: the value of the best one."""
    proved: float = 0.0
    seen: int = 0
    """Ideals looked at."""
    most_work: int = 0
    """Pairs of ideals in all tables; 0: as many as the time left allows."""
    work: int = 0
    lower_limits: bool = True
    """Whether to ask for lower limits where ideals are too many."""
    _one_order: list[StageTables] = field(default_factory=list)
    """Tables of which the first linear order alone has been cut so far."""
    _asked_elsewhere: bool = False
    _windows: WindowTables | None = None

    def run(self, tables: Sequence[StageTables]) -> None:
        """Look through the splits of each reading of the problem (see `contracted.directions`)."""
        tables = [each for each in tables if each.kinds]
        self.begin(tables)
        self.proved = min((self.prove(each) for each in tables), default=self.limit)

    @property
    def impossible(self) -> bool:
        """Whether it is proved that there is no split."""
        return self.best is None and self.proved >= self.below()

    def begin(self, tables: Sequence[StageTables]) -> None:
        """Take the best split of some linear orders of each.

        Of the first alone, if that has one and there is one limit for all loads: where ideals are
        few, looking through them all is faster than the other orders (see `_few_ideals`).
        """
        self._cut_orders(tables, 0, 1)
        if self.best is None or any(each.passes > 1 for each in tables):
            self._cut_orders(tables, 1, self.orders)
        else:
            self._one_order = list(tables)
        start = self.best.value if self.best else max(map(most_load, tables), default=0.0)
        self.limit = self.inflate * start

    def _cut_orders(self, tables: Sequence[StageTables], first: int, end: int) -> None:
        """Take the best split of the linear orders of each from `first` on, up to `end`."""
        for each in tables:
            cutoff = np.inf if self.best is None else self.best.value
            orders = linear_orders(each.graph, end)[first:]
            found = best_of_lines(each, orders, cutoff, self.budget, self._windows_of(each))
            self.take(found)

    def prove(self, tables: StageTables, lower: float = 0.0) -> float:
        """Improve the best split by those of `tables`; none of them is below what it returns.

        `lower`: none is below that, as is known already.
        """
        windows = self._windows_of(tables)
        if tables.passes > 1:
            return self._prove_pairs(windows)
        return self._prove_single(windows, lower)

    def _windows_of(self, tables: StageTables) -> WindowTables:
        if self._windows is None or self._windows.tables is not tables:
            self._windows = WindowTables(tables)
        return self._windows

    def below(self) -> float:
        """What a split must be within to count as better, far above rounding."""
        return self.limit * (1 - LONG_ROUNDING)

    def take(self, found: Answer | None) -> None:
        """Keep the better split."""
        if found is None:
            return
        self.limit = min(self.limit, found.value)
        if self.best is None or found.value < self.best.value:
            self.best = found

    # -- one limit, or one for each pass ---------------------------------------------------------

    def _prove_single(self, windows: WindowTables, lower: float) -> float:
        tables = windows.tables
        question = Question(max(lower, least_load(tables) * (1 - LONG_ROUNDING)))
        listed = self._few_ideals(windows) if question.lower < self.below() else None
        listed_for = self.below() if listed else 0.0  # the limit
        halved = False
        while question.lower < self.below() and self.budget.left > 0:
            self.on_progress("ideals", question.lower / self.limit)
            few = listed is not None and len(listed.ideals.bits) <= MOST_WORKED_OUT
            covered = listed_for >= self.below() and not tables.approximate
            if listed and few and covered and question.close(self.below()):
                self._take_least(windows, listed, question.lower)
                return self.below()
            asked = question.next(self.below(), CLOSE if few or not listed else FINE)
            if asked is None:
                break
            if asked > listed_for:
                listed = self._ideals(windows, [asked])
                listed_for = asked if listed else 0.0
            answer, split = self._decide(windows, listed, [asked]) if listed else (GAVE_UP, None)
            self.take(split)
            if answer == GAVE_UP and self.better_elsewhere() is not None:
                continue
            if answer == GAVE_UP and not self.lower_limits:
                break
            if answer != NONE and not halved:  # otherwise nothing needs to be known below
                question.answered(self._impossible(windows, question.lower, self.below()), NONE)
                halved = True
            question.answered(asked, answer)
        return question.lower

    def _few_ideals(self, windows: WindowTables) -> Listed | None:
        """The ideals below the best split, if that takes no longer than to cut the other orders.

        If it would, these are cut.
        """
        tables = windows.tables
        if not any(each is tables for each in self._one_order):
            return None
        order, below = np.arange(tables.graph.node_count), self.below()
        places = int(open_positions(windows, order, below).sum())
        most = max(self.orders - 1, 0) * places**2 // PLACES_PER_IDEAL
        listed = self._ideals(windows, [below], most)
        if listed is None:
            self._cut_orders([tables], 1, self.orders)
        self._one_order = [each for each in self._one_order if each is not tables]
        return listed

    def _impossible(self, windows: WindowTables, lower: float, top: float) -> float:
        """A limit above `lower`, if one is found, that the devices cannot keep all together."""
        for _ in range(HALVINGS):
            middle = (lower + top) / 2
            if self._possible(windows, [middle]):
                top = middle
            else:
                lower = middle
        return lower

    def better_elsewhere(self) -> Answer | None:
        """A better split that somebody else knows; asked once."""
        if self._asked_elsewhere:
            return None
        self._asked_elsewhere = True
        before = self.limit
        self.take(self.elsewhere())
        return self.best if self.limit < before else None

    def _take_least(self, windows: WindowTables, listed: Listed, lower: float) -> None:
        """Take the best split of all; `lower` is a limit close below that none can keep."""
        tables, top = windows.tables, self.below()
        alive, least, most = survivors(listed.ideals, windows.within([top]))
        value, reached, kinds = least_chain(
            *listed, alive, least, most, tables.nets, tables.costs, tables.heavy,
            tables.limits([top]), lower, top,
        )  # fmt: skip
        if value < np.inf:
            stages = _stages(listed.ideals, reached, tables.graph.node_count)
            self.take(evaluated(tables, stages, kinds))

    def _prove_pairs(self, windows: WindowTables) -> float:
        """Rectangles (largest forward load < high, sum below the best) until none is open."""
        if self.best is None and self._none_at_all(windows):
            return self.below()
        open_rectangles = [(0.0, self.limit)]
        while open_rectangles:
            if self.budget.left <= 0:
                return 0.0
            low, high = open_rectangles.pop()
            high = min(high, self.limit)
            # The first has only to shut a split out that is known.
            limits = [high * (1 - ROUNDING), self.below() - low]
            if limits[1] < 0 or high <= low or not self._possible(windows, limits):
                continue
            if high - low > NARROW * self.limit:
                open_rectangles += [((low + high) / 2, high), (low, (low + high) / 2)]
                continue
            listed = self._ideals(windows, limits)
            if listed is None and self.better_elsewhere() is not None:
                open_rectangles.append((low, high))
                continue
            if listed is None:
                return 0.0
            answer, split = self._decide(windows, listed, limits)
            if answer == NONE:
                continue
            if split is None:
                return 0.0
            forward = split.thresholds[0]
            self.take(split)
            open_rectangles += [(forward, high), (low, forward)]
        return self.below()

    def _none_at_all(self, windows: WindowTables) -> bool:
        """Whether it is proved that no split fits, whatever its loads; one that does is taken."""
        limits = [self.limit] * windows.tables.passes
        listed = self._ideals(windows, limits)
        answer, split = self._decide(windows, listed, limits) if listed else (GAVE_UP, None)
        self.take(split)
        return answer == NONE

    # -- questions -----------------------------------------------------------------------------

    def _possible(self, windows: WindowTables, limits: Sequence[float]) -> bool:
        conditions = windows.within(limits)
        whole = conditions.price.sum(axis=0)
        return bool(passable(conditions, np.zeros_like(whole), whole))

    def _ideals(
        self, windows: WindowTables, limits: Sequence[float], most: int | None = None
    ) -> Listed | None:
        """Ideals that a split within the limits may pass through; None if they are too many.

        That is, more than `most` of them to look at, or than there is time and memory for.
        """
        tables, graph = windows.tables, windows.tables.graph
        words = (graph.node_count + 63) // 64
        columns = tables.costs.added.reshape(graph.node_count, -1)
        row_bytes = 8 * (2 * words + columns.shape[1] + 2 * PARTS_PER_IDEAL + 24)
        most_ideals = self._within_time(self.most_ideals, IDEALS_PER_SECOND)
        if most is not None:
            most_ideals = min(most_ideals, most)
        visited, kept, ideals = surviving_ideals(
            graph.followers,
            np.bincount(graph.edge_target, minlength=graph.node_count),
            tables.nets,
            np.ascontiguousarray(columns),
            windows.within(limits),
            most_ideals,
            min(MOST_KEPT, MOST_KEPT_BYTES // row_bytes),
        )
        self.seen += most_ideals if visited < 0 else visited
        if visited < 0 or kept < 0:
            return None
        return Listed(ideals, beside_ideals(ideals, tables.nets, tables.costs))

    def _within_time(self, most: int, per_second: float) -> int:
        """As much of `most` as the time left allows."""
        return int(min(most, max(self.budget.left, MOMENT) * per_second))

    def _work_left(self) -> int:
        if math.isinf(self.budget.left):
            return max((self.most_work or MOST_WORK) - self.work, 0)
        left = self._within_time(MOST_TIMED_WORK, PAIRS_PER_SECOND)
        return min(left, max(self.most_work - self.work, 0)) if self.most_work else left

    def _decide(
        self, windows: WindowTables, listed: Listed, thresholds: Sequence[float]
    ) -> tuple[int, Split | None]:
        """Whether a split keeps all stages within the thresholds, and one that does."""
        tables = windows.tables
        limits = tables.limits(thresholds)
        alive, least, most = survivors(listed.ideals, windows.within(thresholds))
        shared = (tables.nets, tables.costs)
        most_work = self._work_left()
        work, need, further, by = fewest(
            *listed, alive, least, most, *shared, tables.heavy, limits, most_work,
            tables.approximate,
        )  # fmt: skip
        self.work += work
        if work > most_work:
            return GAVE_UP, None
        if tables.approximate:
            work, answer, reached, kinds = find_chain(
                *listed, alive, need, most, *shared, tables.chain, limits, MOST_CHAINS,
                int(CHAINS_SHARE * self._work_left()),
            )  # fmt: skip
            self.work += work
        else:
            reached, kinds = followed(alive, need, further, by, tables.costs)
            answer = FOUND if len(reached) else NONE
        if answer != FOUND:
            return int(answer), None
        stages = _stages(listed.ideals, reached, tables.graph.node_count)
        return FOUND, evaluated(tables, stages, kinds)


def _stages(ideals: Ideals, reached: Wide, count: int) -> Wide:
    """`[node]` the first of the rising ideals that holds it."""
    return np.asarray(unpacked(ideals.bits[reached], count).argmax(axis=0), dtype=np.int64)
