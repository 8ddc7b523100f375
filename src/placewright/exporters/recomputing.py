"""Which layers run again in the backward pass: of each stage as few as must for it to fit.

The first layers of a stage, by which the tables of stages are made (`step_costs.Again`). So cuts,
devices and what is recomputed are found together, and bounded. Some engines recompute as many
layers in each stage: for these ranges of numbers are bounded, the least bound first, with the time
of the lower number and the memory of the higher, and halved until one number is left.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np

from placewright.coarsen.recompute import NONE, Recomputable, bytes_made_again
from placewright.errors import InfeasibleError, OptionError
from placewright.exporters.engines import Engine, limits_of
from placewright.exporters.pieces import Pieces
from placewright.exporters.step_costs import Again, StepCosts, step_costs
from placewright.exporters.step_rows import best_rows
from placewright.exporters.steps import Stages, best_of, check_step, no_room, timed_row
from placewright.exporters.timing import Timed
from placewright.graph import Floats
from placewright.plan import OPTIMAL_GAP, gap_of
from placewright.stash import recomputed_ops

Version = Callable[[Collection[str] | None], Pieces]
"""The pieces of a model of which the blocks of these names run again, or all that can."""


def best_recomputed(version: Version, able: Recomputable, engine: Engine) -> tuple[Timed, float]:
    """The row of the shortest step that was found, and seconds per micro-batch of any at least.

    `able` is of the model, with the same ops as ``version([])``. InfeasibleError where no row fits.
    """
    search = _Search(version, able, engine)
    search.without()
    search.with_some()
    if search.best is None:
        raise search.failure()
    return search.best, min(search.bound, search.best.value)


@dataclass(frozen=True, eq=False)
class _Tables:
    """What pieces take and keep: as little as can be (for bounds), or as much (for plans)."""

    pieces: Pieces
    again: Again


class _Search:
    """The `best` plan so far, and the least that any row takes by what was looked at."""

    def __init__(self, version: Version, able: Recomputable, engine: Engine) -> None:
        self.version, self.engine, self.limits = version, engine, limits_of(engine)
        self.plain, every = version([]), version(None)
        check_step(self.plain.problem)
        _check_same(self.plain, every)
        piece = self.plain.op_piece
        of_piece = {int(piece[op]): able.names[able.block[op]] for op in _inside(able)}
        self.names = {number: of_piece[number] for number in sorted(of_piece)}
        self.low, self.high = _tables(self.plain, every, able)
        self.best: Timed | None = None
        self.bound = math.inf

    @property
    def limit(self) -> float:
        return math.inf if self.best is None else self.best.value

    def without(self) -> None:
        """Rows of which nothing runs again."""
        costs = step_costs(self.plain, self.limits)
        self._take(*best_of(self.plain, costs, lambda stages: _timed(self.plain, costs, stages)))

    def with_some(self) -> None:
        """Rows of which something does."""
        if not self.limits.recomputes_evenly:
            self._search(self.low.again)
            return
        queue: list[tuple[float, int, int]] = []
        self._push(queue, 1, len(self.names))
        while queue:
            bound, least, most = heapq.heappop(queue)
            if gap_of(self.limit, bound) <= OPTIMAL_GAP:
                self.bound = min(self.bound, bound)
                return
            if least == most:
                self._search(replace(self.low.again, least=least, most=most))
            else:
                self._push(queue, least, (least + most) // 2)
                self._push(queue, (least + most) // 2 + 1, most)

    def _push(self, queue: list[tuple[float, int, int]], least: int, most: int) -> None:
        again = replace(self.low.again, least=least, most=most)
        costs = step_costs(self.low.pieces, self.limits, again)
        bound = best_rows(costs)[0] / costs.step_micro_batches
        if bound < self.limit:
            heapq.heappush(queue, (bound, least, most))
        else:
            self.bound = min(self.bound, bound)

    def _search(self, again: Again) -> None:
        """The best row below the limit, by what is kept at least; else by what is kept at most."""
        low = step_costs(self.low.pieces, self.limits, again)
        found, bound = best_of(
            self.low.pieces, low, lambda stages: self._made(low, stages), self.limit
        )
        if found is None and bound < self.limit:
            again = replace(self.high.again, least=again.least, most=again.most)
            high = step_costs(self.high.pieces, self.limits, again)
            found, _ = best_of(
                self.high.pieces, high, lambda stages: self._made(high, stages), self.limit
            )
        self._take(found, bound)

    def _take(self, found: Timed | None, bound: float) -> None:
        self.bound = min(self.bound, bound)
        if found is not None and found.value < self.limit:
            self.best = found

    def _made(self, costs: StepCosts, stages: Stages) -> Timed | None:
        """The row with its pieces recomputed; None where that does not fit."""
        again = [self.names[piece] for piece in costs.runs_again(stages) if piece in self.names]
        return _timed(self.version(again), costs, stages)

    def failure(self) -> InfeasibleError:
        if not math.isfinite(self.bound):
            costs = step_costs(self.low.pieces, self.limits, self.low.again)
            return no_room(self.low.pieces, costs)
        return InfeasibleError(
            f"no row of stages was found that fits with layers recomputed; plan for "
            f"{self.engine.name} with --recompute block, or give a smaller batch"
        )


def _timed(pieces: Pieces, costs: StepCosts, stages: Stages) -> Timed | None:
    try:
        return timed_row(pieces, costs, stages)
    except InfeasibleError:
        return None


def _inside(able: Recomputable) -> list[int]:
    """Ops of blocks that can run again."""
    found: list[int] = np.flatnonzero(able.block != NONE).tolist()
    return found


def _tables(plain: Pieces, every: Pieces, able: Recomputable) -> tuple[_Tables, _Tables]:
    """What pieces keep at least and at most, whichever others run again.

    A tensor that a piece makes may be kept only because another runs again that reads it; and what
    the largest block makes again has room on each device, where one of the smallest may be all.
    """
    piece, problem = plain.op_piece, plain.problem
    time = np.where(np.isfinite(able.op_time), able.op_time, 0.0)
    seconds = np.array([np.bincount(piece, each, plain.count) for each in time.T])
    saved = np.bincount(piece, able.saved, plain.count).astype(np.float64)
    largest = problem.device_memory - every.problem.device_memory
    made = _made_again(every)
    smallest = largest * float(made.min() / made.max()) if made.any() else largest
    low = Again(seconds, saved, problem.device_memory - smallest)
    high = replace(low, room=every.problem.device_memory)
    more = replace(
        problem,
        op_memory=problem.op_memory + able.needed,
        op_stash=problem.op_stash + able.needed,
    )
    return _Tables(plain, low), _Tables(replace(plain, problem=more), high)


def _made_again(every: Pieces) -> Floats:
    """Bytes of what is made again in each block that runs again."""
    again = np.unique(every.blocks.op_block[recomputed_ops(every.problem)])
    return bytes_made_again(every.problem, every.blocks.op_block)[again]


def _check_same(plain: Pieces, every: Pieces) -> None:
    """OptionError where the model has other blocks once they run again."""
    if plain.blocks.names != every.blocks.names or plain.count != every.count:
        raise OptionError(
            f"{plain.problem.name}: the model is cut into other blocks once they are recomputed; "
            "plan with --recompute block"
        )
