"""Rows of stages of which a CPU keeps one, for a GPU that fetches its weights and computes it.

The GPU is the first of those that are used, by their numbers, so each is looked at with those
before it left out. It keeps room for what waits: how much is tried for each amount that a stage of
the CPU can need, as long as a stage of that size could be in a row better than the best known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from placewright.analysis.offloading import fetching, helper_bytes, without_memory
from placewright.errors import OptionError, ProvedInfeasibleError
from placewright.exporters.devices import gpu_index
from placewright.exporters.pieces import Pieces
from placewright.exporters.row_costs import RowCosts, row_costs
from placewright.exporters.rows import Row, Waiting, best_row
from placewright.exporters.sharing import NO_RETURN
from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.problem import Problem


@dataclass(frozen=True, eq=False)
class Found:
    """A row, and the pieces and costs that it is of; `helper` computes what is on `cpu`, or -1."""

    pieces: Pieces
    costs: RowCosts
    row: Row
    cpu: int = -1
    helper: int = -1

    def problem_of(self, placement: Placement) -> Problem:
        """The problem with the memory that what waits takes of the helper."""
        problem = self.pieces.problem
        if self.helper < 0:
            return problem
        waits = placement.device == self.cpu
        taken = helper_bytes(problem, self.pieces.fetched, waits)
        return without_memory(problem, self.helper, taken)


def may_offload(pieces: Pieces) -> bool:
    """Whether the engine can leave weights with a CPU, and the cluster has one beside others."""
    is_cpu = pieces.problem.is_cpu
    return bool(pieces.fetched.size and is_cpu.any() and not is_cpu.all())


def best_offloaded(pieces: Pieces, known: Found | None) -> Found | None:
    """The best row with a stage that waits, if it is better than the one `known`."""
    best = known
    for cpu, helper, lower in _helpers(pieces.problem) if may_offload(pieces) else ():
        problem = fetching(pieces.problem, cpu, helper, pieces.fetched)
        time = problem.op_time.copy()
        time[:, lower] = np.inf
        variant = replace(pieces, problem=replace(problem, op_time=time))
        search = _Levels(variant, row_costs(variant), cpu, helper)
        best = search.best(best)
    return best


def _helpers(problem: Problem) -> Iterator[tuple[int, int, Ints]]:
    """A CPU, a GPU, and the GPUs of lower numbers."""
    gpus = np.flatnonzero(~problem.is_cpu).tolist()
    with suppress(OptionError):  # where some say no number: their order in the cluster
        gpus.sort(key=lambda device: gpu_index(problem, device))
    for cpu in np.flatnonzero(problem.is_cpu).tolist()[:1]:  # engines know one
        for number, helper in enumerate(gpus):
            yield cpu, helper, np.array(gpus[:number], dtype=np.int32)


class _Levels:
    """Rows with one helper, by how much it keeps free."""

    def __init__(self, pieces: Pieces, costs: RowCosts, cpu: int, helper: int) -> None:
        self.pieces, self.costs, self.cpu, self.helper = pieces, costs, cpu, helper
        of = costs.classes[0]
        self.cpu_class, self.helper_class = int(of[cpu]), int(of[helper])
        self.largest = _largest(pieces)
        self.kept, cache, largest = costs.memory.copy(), costs.cache.copy(), self.largest.copy()
        if (tail := pieces.returns) != NO_RETURN:  # what the first stage has besides
            self.kept[0, :tail] += costs.memory[tail, -1]
            cache[0, :tail] += costs.cache[tail, -1]
            largest[0, :tail] = np.maximum(largest[0, :tail], largest[tail, -1])
        self.needed = cache + largest
        self.least = self._least()
        usable = np.isfinite(pieces.problem.op_time).any(axis=0) & ~pieces.problem.is_cpu
        self.room = float(pieces.problem.device_memory[usable].sum())

    def best(self, known: Found | None) -> Found | None:
        best = known
        finite = np.isfinite(self.least)
        for reserve in np.unique(self.needed[finite]).tolist():
            elsewhere = self.costs.memory[0, -1] - self.kept
            may = finite & (self.needed <= reserve) & (elsewhere <= self.room - reserve)
            bound = float(self.least[may].min(initial=np.inf))
            if np.isfinite(bound) and (best is None or bound < best.row.value):
                row = self._row(reserve)
                if row is not None and (best is None or row.value < best.row.value):
                    best = Found(self.pieces, self.costs, row, self.cpu, self.helper)
        return best

    def _row(self, reserve: float) -> Row | None:
        waiting = Waiting(self.cpu_class, self.helper_class, reserve, self.largest)
        try:
            return best_row(self.pieces, self.costs, waiting)
        except ProvedInfeasibleError:
            return None

    def _least(self) -> Floats:
        """`[i, j]` what a row takes at least whose CPU keeps pieces i … j."""
        each = np.min(self.costs.seconds.diagonal(axis1=1, axis2=2), axis=0)
        total = np.concatenate([[0.0], np.cumsum(each)])
        stage = self.costs.seconds[self.cpu_class]
        outside = total[-1] - np.subtract.outer(-total[:-1], -total[1:])
        upper = np.triu(np.ones_like(stage, dtype=np.bool_))
        return np.where(upper, stage + outside, np.inf)


def _largest(pieces: Pieces) -> Floats:
    """`[i, j]` the largest weights of an op of pieces i … j."""
    each = np.zeros(pieces.count)
    np.maximum.at(each, pieces.op_piece, pieces.fetched)
    found = np.tile(each, (pieces.count, 1))
    return np.maximum.accumulate(np.triu(found), axis=1)
