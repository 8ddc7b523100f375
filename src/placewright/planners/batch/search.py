"""Search on strings of devices, one per unit and chunk of inputs: DiviML's SA and (1+1) EA.

The encoding of §V-A, batched: a string's value is the time to finish all inputs with the ops in
breadth-first topological order, and every tensor sent right after it is made. Strings with
batch sizes that are not allowed do not arise, and one whose memory overflows is never accepted.
Iterations, time limit, Ctrl-C and seeds are as in `planners.latency.search.strings`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import ClassVar

from placewright.analysis.orders import m_topo
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Ints
from placewright.kernels.batch import search as kernel
from placewright.kernels.latency.search import COLDEST
from placewright.planners.base import Proposal, one_of
from placewright.planners.batch.data_parallel import even_rows
from placewright.planners.batch.lists import heft_order, list_in_order, place_quickest
from placewright.planners.batch.rows import fill, order_of, rows_of
from placewright.planners.batch.starts import of_least_load
from placewright.planners.batch.walk import Walk
from placewright.planners.latency.search import strings as search
from placewright.problem import Problem

SHARE_OF_ORDER_MOVES = 0.4
CRITICAL_SHARE = 0.5  # of the changes look for an op on a critical path
# With a free order: the first temperature in mean worsenings, and by how much colder it may be from
# a given start, drawn on a log scale.
FREE_SHARE, AGAIN_RANGE = 0.1, 20.0


class OnePlusOneEA(search.OnePlusOneEA):
    """Biased (1+1) evolutionary algorithm (DiviML §V-A; Droste et al. 2002).

    Starts from the rows of `lists.MinimumExecutionTime`, the bias, or from the budget's start. A
    child differs in each chunk of each unit with probability 1 / their number and replaces its
    parent unless it is worse.

    Option `iterations`: evaluations.
    """

    objective: ClassVar[str] = "batch-throughput"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        walk = _walk(problem, budget, seed, self.iterations, self.name)
        if walk.choices and problem.device_count > 1:
            with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
                for count in walk.chunks("(1+1) EA", on_progress):
                    walk.run(kernel.evolve, count)
                    walk.tell()
        return walk.answer()


class Annealing(search.Annealing):
    """Simulated annealing (Kirkpatrick et al. 1983, as a baseline in DiviML §V-A).

    Starts from the best of several strings: the budget's start, those of the other planners, and
    the best split that all units can have alike. A mutation moves a chunk of one unit, or of a run
    or path of units, to a device, swaps two chunks or, in a run of units, two devices, or splits
    units another way or like a neighbour.

    Options as for objective ``latency``: `iterations`, `temperature`, `cooling`, `order`; and
    `start`: ``simple``, those strings, or ``least-load``, each unit on one device such that the
    busiest is as little so as `annealing` for throughput finds in a moment.
    """

    objective: ClassVar[str] = "batch-throughput"

    def __init__(
        self,
        iterations: str | int | None = None,
        temperature: str | float | None = None,
        cooling: str | float | None = None,
        order: str = "breadth-first",
        start: str = "simple",
    ) -> None:
        super().__init__(iterations, temperature, cooling, order)
        self.by_load = one_of(self.name, "start", start, ("simple", "least-load")) == "least-load"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        walk = _walk(problem, budget, seed, self.iterations, self.name)  # if Ctrl-C comes at once
        with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
            if self.by_load and budget.start is None:
                rows = of_least_load(problem, self.name, seed, budget)
                walk = Walk(problem, budget, seed, walk.limit, rows)
            else:
                take_the_best_start(walk, budget, self.name)
            if walk.choices:
                self._anneal(walk, on_progress)
        return walk.answer()

    def _anneal(self, walk: Walk, on_progress: Progress) -> None:
        temperature = hot = self.temperature or self._warmest(walk)
        order_share = SHARE_OF_ORDER_MOVES if self.is_free else 0.0
        for count in walk.chunks("annealing", on_progress):
            cooling = walk.cooling(temperature, hot, hot * search.COLDEST_SHARE)
            if self.cooling is not None:
                cooling = self.cooling ** (1.0 / walk.choices)
            temperature = walk.run(
                kernel.anneal, count, temperature, cooling, order_share, CRITICAL_SHARE
            )
            walk.tell()

    def _warmest(self, walk: Walk) -> float:
        """Seconds; from a given start often colder, to go near and far by turns."""
        worsening = float(walk.run(kernel.mean_worsening, search.TEMPERATURE_SAMPLES))
        share = FREE_SHARE if self.is_free else search.FIRST_SHARE
        if self.is_free and walk.budget.start is not None:
            share *= AGAIN_RANGE ** -float(walk.rng.random())
        return max(share * worsening, COLDEST)


def _walk(
    problem: Problem, budget: Budget, seed: int, iterations: int | None, planner: str
) -> Walk:
    """A walk from `first_rows`."""
    rows, order = first_rows(problem, budget, planner)
    return Walk(problem, budget, seed, _limit(iterations, problem, budget), rows, order)


def first_rows(problem: Problem, budget: Budget, planner: str) -> tuple[Ints, Ints]:
    """``rows[unit, chunk]`` of the budget's start, or of `lists.MinimumExecutionTime`; an order."""
    rows = rows_of(problem, budget.start) if budget.start is not None else None
    if budget.start is None or rows is None:
        return fill(problem, planner, place_quickest).rows, m_topo(problem)
    return rows, order_of(problem, budget.start)


def take_the_best_start(walk: Walk, budget: Budget, planner: str) -> None:
    """Go on from the best of several rows worth starting from, as many as there is time for."""
    for rows in _starts(walk.problem, walk, planner):
        walk.consider(rows)
        if budget.left <= 0:
            break


def _starts(problem: Problem, walk: Walk, planner: str) -> Iterator[Ints]:
    """Rows worth starting from; some may not fit."""
    for order, insertion in ((walk.order, False), (heft_order(problem), True)):
        with contextlib.suppress(InfeasibleError):
            yield list_in_order(problem, order, planner, insertion=insertion)[0]
    even = even_rows(problem)
    if even is not None:
        yield even


def _limit(iterations: int | None, problem: Problem, budget: Budget) -> float:
    """Evaluations: those given, else without a time limit as many as take seconds."""
    if iterations is not None:
        return iterations
    if budget.seconds < math.inf:
        return math.inf
    work = (problem.op_count + problem.edge_count) * (1 + problem.options.batch // 8)
    return min(search.default_iterations(problem), search.MOST_WORK // work + 1)
