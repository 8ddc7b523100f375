"""Rows of stages of which a CPU keeps one, for a GPU that fetches its weights and computes it.

The GPU is the first of those that are used, by their numbers, so each is looked at with those
before it left out. It keeps room for what waits: how much is tried for each amount that a stage of
the CPU can need, as long as a stage of that size could be in a row better than the best known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from placewright.analysis.offloading import fetching
from placewright.errors import ProvedInfeasibleError
from placewright.exporters.devices import NOBODY, numbered_gpus
from placewright.exporters.pieces import Phase, Pieces
from placewright.exporters.row_costs import RowCosts, chains_of, row_costs
from placewright.exporters.rows import Row, Waiting, best_row
from placewright.exporters.sharing import NO_RETURN
from placewright.graph import Floats, Ints
from placewright.problem import Problem


@dataclass(frozen=True, eq=False)
class Found:
    """A row, and the pieces and costs that it is of; `helper` computes what is on the CPU."""

    pieces: Pieces
    costs: RowCosts
    row: Row
    helper: int = NOBODY


def best_offloaded(pieces: Pieces, known: Found | None) -> Found | None:
    """The best row with a stage that waits, if it is better than the one `known`."""
    if pieces.cpu == NOBODY:
        return known
    best, chains = known, chains_of(pieces)
    for helper, lower in _helpers(pieces.problem):
        variant = pieces.changed(partial(_with_helper, pieces.cpu, helper, lower))
        search = _Levels(variant, row_costs(variant, chains), helper)
        best = search.best(best)
    return best


def _with_helper(cpu: int, helper: int, lower: Ints, phase: Phase) -> Problem:
    """A phase whose ops on the CPU are computed by a GPU, those of `lower` numbers left out."""
    problem = fetching(phase.problem, cpu, helper, phase.fetched)
    time = problem.op_time.copy()
    time[:, lower] = np.inf
    return replace(problem, op_time=time)


def any_helper(problem: Problem, cpu: int) -> Problem:
    """A problem that bounds all rows, whichever GPU computes what the CPU keeps.

    The CPU is as quick as the quickest GPU for each op and reached in no time, and there is no end
    of memory: no row takes less in the problem of any helper.
    """
    time, latency = problem.op_time.copy(), problem.link_latency.copy()
    rate = problem.link_seconds_per_byte.copy()
    time[:, cpu] = time[:, ~problem.is_cpu].min(axis=1)
    for table in (latency, rate):
        table[cpu] = table[:, cpu] = 0.0
    memory = np.full(problem.device_count, np.inf)
    return replace(
        problem, op_time=time, link_latency=latency, link_seconds_per_byte=rate,
        device_memory=memory,
    )  # fmt: skip


def _helpers(problem: Problem) -> Iterator[tuple[int, Ints]]:
    """A GPU that may be used, and the GPUs of lower numbers."""
    time = problem.op_time
    gpus = [gpu for gpu in numbered_gpus(problem) if np.isfinite(time[:, gpu]).any()]
    for number, helper in enumerate(gpus):
        yield helper, np.array(gpus[:number], dtype=np.int32)


class _Levels:
    """Rows with one helper, by how much it keeps free."""

    def __init__(self, pieces: Pieces, costs: RowCosts, helper: int) -> None:
        self.pieces, self.costs, self.helper = pieces, costs, helper
        of = costs.classes[0]
        self.cpu_class, self.helper_class = int(of[pieces.cpu]), int(of[helper])
        self.largest = _largest(pieces)
        self.kept, cache, largest = costs.memory.copy(), costs.cache.copy(), self.largest.copy()
        if (tail := pieces.returns) != NO_RETURN:  # what the first stage has besides
            self.kept[0, :tail] += costs.memory[tail, -1]
            cache[0, :tail] += costs.cache[tail, -1]
            largest[0, :tail] = np.maximum(largest[0, :tail], largest[tail, -1])
        self.needed = cache + largest
        stage = costs.seconds[self.cpu_class]
        usable = np.isfinite(pieces.problem.op_time).any(axis=0) & ~pieces.problem.is_cpu
        self.room = float(pieces.problem.device_memory[usable].sum())
        self.may = np.isfinite(stage) & np.triu(np.ones_like(stage, dtype=np.bool_))
        self.bounds = self._bounds()

    def best(self, known: Found | None) -> Found | None:
        best = known
        for reserve in np.unique(self.needed[self.may]).tolist():
            bound = self._least(reserve)
            if np.isfinite(bound) and (best is None or bound < best.row.value):
                row = self._row(reserve)
                if row is not None and (best is None or row.value < best.row.value):
                    best = Found(self.pieces, self.costs, row, self.helper)
        return best

    def _least(self, reserve: float) -> float:
        """What any row takes at least whose CPU needs so much of the helper."""
        elsewhere = self.costs.memory[0, -1] - self.kept
        may = self.may & (self.needed == reserve) & (elsewhere <= self.room - reserve)
        if not may.any():
            return float("inf")
        return max(float(table[may].min()) + price * reserve for table, price in self.bounds)

    def _row(self, reserve: float) -> Row | None:
        waiting = Waiting(self.cpu_class, self.helper_class, reserve, self.largest)
        try:
            return best_row(self.pieces, self.costs, waiting)
        except ProvedInfeasibleError:
            return None

    def _bounds(self) -> list[tuple[Floats, float]]:
        """`[i, j]` seconds at least of rows whose CPU keeps pieces i … j, and more per byte free.

        By prices of memory (a Lagrangian relaxation): each other piece is where its seconds and the
        price of its memory are least, and the price of all memory there is comes off. One set of
        prices per class: by how much its seconds per byte are above those of other classes.
        """
        costs, memory = self.costs, self.costs.memory.diagonal()
        each = costs.seconds.diagonal(axis1=1, axis2=2)
        gpus = [one for one in range(len(each)) if np.isfinite(each[one]).any()]
        gpus.remove(self.cpu_class)
        room = np.array([self._room(one) for one in range(len(each))])
        rate = np.where(np.isfinite(each), each, 0.0).sum(axis=1) / max(memory.sum(), 1.0)
        found = []
        for slowest in gpus:
            price = np.zeros(len(each))
            price[gpus] = np.maximum(rate[slowest] - rate[gpus], 0.0)
            least = np.min(each + price[:, None] * memory, axis=0)
            total = np.concatenate([[0.0], np.cumsum(least)])
            outside = total[-1] - np.subtract.outer(-total[:-1], -total[1:])
            table = costs.seconds[self.cpu_class] + outside - float(price @ room)
            found.append((table, float(price[self.helper_class])))
        return found

    def _room(self, one: int) -> float:
        """Bytes of all devices of a class."""
        memory = self.pieces.problem.device_memory
        return float(memory[list(self.costs.classes[1][one])].sum())


def _largest(pieces: Pieces) -> Floats:
    """`[i, j]` the largest weights of an op of pieces i … j."""
    each = np.zeros(pieces.count)
    np.maximum.at(each, pieces.op_piece, pieces.fetched)
    found = np.tile(each, (pieces.count, 1))
    return np.maximum.accumulate(np.triu(found), axis=1)
