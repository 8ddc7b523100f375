"""The search behind `whatif.robust`: rounds of annealing on a percentile of sampled makespans."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

import numpy as np

from placewright.budget import Budget, Pace, Progress
from placewright.graph import Floats, Ints
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency import moves
from placewright.kernels.latency import robust as kernel
from placewright.kernels.latency.search import BEST, keep
from placewright.plan import Placement
from placewright.planners.latency.search.walk import space_of
from placewright.problem import Problem
from placewright.simulate.latency import time_placement
from placewright.simulate.peak import peak_memory
from placewright.whatif.samples import Costs, in_lanes, scratch_of

SHARE = 0.95
ROUNDS = 8
# Samples a round trains on: with few, the search finds what is good for these alone.
TRAINING = 1024
VALIDATION = 4  # times as many are there to validate with
MOST_FACTORS = 8_000_000  # of a round; large graphs get fewer samples
LEAST_BLOCKS = 2
# The temperature at the start of a round and at its end, in shares of the value: low, for what
# makes a plan robust is near to a plan that is good to begin with.
FIRST_SHARE = 6e-4
LAST_SHARE = 3e-5
CHECK = 50  # evaluations between two looks at peak memory, where that counts
TRAIN, VALIDATE, MUTATE = 1, 2, 3  # streams of random numbers


class RobustSearch:
    """Rounds of annealing, each on fresh samples and from the best that validated so far."""

    def __init__(self, costs: Costs, start: Placement, budget: Budget, limit: int | float) -> None:
        """`start` has a sequence; `limit` is the most evaluations of all rounds together."""
        problem = self.problem = costs.problem
        self.costs = costs
        self.budget = budget
        self.limit = limit
        blocks = min(TRAINING, MOST_FACTORS // costs.items) // kernel.LANES
        self.blocks = max(blocks, LEAST_BLOCKS)
        self.samples = self.blocks * kernel.LANES
        self.arrays = arrays_of(problem)
        self.scratch = scratch_of(problem, self.blocks)
        self.space = _space(problem, _sequence(start))
        self.best = start

    def run(self, on_progress: Progress) -> Placement:
        """The placement, with its sequence, that validated best: perhaps the start."""

        def tell(what: str, done: float) -> None:
            on_progress(what, (number + done) / ROUNDS)

        with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
            began = time.perf_counter()
            self.percentile = self._validated(self.best)
            validating = time.perf_counter() - began  # takes as long again after the last round
            budget = Budget(self.budget.left - validating)
            for number in range(ROUNDS):
                if budget.left <= 0:
                    break
                seconds = budget.left / (ROUNDS - number)
                self._round(number, Pace(Budget(seconds), self._share(number)), tell)
        return self.best

    def _share(self, number: int) -> int | float:
        """Evaluations of one round."""
        if self.limit == math.inf:
            return math.inf
        return int(self.limit * (number + 1) // ROUNDS - self.limit * number // ROUNDS)

    def _round(self, number: int, pace: Pace, on_progress: Progress) -> None:
        state = _state(self.problem, self.best)
        samples = self._training(number, state)
        value = self._percentile(samples, state)
        keep(state, value)
        walk = _Walk(self, state, samples, self.costs.rng(MUTATE, number + 1))
        temperature, coldest = FIRST_SHARE * value, LAST_SHARE * value
        try:
            for count in pace.chunks("robust search", on_progress):
                temperature = walk.anneal(count, temperature, _cooling(pace, temperature, coldest))
        finally:
            if state.value[BEST] < value:
                self._take(state)

    def _training(self, number: int, state: kernel.State) -> kernel.Samples:
        """Samples of a round, the worst for what it starts from first: racing ends sooner."""
        factors = self.costs.factors(self.costs.rng(TRAIN, number + 1), self.samples)
        self._percentile(self._in_lanes(factors), state)
        worst_first = np.argsort(-self.scratch.makespan.ravel(), kind="stable")
        return self._in_lanes(factors[worst_first])

    def _in_lanes(self, factors: Floats) -> kernel.Samples:
        size = len(factors)
        return kernel.Samples(
            *in_lanes(factors, self.problem.op_count), size=size, rank=SHARE * (size - 1)
        )

    def _percentile(self, samples: kernel.Samples, state: kernel.State) -> float:
        return float(
            kernel.percentile_within(
                self.arrays, samples, state.device, state.sequence, self.scratch, math.inf
            )
        )

    def _validated(self, placement: Placement) -> float:
        """Seconds: the percentile over samples that no round trains on."""
        values = self.costs.makespans(
            placement.device,
            _sequence(placement),
            VALIDATION * self.samples,
            self.costs.rng(VALIDATE),
        )
        return float(np.percentile(values, 100 * SHARE))

    def _take(self, state: kernel.State) -> None:
        """Keep a round's best, if it fits and validates better than what there is."""
        device = state.best_unit_device[self.problem.op_unit]
        placement = Placement(device, state.best_sequence)
        if self.overflows(placement):
            return
        percentile = self._validated(placement)
        if percentile < self.percentile:
            self.best, self.percentile = placement, percentile

    def overflows(self, placement: Placement) -> bool:
        """Whether peak memory counts and does not fit; what ops keep always does."""
        if self.problem.options.memory == "resident":
            return False
        schedule = time_placement(self.problem, placement)
        peak = peak_memory(self.problem, placement, schedule)
        return bool((peak > self.problem.device_memory).any())


class _Walk:
    """The annealing of one round; from where peak memory overflows it goes back to where not.

    It looks after every so many evaluations, however many are asked for at a time.
    """

    def __init__(
        self,
        search: RobustSearch,
        state: kernel.State,
        samples: kernel.Samples,
        rng: np.random.Generator,
    ) -> None:
        self.search = search
        self.state = state
        self.samples = samples
        self.rng = rng
        self.looks = search.problem.options.memory == "peak"
        self.until_look = CHECK
        self.fitting = _copied(state)

    def anneal(self, count: int, temperature: float, cooling: float) -> float:
        """So many evaluations; returns the temperature after them."""
        search = self.search
        while count:
            step = min(count, self.until_look) if self.looks else count
            temperature = kernel.anneal(
                search.arrays, search.space, self.samples, self.state, search.scratch, self.rng,
                step, temperature, cooling,
            )  # fmt: skip
            count -= step
            if self.looks:
                self._look(step)
        return temperature

    def _look(self, step: int) -> None:
        self.until_look -= step
        if self.until_look:
            return
        self.until_look = CHECK
        state, op_unit = self.state, self.search.problem.op_unit
        current = Placement(state.device, state.sequence)
        best = Placement(state.best_unit_device[op_unit], state.best_sequence)
        if self.search.overflows(best) or self.search.overflows(current):
            columns: Any = zip(state, self.fitting, strict=True)
            for column, fitting in columns:
                column[:] = fitting
        else:
            self.fitting = _copied(state)


def _copied(state: kernel.State) -> kernel.State:
    return kernel.State._make(column.copy() for column in state)


def _cooling(pace: Pace, temperature: float, coldest: float) -> float:
    """Factor per evaluation, such that the round ends at the coldest."""
    if pace.limit < math.inf:
        return float((LAST_SHARE / FIRST_SHARE) ** (1.0 / pace.limit))
    if not pace.done or temperature <= coldest:  # at first the pace is not known yet
        return 1.0
    return float((coldest / temperature) ** (1.0 / max(pace.evaluations_left, 1.0)))


def _space(problem: Problem, sequence: Ints) -> moves.Space:
    """What may change: units that have a choice of device, in the order of the start."""
    blocks = np.ones(problem.op_count, dtype=np.int64)  # the order here has none
    return space_of(problem, sequence[sequence >= 0])._replace(block_length=blocks)


def _state(problem: Problem, placement: Placement) -> kernel.State:
    unit_device = problem.unit_device(placement.device)
    sequence = _sequence(placement).copy()
    position = np.empty(len(sequence), dtype=np.int32)
    position[np.where(sequence >= 0, sequence, problem.op_count - 1 - sequence)] = np.arange(
        len(sequence)
    )
    used = np.bincount(unit_device, problem.unit_memory, problem.device_count)
    return kernel.State(
        device=placement.device.copy(),
        unit_device=unit_device,
        free=problem.device_memory - used,
        sequence=sequence,
        position=position,
        value=np.full(2, np.inf),
        best_unit_device=unit_device.copy(),
        best_sequence=sequence.copy(),
    )


def _sequence(placement: Placement) -> Ints:
    assert placement.sequence is not None
    return placement.sequence
