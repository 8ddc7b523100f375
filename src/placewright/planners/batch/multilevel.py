"""Multilevel annealing for a batch of inputs: the planner `multilevel`.

Annealing unit by unit sticks where a good plan sends whole parts of the network elsewhere, for each
part alone costs transfers at both of its ends. A round therefore joins units that exchange much,
anneals what is left as if each group were one unit, and refines it level by level down to single
units. Groups are colocated ops of the same problem, so every level is timed exactly.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from placewright.analysis.orders import mean_edge_time
from placewright.budget import Budget, Pace, Progress, Reporter
from placewright.errors import InfeasibleError
from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.batch import search as kernel
from placewright.kernels.batch.arrays import batches_of
from placewright.kernels.latency.search import BEST
from placewright.plan import Placement
from placewright.planners.base import Proposal, whole_number
from placewright.planners.batch.lists import place_quickest
from placewright.planners.batch.rows import fill, never_worse, placement_of
from placewright.planners.batch.search import CRITICAL_SHARE, first_rows, take_the_best_start
from placewright.planners.batch.walk import Walk
from placewright.planners.joining import Forest, in_random_order, levels
from placewright.problem import Problem
from placewright.simulate.batch import run_batches

DEFAULT_ROUNDS = 20
# Evaluations of a level: per unit and device, and in all. Half of the rounds are slow, at most so
# slow that they take all the time that is left: few of them find more than many.
PACES, SLOWEST, FEWEST_STEPS = (30.0, 100.0), 800.0, 3_000
SLOW_SHARE = 0.5
FIRST_GUESS = 1e-8  # seconds of an evaluation, per op or edge and chunk
STEPS_BETWEEN_LOOKS, LOOK_SECONDS = 1_000, 0.2  # at the clock
COARSEST = 6  # units at the least
SMALLER = 0.4  # units of a level as a share of those of the next finer one
MEMORY_SHARE = 0.5  # of the largest device: the most that a group may keep
FRESH_SHARE = 0.2  # of the rounds start from no plan before
ORDER_SHARE = 0.15  # of the evaluations move an op in the order
# Temperatures as shares of the best value: a fresh round's first, another's, and finer levels'.
HOT, WARM, COOL, COLD = 0.05, 0.02, 0.005, 2e-5
WARMTHS = (0.1, 0.3, 1.0)  # of a round that is not fresh, by which its first is multiplied


class Multilevel:
    """Rounds of annealing from coarse to fine, from the best plan or afresh.

    Starts from the best of what `annealing` starts from, or from the budget's start. Option
    `iterations`: evaluations in all (without it and without a time limit, `DEFAULT_ROUNDS` rounds).
    """

    name: ClassVar[str] = "multilevel"
    objective: ClassVar[str] = "batch-throughput"

    def __init__(self, iterations: str | int | None = None) -> None:
        self.iterations = (
            None if iterations is None else whole_number(self.name, "iterations", iterations)
        )

    def supports(self, problem: Problem) -> str | None:
        return None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        search = _Search(problem, budget, seed, self.iterations)
        unlimited = self.iterations is None and not math.isfinite(budget.seconds)
        rounds = DEFAULT_ROUNDS if unlimited else math.inf
        done = 0
        with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
            search.begin()
            while done < rounds and search.left > 0 and search.can_improve:
                on_progress(self.name, max(search.progress, done / rounds))
                search.round()
                done += 1
        return Proposal(never_worse(problem, budget.start, search.placement()))


class _Search(Pace):
    """The best rows so far, ``rows[op, chunk]`` with the `order` of the ops, and its rounds."""

    def __init__(self, problem: Problem, budget: Budget, seed: int, most: int | None) -> None:
        super().__init__(budget, math.inf if most is None else most)
        self.problem = problem
        self.rng = np.random.default_rng(seed)
        first, self.order = first_rows(problem, budget, Multilevel.name)
        self.whole = walk = Walk(problem, Budget(), seed, math.inf, first, self.order)
        self.rows = first[problem.op_unit]
        self.has_choices = bool(walk.choices) and problem.device_count > 1
        self.value = float(walk.state.value[BEST])
        known = run_batches(problem, budget.start).value if budget.start is not None else math.inf
        self.reporter = Reporter(budget, known)
        size = (problem.op_count + problem.edge_count) * self.rows.shape[1]
        self.seconds_per_evaluation = FIRST_GUESS * size
        self.pairs, self.weight = _pairs(problem)

    def begin(self) -> None:
        """The best of the plans to start from, where no plan is given."""
        if self.budget.start is not None:
            return
        take_the_best_start(self.whole, self.budget, Multilevel.name)
        self._keep(self.problem, self.whole)

    @property
    def left(self) -> float:
        return min(self.budget.left, self.limit - self.done)

    @property
    def can_improve(self) -> bool:
        return self.has_choices and self.value > 0.0

    def placement(self) -> Placement:
        return placement_of(self.problem, _of_units(self.problem, self.rows), self.order)

    def round(self) -> None:
        """Join, anneal, refine; what comes out is kept if it is better."""
        fresh = self.rng.random() < FRESH_SHARE
        groups = list(self._levels(None if fresh else self.rows))
        rows, order = self.rows, self.order
        hot = HOT if fresh else WARM * float(self.rng.choice(WARMTHS))
        pace = float(self.rng.choice(PACES))
        if self.rng.random() < SLOW_SHARE:
            pace = max(pace, self._slow_pace())
        for number, group in enumerate(reversed(groups)):
            if self.left <= 0:
                return
            level = replace(self.problem, colocation=group[self.problem.op_unit])
            if fresh and number == 0:
                try:
                    rows = fill(level, Multilevel.name, place_quickest).rows[level.op_unit]
                except InfeasibleError:  # the groups are too large for what memory there is
                    self.done += 1
                    return
            walk = self._walk(level, rows, order)
            hottest = hot if number == 0 else COOL
            self._anneal(level, walk, hottest, pace, len(groups) - number)
            rows, order = walk.state.best_rows[level.op_unit], walk.state.best_op_at

    def _slow_pace(self) -> float:
        left = min(self.limit - self.done, self.evaluations_left)
        finest = self.problem.unit_count * self.problem.device_count
        pace = left * (1 - SMALLER) / finest
        return min(pace, SLOWEST) if math.isfinite(pace) else 0.0

    # -- levels ----------------------------------------------------------------------------------

    def _levels(self, within: Ints | None) -> Iterator[Ints]:
        """`[unit]` group of every level, finest first; unequal rows `within` keep units apart."""
        problem, count = self.problem, self.problem.unit_count
        label = None
        if within is not None:
            own = _of_units(problem, within)
            label = np.unique(own, axis=0, return_inverse=True)[1].ravel()
        most = max(2, count // 2)
        few, many = math.log(min(COARSEST, most)), math.log(most)
        target = int(math.exp(self.rng.uniform(few, many)))
        pairs = in_random_order(self.pairs, self.weight, self.rng)
        return levels(_Units(problem, label), pairs, target, SMALLER)

    # -- one level -------------------------------------------------------------------------------

    def _walk(self, level: Problem, rows: Ints, order: Ints) -> Walk:
        seed = int(self.rng.integers(2**31 - 1))
        return Walk(level, Budget(), seed, math.inf, _of_units(level, rows), order)

    def _anneal(
        self, level: Problem, walk: Walk, hottest: float, pace: float, levels_left: int
    ) -> None:
        """So many evaluations per unit and device, or what there is for one of the levels left."""
        if not walk.choices:
            return
        wanted = max(FEWEST_STEPS, pace * walk.choices * self.problem.device_count)
        affordable = min(self.limit - self.done, self.evaluations_left) / levels_left
        steps = max(int(min(wanted, affordable)), 1)
        temperature, cold = hottest * self.value, COLD * self.value
        cooling = (cold / temperature) ** (1.0 / steps)
        done = 0
        while done < steps and self.left > 0:
            look = max(1, int(LOOK_SECONDS / self.seconds_per_evaluation))
            count = min(look, STEPS_BETWEEN_LOOKS, steps - done)
            started = time.perf_counter()
            temperature = walk.run(
                kernel.anneal, count, temperature, cooling, ORDER_SHARE, CRITICAL_SHARE
            )
            self.seconds_per_evaluation = (time.perf_counter() - started) / count
            done += count
            self.done += count
            self._keep(level, walk)

    def _keep(self, level: Problem, walk: Walk) -> None:
        value = float(walk.state.value[BEST])
        if value < self.value:
            self.value = value
            self.rows = walk.state.best_rows[level.op_unit]
            self.order = walk.state.best_op_at.copy()
            self.reporter.tell(value, self.placement)


def _of_units(problem: Problem, rows: Ints) -> Ints:
    """``rows[unit, chunk]`` of ``rows[op, chunk]``, the same for all ops of a unit."""
    found = np.empty((problem.unit_count, rows.shape[1]), dtype=np.int32)
    found[problem.op_unit] = rows
    return found


class _Units(Forest):
    """Units joined into groups that do not keep too much, where their devices take like batches."""

    def __init__(self, problem: Problem, within: Wide | None) -> None:
        super().__init__(problem.unit_count, within)
        self.memory = problem.unit_memory.tolist()
        self.allowed: list[Flags] = list(batches_of(problem).allowed)
        self.most = MEMORY_SHARE * float(problem.device_memory.max())

    def joined(self, one: int, two: int) -> bool:
        memory = self.memory[one] + self.memory[two]
        both = self.allowed[one] & self.allowed[two]
        same = any(np.array_equal(both, each) for each in (self.allowed[one], self.allowed[two]))
        if memory > self.most or not same:
            return False
        self.memory[one], self.allowed[one] = memory, both
        return True


def _pairs(problem: Problem) -> tuple[Ints, Floats]:
    """Pairs of units that exchange tensors; seconds that takes over seconds that they compute."""
    one, two = problem.op_unit[problem.edge_producer], problem.op_unit[problem.consumers]
    apart = one != two
    low, high = np.minimum(one, two)[apart], np.maximum(one, two)[apart]
    seconds = mean_edge_time(problem, problem.options.batch)[apart]
    key, place = np.unique(low.astype(np.int64) * problem.unit_count + high, return_inverse=True)
    ends = np.stack([key // problem.unit_count, key % problem.unit_count], axis=1)
    weight = np.bincount(place, seconds, len(key))
    quickest = problem.batch_time.min(axis=(1, 2))
    work = np.bincount(problem.op_unit, quickest, problem.unit_count)
    return ends.astype(np.int32), weight / (work[ends].sum(axis=1) + float(work.mean()) + 1e-30)
