"""The planner `multilevel`: coarsen, search, refine level by level, and again from the result."""

from __future__ import annotations

import contextlib
import math
import time
from typing import ClassVar

import numpy as np

from placewright import planners
from placewright.analysis.devices import Restriction
from placewright.budget import Budget, Progress, no_progress
from placewright.errors import InfeasibleError
from placewright.graph import Ints
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, Proposal, whole_number
from placewright.planners.latency.search.multilevel.contracting import Level
from placewright.planners.latency.search.multilevel.devices import all_devices, choices
from placewright.planners.latency.search.multilevel.levels import coarsen
from placewright.planners.latency.search.multilevel.search import Search
from placewright.problem import Problem
from placewright.simulate.latency import schedule_placement, time_placement

# Quick planners whose best plan is the first, those beyond the third only where these find none.
FIRST = ("heft", "celeritas", "greedy", "m-etf", "memory-fill", "met")
IF_NEED_BE = FIRST[3:]
ON_A_LEVEL = FIRST[:3]

DEFAULT_EVALUATIONS = 200_000  # without a time limit
CYCLES = 6  # that the time or the evaluations are shared out to
LEAST_SECONDS = 2.0  # of a cycle
LEAST_EVALUATIONS = 1_000
LEAST_OPS = 24  # on the coarsest level
# Kinds of cycles: by what factor the coarsest level has fewer ops than the finest, at least and at
# most. Each is tried; then that which has gained most lately is taken, or any for this share.
SHRINKAGES = ((10.0, 60.0), (3.0, 10.0), (1.0, 1.0))
ANY_SHARE = 0.2
SETUP_SHARE = 0.5  # a cycle whose levels take longer to make than that of what is left is not begun
FIRST_CHUNK, LARGEST_CHUNK = 64, 4096  # evaluations between two looks at the clock
CHUNK_SECONDS = 0.1
TELL_SECONDS = 0.5
HOT, COLD = 1e-4, 1e-6  # the temperatures of annealing on a level, of the makespan


class Multilevel(LatencyPlanner):
    """Multilevel search (as in METIS, Karypis and Kumar 1998; on DAGs Herrmann et al. 2019).

    Ops are joined, pair by pair, to coarser and coarser problems (`levels`); from the coarsest
    to the finest, annealing moves groups of them and what belongs together with them between
    devices, and earlier or later in the order (`search`). The first such cycle starts from the
    best of quick planners on its coarsest level; those after it from the best placement so far,
    joining only what that has on one device, with other pairs each time. For graphs of thousands
    of ops and more; of hundreds of devices it uses some tens (`devices`).

    Option `iterations`: evaluations in all (200,000; with a time limit, no limit).
    """

    name: ClassVar[str] = "multilevel"

    def __init__(self, iterations: str | int | None = None) -> None:
        self.iterations = (
            None if iterations is None else whole_number(self.name, "iterations", iterations)
        )

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        run = _Run(problem, budget, seed, self.iterations, on_progress)
        with contextlib.suppress(KeyboardInterrupt):  # what was found so far is the answer
            run.cycles()
        return Proposal(run.answer())


class _Run:
    """One call of the planner: the best placement so far, and how long to go on."""

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        seed: int,
        iterations: int | None,
        on_progress: Progress,
    ) -> None:
        self.budget, self.on_progress = budget, on_progress
        self.rng = np.random.default_rng(seed)
        unlimited = iterations is None and budget.seconds == math.inf
        self.most = DEFAULT_EVALUATIONS if unlimited else iterations
        self.done = 0
        self.setup_seconds = 0.0
        self.gains = [math.inf] * len(SHRINKAGES)
        self.fresh = budget.start is None
        self.devices, self.best, self.value = _first(problem, budget)
        self.problem = self.devices.problem
        # What the search goes on from, judged as it judges: transfers right after their producers.
        self.held = self.best.device, _op_order(self.best)
        self.held_value = self._search(self.problem, *self.held).best
        self._tell()

    def answer(self) -> Placement:
        return self.devices.expand(self.best)

    # -- cycles ----------------------------------------------------------------------------------

    def cycles(self) -> None:
        number = 0
        while self._left > 0 and self.value > 0:
            self.on_progress(f"cycle {number + 1}", self._progress)
            self._cycle(number)
            number += 1

    def _cycle(self, number: int) -> None:
        """Down to the coarsest level and, refining, up again."""
        kind, before = self._kind(), self.value
        began, improving = time.monotonic(), 0.0
        share = max(self._left / max(CYCLES - number, 2), min(self._least, self._left))
        levels = self._levels(kind)
        device, order = self._coarsest(levels)
        for height in range(len(levels), -1, -1):
            problem = levels[height - 1].problem if height else self.problem
            search = self._search(problem, device, order)
            if not height and search.best > self.held_value:  # coarser problems led astray
                search = self._search(problem, *self.held)
            started = time.monotonic()
            self._improve(search, share / (len(levels) + 1), finest=height == 0)
            improving += time.monotonic() - started
            device, order = search.placed()
            if height:
                device, order = levels[height - 1].expand(device, order)
                if self._left <= 0:
                    return
        self._hold(search)
        self.gains[kind] = before - self.value
        self.fresh = False
        if levels:
            self.setup_seconds = time.monotonic() - began - improving

    def _kind(self) -> int:
        if self.rng.random() < ANY_SHARE and max(self.gains) < math.inf:
            return int(self.rng.integers(len(SHRINKAGES)))
        return int(np.argmax(self.gains))

    def _levels(self, kind: int) -> list[Level]:
        """Coarser problems; none where there is no time to make them."""
        if self.setup_seconds > SETUP_SHARE * self.budget.left:
            return []
        shrinkage = math.exp(self.rng.uniform(*np.log(SHRINKAGES[kind])))
        target = max(LEAST_OPS, int(self.problem.op_count / shrinkage))
        return coarsen(self.problem, None if self.fresh else self.held[0], target, self.rng)

    def _coarsest(self, levels: list[Level]) -> tuple[Ints, Ints]:
        """Devices and an order to start from on the coarsest level."""
        if self.fresh and levels:
            try:
                found, _ = _quickest(levels[-1].problem, ON_A_LEVEL, self.budget)
                return found.device, _op_order(found)
            except InfeasibleError:  # its ops are too large for what memory there is
                levels.clear()
        device, order = self.held
        for level in levels:
            device, order = level.restrict(device, order)
        return device, order

    def _search(self, problem: Problem, device: Ints, order: Ints) -> Search:
        """In the given order, or in that of list scheduling into gaps, if it is better."""
        search = Search(problem, device, order, self.rng)
        other = schedule_placement(problem, device)
        search.try_order(_op_order(other))
        return search

    def _improve(self, search: Search, share: float, *, finest: bool) -> None:
        """Annealing for a `share` of the evaluations or of the seconds."""
        hot, cold = HOT * search.best, COLD * search.best
        started, done, count = time.monotonic(), 0, FIRST_CHUNK
        passed = 0.0
        while passed < 1 and self._left > 0:
            if self.most is not None:
                count = int(max(1, min(LARGEST_CHUNK, math.ceil(share - done))))
            before = time.monotonic()
            search.improve(count, hot * (cold / hot) ** passed)
            self.done += count
            done += count
            if self.most is not None:
                passed = done / share
            else:
                passed = (time.monotonic() - started) / share
                pace = max(time.monotonic() - before, 1e-6) / count
                count = max(FIRST_CHUNK // 2, min(4 * count, int(CHUNK_SECONDS / pace)))
            if finest and search.best < self.value and time.monotonic() - self.told > TELL_SECONDS:
                self._keep(search.placement())

    # -- limits, in evaluations or in seconds ----------------------------------------------------

    @property
    def _left(self) -> float:
        if self.budget.left <= 0:
            return 0.0
        return self.budget.left if self.most is None else self.most - self.done

    @property
    def _least(self) -> float:
        return LEAST_SECONDS if self.most is None else LEAST_EVALUATIONS

    @property
    def _progress(self) -> float:
        whole = self.budget.seconds if self.most is None else self.most
        return 1.0 - self._left / whole

    # -- the best so far -------------------------------------------------------------------------

    def _hold(self, search: Search) -> None:
        """Go on from the search's best, and keep it if it is the best, or scheduled into gaps."""
        if search.best < self.held_value:
            self.held, self.held_value = search.placed(), search.best
            self._keep(search.placement())
            self._keep(schedule_placement(self.problem, self.held[0]))

    def _keep(self, placement: Placement) -> None:
        value = time_placement(self.problem, placement).makespan
        if value < self.value:
            self.best, self.value = placement, value
            self._tell()

    def _tell(self) -> None:
        self.told = time.monotonic()
        self.budget.listener.found(self.answer())


def _op_order(placement: Placement) -> Ints:
    assert placement.sequence is not None
    return placement.sequence[placement.sequence >= 0]


def _first(problem: Problem, budget: Budget) -> tuple[Restriction, Placement, float]:
    """The devices to plan on, and what to start from there: the budget's start, or quick plans."""
    if budget.start is not None:
        devices = next(choices(problem, budget.start))
        start = devices.restrict(budget.start)
        assert start is not None  # its devices are among those chosen
        if start.sequence is None:
            start = schedule_placement(devices.problem, start.device)
        return devices, start, time_placement(devices.problem, start).makespan
    best: tuple[Restriction, Placement, float] | None = None
    for devices in choices(problem, None):
        if best is not None and budget.left <= 0:
            break
        with contextlib.suppress(InfeasibleError):
            found, value = _quickest(devices.problem, FIRST, budget)
            if best is None or value < best[2]:
                best = devices, found, value
    if best is None:
        found, value = _quickest(problem, FIRST, budget)
        best = all_devices(problem), found, value
    return best


def _quickest(problem: Problem, names: tuple[str, ...], budget: Budget) -> tuple[Placement, float]:
    """The best plan of some planners, as far as time allows; the first's error if none fits."""
    best: tuple[Placement, float] | None = None
    reason: InfeasibleError | None = None
    for name in names:
        if best is not None and (budget.left <= 0 or name in IF_NEED_BE):
            break
        try:
            found = planners.create(name).plan(problem, Budget(), 0, no_progress).placement
        except InfeasibleError as error:
            reason = reason or error
            continue
        if found.sequence is None:
            found = schedule_placement(problem, found.device)
        value = time_placement(problem, found).makespan
        if best is None or value < best[1]:
            best = found, value
    if best is None:
        assert reason is not None
        raise reason
    return best
