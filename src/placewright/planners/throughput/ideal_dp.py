"""The best contiguous split, proven: dynamic programming over ideals (Tarnawski et al. §5.1.1).

Every contiguous split is a chain of ideals of the nodes' DAG. The planner starts from the best
split of a few linear orders and asks whether any chain of ideals keeps all stages below that; if
none does, it is the best. Ideals that no split below the bound can pass through are never kept,
and the table says only how few devices do for the rest (see `kernels.throughput.ideals`,
`kernels.throughput.ideal_dp`). All options of the objective are exact:

- ``gpipe`` asks about pairs of limits, forward and backward, until no pair with a smaller sum is
  left open;
- replicas are kinds of stages of their own (App. C.2);
- under staging ``direct``, what a tensor costs its producer depends on how many stages read it,
  and where links differ (hosts with slower links between them, App. C.3) on which devices they
  have. There the table charges the least, and the chains it allows are tried one by one.

Where ideals, pairs or chains are too many for the time or memory given, the answer is the best
split found with the bound proved by then.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from placewright.analysis.contracted import directions
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Wide
from placewright.kernels.throughput.ideal_dp import (
    FOUND,
    NONE,
    fewest,
    find_chain,
    least_chain,
    survivors,
)
from placewright.kernels.throughput.ideals import Ideals, passable, surviving_ideals
from placewright.planners.base import Proposal, whole_number
from placewright.planners.throughput.splits import (
    Split,
    best_of_lines,
    evaluated,
    least_load,
    linear_orders,
    most_load,
)
from placewright.planners.throughput.stages import StageTables, stage_tables, too_many_states
from placewright.planners.throughput.windows import WindowTables
from placewright.problem import LONG_ROUNDING, ROUNDING, Problem

__all__ = ["IdealDP", "Search", "too_many_states"]

BOUND_SOURCE = "dynamic programming over ideals"
START_ORDERS = 4
NARROW = 0.015  # of the value: rectangles of ``gpipe`` limits wider than that are halved first
CLOSE = 0.015  # of the value: then the least load is worked out rather than asked about
MOST_IDEALS = 20_000_000  # looked at
MOST_NODES = 10_000
IDEALS_PER_SECOND = 4e6
PAIRS_PER_SECOND = 1e8
MOMENT = 0.05  # seconds that are given in any case
MOST_KEPT_BYTES = 1 << 30
MOST_KEPT = 200_000
MOST_WORK = 10_000_000_000  # in one table: pairs of ideals, some of which count as several
MOST_CHAINS = 300_000  # tried where the table is only a necessary condition


class IdealDP:
    """Exact contiguous max-load.

    Options: `ideals`, how many ideals it may look at (20 million) before it settles for the best
    split of its linear orders.
    """

    name: ClassVar[str] = "ideal-dp"
    objective: ClassVar[str] = "throughput"

    def __init__(self, ideals: str | int | None = None) -> None:
        self.most_ideals = (
            MOST_IDEALS if ideals is None else whole_number(self.name, "ideals", ideals)
        )

    def supports(self, problem: Problem) -> str | None:
        if problem.unit_count > MOST_NODES:  # circles may make few nodes of many units
            count = directions(problem, by_links=False)[0].node_count
            if count > MOST_NODES:
                return (
                    f"it has {count:,} nodes, more than the {MOST_NODES:,} whose linear orders "
                    "it starts from; coarsen the graph or use row-cuts"
                )
        return too_many_states(problem)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        search = Search(budget, self.most_ideals, on_progress)
        with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
            search.run([stage_tables(graph) for graph in directions(problem)])
        return search.proposal(problem, self.name)


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

    def close(self, top: float) -> bool:
        return self._asked and top - self.lower < CLOSE * top

    def next(self, top: float) -> float | None:
        """The limit to ask about when the best split is just above `top`; None to give up."""
        if not self._asked:
            return top
        if self.unknown < math.inf and self.close(min(top, self.unknown)):
            return None
        return top if self.close(top) else (self.lower + min(top, self.unknown)) / 2

    def answered(self, limit: float, answer: int) -> None:
        self._asked = True
        if answer == NONE:
            self.lower = max(self.lower, limit)
        elif answer != FOUND:
            self.unknown = min(self.unknown, limit)


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
    best: Split | None = None
    proved: float = 0.0
    impossible: bool = False
    tables: list[StageTables] = field(default_factory=list)

    def run(self, tables: Sequence[StageTables]) -> None:
        """Look through the splits of each reading of the problem (see `contracted.directions`)."""
        tables = [each for each in tables if each.kinds]
        for each in tables:
            cutoff = np.inf if self.best is None else self.best.value
            orders = linear_orders(each.graph, self.orders)
            found = best_of_lines(each, orders, cutoff, self.budget)
            self.best = found or self.best
        start = self.best.value if self.best else max(map(most_load, tables), default=0.0)
        self.limit = self.inflate * start
        self.proved = min((self._prove(each) for each in tables), default=self.limit)
        self.impossible = self.best is None and self.proved >= self._below()

    def proposal(self, problem: Problem, name: str) -> Proposal:
        if self.best is None:
            reason = "there is no contiguous one" if self.impossible else "none that it looked at"
            other = "allow stages" if problem.options.contiguous else "try a planner of stages"
            raise InfeasibleError(
                f"planner '{name}' found no split that fits the devices ({reason}); give the "
                f"devices more memory or {other} that are not contiguous"
            )
        bound = min(self.proved, self.best.value) if problem.options.contiguous else 0.0
        return Proposal(self.best.placement(), bound, BOUND_SOURCE if bound else "")

    # -- one reading of the problem ------------------------------------------------------------

    def _prove(self, tables: StageTables) -> float:
        """Improve the best split by those of `tables`; none of them is below what it returns."""
        windows = WindowTables(tables)
        if tables.passes > 1:
            return self._prove_pairs(windows)
        return self._prove_single(windows)

    def _below(self) -> float:
        """What a split must be within to count as better, far above rounding."""
        return self.limit * (1 - LONG_ROUNDING)

    def _take(self, split: Split) -> None:
        if self.best is None or split.value < self.best.value:
            self.best = split
        self.limit = min(self.limit, split.value)

    def _prove_single(self, windows: WindowTables) -> float:
        tables = windows.tables
        ideals = self._ideals(windows, [self._below()])
        if ideals is None:
            return 0.0
        question = Question(least_load(tables) * (1 - LONG_ROUNDING))
        while question.lower < self._below() and self.budget.left > 0:
            self.on_progress("ideals", question.lower / self.limit)
            if question.close(self._below()) and not tables.approximate:
                self._take_least(windows, ideals, question.lower)
                return self._below()
            asked = question.next(self._below())
            if asked is None:
                break
            answer, split = self._decide(windows, ideals, [asked])
            if split is not None:
                self._take(split)
            question.answered(asked, answer)
        return question.lower

    def _take_least(self, windows: WindowTables, ideals: Ideals, lower: float) -> None:
        """Take the best split of all; `lower` is a limit close below that none can keep."""
        tables, top = windows.tables, self._below()
        alive, least, most = survivors(ideals, windows.within([top]))
        value, reached, kinds = least_chain(
            ideals, alive, least, most, tables.nets, tables.costs, tables.limits([top]), lower, top
        )
        if value < np.inf:
            stages = _stages(ideals, reached, tables.graph.node_count)
            self._take(evaluated(tables, stages, kinds))

    def _prove_pairs(self, windows: WindowTables) -> float:
        """Rectangles (largest forward load < high, sum below the best) until none is open."""
        open_rectangles = [(0.0, self.limit)]
        while open_rectangles:
            if self.budget.left <= 0:
                return 0.0
            low, high = open_rectangles.pop()
            high = min(high, self.limit)
            # The first has only to shut a split out that is known.
            limits = [high * (1 - ROUNDING), self._below() - low]
            if limits[1] < 0 or high <= low or not self._possible(windows, limits):
                continue
            if high - low > NARROW * self.limit:
                open_rectangles += [((low + high) / 2, high), (low, (low + high) / 2)]
                continue
            ideals = self._ideals(windows, limits)
            if ideals is None:
                return 0.0
            answer, split = self._decide(windows, ideals, limits)
            if answer == NONE:
                continue
            if split is None:
                return 0.0
            forward = split.thresholds[0]
            self._take(split)
            open_rectangles += [(forward, high), (low, forward)]
        return self._below()

    # -- questions -----------------------------------------------------------------------------

    def _possible(self, windows: WindowTables, limits: Sequence[float]) -> bool:
        conditions = windows.within(limits)
        whole = conditions.price.sum(axis=0)
        return bool(passable(conditions, np.zeros_like(whole), whole))

    def _ideals(self, windows: WindowTables, limits: Sequence[float]) -> Ideals | None:
        """Ideals that a split within the limits may pass through; None if they are too many."""
        tables, graph = windows.tables, windows.tables.graph
        words = (graph.node_count + 63) // 64
        columns = tables.costs.added.reshape(graph.node_count, -1)
        row_bytes = 8 * (words + columns.shape[1] + 16)
        visited, kept, ideals = surviving_ideals(
            graph.followers,
            np.bincount(graph.edge_target, minlength=graph.node_count),
            tables.nets,
            np.ascontiguousarray(columns),
            windows.within(limits),
            self._within_time(self.most_ideals, IDEALS_PER_SECOND),
            min(MOST_KEPT, MOST_KEPT_BYTES // row_bytes),
        )
        return None if visited < 0 or kept < 0 else ideals

    def _within_time(self, most: int, per_second: float) -> int:
        """As much of `most` as the time left allows."""
        return int(min(most, max(self.budget.left, MOMENT) * per_second))

    def _decide(
        self, windows: WindowTables, ideals: Ideals, thresholds: Sequence[float]
    ) -> tuple[int, Split | None]:
        """Whether a split keeps all stages within the thresholds, and one that does."""
        tables = windows.tables
        limits = tables.limits(thresholds)
        alive, least, most = survivors(ideals, windows.within(thresholds))
        shared = (tables.nets, tables.costs)
        work = self._within_time(MOST_WORK, PAIRS_PER_SECOND)
        finished, need = fewest(ideals, alive, least, most, *shared, limits, work)
        if not finished:
            return -1, None
        answer, reached, kinds = find_chain(
            ideals,
            alive,
            need,
            most,
            *shared,
            tables.chain,
            limits,
            tables.approximate,
            MOST_CHAINS,
        )
        if answer != FOUND:
            return int(answer), None
        return FOUND, evaluated(tables, _stages(ideals, reached, tables.graph.node_count), kinds)


def _stages(ideals: Ideals, reached: Wide, count: int) -> Wide:
    """`[node]` the first of the rising ideals that holds it."""
    words = np.ascontiguousarray(ideals.bits[reached]).view(np.uint8)
    inside = np.unpackbits(words, axis=1, bitorder="little")[:, :count]
    return np.asarray(inside.argmax(axis=0), dtype=np.int64)
