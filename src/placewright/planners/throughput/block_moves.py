"""`block-moves`: annealing of a pipeline by moves of single nodes and of blocks, for any size.

Starts from the budget's start, or from the cuts of `row-cuts`. Where stages must be contiguous the
devices keep their row, and what stands behind a moved node goes along with it.

Takes what `annealing` (see `multilevel`) does not: contiguous splits, and graphs of any size. Where
both can, after as many moves, it is 2 % better on GPT-2 by heads on eight A100, and 0.3 to 12 %
worse on published graphs over six devices, so `auto` asks both.
"""

from __future__ import annotations

import contextlib
import math
from functools import cached_property
from typing import ClassVar

import numpy as np

from placewright.budget import Budget, Progress, no_progress
from placewright.graph import Ints, Wide
from placewright.kernels.throughput.annealing import anneal
from placewright.kernels.throughput.loads import Loads, refill
from placewright.planners.base import Proposal, whole_number
from placewright.planners.throughput.board import boards
from placewright.planners.throughput.lines import Cuts, improved_row, line_through
from placewright.planners.throughput.reporting import PipelineReporter, start_units
from placewright.planners.throughput.row_cuts import best_cuts
from placewright.problem import Problem

CUT_SHARE, CUT_SECONDS, ORDERS, ROWS = 0.3, 20.0, 6, 40  # of the time, for cuts to start from
ROW_SHARE = 0.3  # of the time or the steps, to change the row
TRY_STEPS = 5_000  # that a changed row counts for
DEFAULT_STEPS = 3_000_000  # without a limit
SWEEP_STEPS, SWEEP_SHARE = 1_000_000, 0.5  # of one cooling, or of the time that is left
SHORTEST_SWEEP = 2.0  # seconds
STEPS_BETWEEN_LOOKS = 20_000  # at the clock
HOTTEST = (1e-4, 3e-4, 3e-5)  # temperatures of the sweeps at first, as shares of the best value
COLDEST = 1e-6
SQUARINGS = (4, 5, 6)


class BlockMoves:
    """Annealing in sweeps, each from the best plan so far; between them the row is changed.

    Contiguous splits and others; no replicas. Options: `steps`, moves tried in all (without it and
    without a time limit, `DEFAULT_STEPS`).
    """

    name: ClassVar[str] = "block-moves"
    objective: ClassVar[str] = "throughput"

    def __init__(self, steps: str | int | None = None) -> None:
        self.steps = None if steps is None else whole_number(self.name, "steps", steps)

    def supports(self, problem: Problem) -> str | None:
        return None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        unlimited = self.steps is None and not math.isfinite(budget.seconds)
        most = DEFAULT_STEPS if unlimited else self.steps or math.inf
        start = _start(problem, budget, seed)
        reporter = PipelineReporter(problem, budget)
        search = _Search(start, seed, most)
        with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
            while search.can_go_on and budget.left > 0:
                share = (search.steps / most, 1 - budget.left / budget.seconds)
                on_progress("moving blocks", max(x for x in share if not math.isnan(x)))
                search.turn_rows(budget, reporter)
                search.sweep(budget, reporter)
        return Proposal(reporter.answer(search.board.units_of(search.best), search.value))


def _start(problem: Problem, budget: Budget, seed: int) -> Cuts:
    """The budget's start, or cuts."""
    units = start_units(problem, budget)
    if units is not None:
        for board in boards(problem):
            on_nodes = board.nodes_on(units)
            if on_nodes is not None and board.row_rank(on_nodes) is not None:
                return Cuts(board, on_nodes, board.value(on_nodes))
    seconds = min(CUT_SECONDS, CUT_SHARE * budget.left)
    return best_cuts(problem, ORDERS, ROWS, Budget(seconds), seed, no_progress)


class _Search:
    """The best split so far; one sweep after another."""

    def __init__(self, start: Cuts, seed: int, most_steps: float) -> None:
        self.board, self.best, self.value = start.board, start.node_device, start.value
        self.rng = np.random.default_rng(seed)
        self.steps, self.most_steps = 0, most_steps
        self.sweeps = 0
        graph = self.board.graph
        many = np.bincount(graph.device_class, minlength=graph.class_count)
        self.movable = np.flatnonzero(self.board.fits() @ many > 1).astype(np.int32)

    @property
    def can_go_on(self) -> bool:
        return len(self.movable) > 0 and self.value > 0.0 and self.steps < self.most_steps

    def turn_rows(self, budget: Budget, reporter: PipelineReporter) -> None:
        """Cut anew, devices put elsewhere in the row that the best split stands in."""
        best = Cuts(self.board, self.best, self.value)
        line = line_through(best, self._orders[self.sweeps % ORDERS])
        if line is None:
            return

        def adopt(cuts: Cuts) -> None:
            self._adopt(cuts.node_device, reporter)

        most = min(SWEEP_STEPS, self.most_steps - self.steps)
        tries: float = math.ceil(ROW_SHARE * most / TRY_STEPS)
        if math.isfinite(budget.left) and not math.isfinite(self.most_steps):
            tries, budget = math.inf, budget.part(ROW_SHARE * _sweep_seconds(budget.left))
        _, _, tried = improved_row(line, best, tries, budget, self.rng, adopt)
        self.steps += tried * TRY_STEPS

    def sweep(self, budget: Budget, reporter: PipelineReporter) -> None:
        """Anneal from the best split; how long, the first chunk of moves tells."""
        arrays = self.board.arrays
        rank = self._rank()
        state = self.board.loads(self.best)
        hottest = HOTTEST[self.sweeps % len(HOTTEST)]
        squarings = int(self.rng.choice(SQUARINGS))
        first, last = hottest * self.value, COLDEST * self.value
        before, begun = self.steps, budget.left
        done = 0.0
        while done < 1.0 and self.steps < self.most_steps and budget.left > 0:
            count = int(min(STEPS_BETWEEN_LOOKS, self.most_steps - self.steps))
            share = min(self._share(count, self.steps - before, begun, budget), 1.0 - done)
            start, end = (first * (last / first) ** at for at in (done, done + share))
            anneal(
                arrays, state, self.movable, rank, self.rng, count, self.value, start, end,
                squarings,
            )  # fmt: skip
            refill(arrays, state)
            self.steps += count
            done += share
            self._keep(state, reporter)
        self.sweeps += 1

    def _share(self, count: int, done: int, begun: float, budget: Budget) -> float:
        """How much of the sweep the next `count` steps are, after `done` of them.

        By steps, or where time is the limit by the time that they are likely to take.
        """
        if math.isfinite(self.most_steps) or not math.isfinite(begun):
            return count / min(SWEEP_STEPS, self.most_steps)
        spent = begun - budget.left
        seconds = count * spent / done if done else 0.01 * begun
        return min(seconds / _sweep_seconds(begun), 1.0)

    def _keep(self, state: Loads, reporter: PipelineReporter) -> None:
        if state.best_value[0] < self.value:
            self._adopt(state.best, reporter)

    def _adopt(self, node_device: Ints, reporter: PipelineReporter) -> None:
        """Take a split that is better, if it fits when its sums are taken afresh."""
        settled = self.board.loads(node_device)
        if settled.best_value[0] < self.value:
            self.best, self.value = settled.best.copy(), float(settled.best_value[0])
            reporter.found(self.board.units_of(self.best), self.value)

    @cached_property
    def _orders(self) -> list[Wide]:
        return self.board.orders(ORDERS, 0)

    def _rank(self) -> Ints:
        """`[device]` its place in the row, nothing where stages need not be contiguous."""
        if not self.board.problem.options.contiguous:
            return np.zeros(0, dtype=np.int32)
        rank = self.board.row_rank(self.best)
        assert rank is not None
        return rank


def _sweep_seconds(left: float) -> float:
    """Of the time that is left, for one sweep."""
    return max(SWEEP_SHARE * left, min(SHORTEST_SWEEP, left), 1e-6)
