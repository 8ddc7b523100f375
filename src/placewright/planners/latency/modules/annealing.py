"""Module annealing: DiviML's module splitting with annealed arcs, planner `module-annealing`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from operator import itemgetter
from threading import Event
from typing import ClassVar

import numpy as np

from placewright.budget import Budget, Progress, Reporter
from placewright.errors import InfeasibleError
from placewright.formulations.latency.incumbent import Incumbent, timed
from placewright.graph import Floats
from placewright.planners.base import LatencyPlanner, Proposal, whole_number
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.planners.latency.modules.arcs_annealed import AnnealedArcs, Arc, Turn, cheapest
from placewright.planners.latency.modules.chain import Chain, chains_of
from placewright.planners.latency.modules.knapsack import Choice, fitted, prices_of
from placewright.problem import LONG_ROUNDING, Problem

DEFAULT_TURNS = 60
MOST_OF_ALL = 0.6  # of all the time, for one turn of what takes the whole makespan
LEAST_SECONDS = 0.1
TURNS_BETWEEN_FITTINGS = 10
FITTING_SECONDS, FITTING_SHARE = 2.0, 0.15  # the most at once, and of the time until then
TINY = 1e-300


class ModuleAnnealing(LatencyPlanner):
    """Anneal the modules between cut ops one by one, and join them by a shortest path.

    A schedule is a path over the devices of cut ops, as for `milp-split` (DiviML, §IV-B1); where
    modules have hundreds of ops, such as all heads of a layer, annealing takes the place of the
    exact solver. Modules that are equal share what is found. Arcs on the path that is or may
    become the shortest have turns, in proportion to what they take of it: where most ops are
    in equal branches these are shared out by counts first, elsewhere what an engine fuses is placed
    first; then op by op from there. Where memory is short, a program chooses which plan each
    module has (`knapsack`). Goes on from the budget's start, and is never worse.

    Options: `turns`, how many in all, each of a number of evaluations, so that they give the same
    plan on every machine (60; with a time limit, no limit); `processes`, how many at a time.
    """

    name: ClassVar[str] = "module-annealing"

    def __init__(self, turns: str | int = "", processes: str | int = 1) -> None:
        self.turns = whole_number(self.name, "turns", turns) if turns else None
        self.processes = whole_number(self.name, "processes", processes)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        first, reason = _first(problem, budget, seed)
        turns = self.turns
        if turns is None and math.isinf(budget.seconds):
            turns = DEFAULT_TURNS
        search = _Search(problem, budget, seed, turns, first, on_progress)
        with suppress(KeyboardInterrupt):
            search.run(self.processes)
        if search.best is None:
            raise reason or InfeasibleError(
                f"planner '{self.name}' found no plan; give it more time or the devices more memory"
            )
        return Proposal(search.best.placement)


def _first(
    problem: Problem, budget: Budget, seed: int
) -> tuple[Incumbent | None, InfeasibleError | None]:
    if budget.start is not None:
        return timed(problem, budget.start), None
    return first_incumbent(problem, seed, None, budget)


class _Search:
    """The best plan so far, the chains, and the turns under way.

    `price[device]`, of a byte, is not 0 where memory is short; `chosen` are the arcs of the last
    plan that was put together.
    """

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        seed: int,
        turns: int | None,
        first: Incumbent | None,
        on_progress: Progress,
    ) -> None:
        self.problem, self.budget, self.seed, self.turns = problem, budget, seed, turns
        self.best, self.on_progress = first, on_progress
        known = first.value if first and budget.start is not None else math.inf
        self.reporter = Reporter(budget, known)
        self.chains = chains_of(problem, AnnealedArcs)
        self.price = np.zeros(problem.device_count)
        self.chosen: list[Arc] = []
        self.running: dict[Future[Incumbent | None], Arc] = {}
        self.stop = Event()
        self.started = 0
        self.given = budget.left
        self.fittings, self.fitting_seconds = 0, 0.0

    def run(self, processes: int) -> None:
        if self.best is not None:
            self._tell()
            for chain in self.chains:
                chain.learn(self.best.placement)
        with ThreadPoolExecutor(processes) as pool:
            try:
                while self._start(pool, processes):
                    self._take(wait(self.running, return_when=FIRST_COMPLETED).done)
                    self._join(is_last=False)
            finally:
                self.stop.set()  # after Ctrl-C turns end at once
        self._take(list(self.running))
        self._join(is_last=True)

    # -- turns -------------------------------------------------------------------------------------

    def _start(self, pool: ThreadPoolExecutor, processes: int) -> bool:
        """Give every idle thread a turn; whether any is under way."""
        while len(self.running) < processes and not self._is_over:
            found = self._next()
            if found is None:
                break
            arc, seconds = found
            self.started += 1
            turn = Turn(min(seconds, self.budget.left), stop=self.stop)
            in_turns, seed = self.turns is not None, self.seed + 7919 * self.started
            way, price = arc.begin(seconds), self.price.copy()
            future = pool.submit(arc.search, way, turn, in_turns, seed, price)
            self.running[future] = arc
        return bool(self.running)

    @property
    def _is_over(self) -> bool:
        if self.turns is not None and self.started >= self.turns:
            return True
        return self.budget.left < LEAST_SECONDS

    def _next(self) -> tuple[Arc, float] | None:
        """The arc that has had least for what it takes of the makespan, and seconds for it.

        Those not tried yet come first.
        """
        weight = self._weights()
        waiting = [arc for arc in weight if not arc.is_closed]
        waiting = [arc for arc in waiting if not arc.turns] or waiting
        if not waiting:
            return None
        arc = min(waiting, key=lambda arc: arc.seconds / max(weight[arc], TINY))
        length = arc.wanted_seconds()
        if self.turns is not None:
            return arc, length
        most = MOST_OF_ALL * self.given * weight[arc] / max(sum(weight.values()), TINY)
        return arc, max(LEAST_SECONDS, min(length, most))

    def _weights(self) -> dict[Arc, float]:
        """Seconds that arcs take of the path that may become the shortest, or of the last plan."""
        weight: dict[Arc, float] = {}
        _, likely, _ = self._shortest(self.price, optimistic=True)
        for arc in [*self.chosen, *likely]:
            weight[arc] = weight.get(arc, 0.0) + (arc.value if arc.plans else arc.low)
        return weight

    def _take(self, done: Iterable[Future[Incumbent | None]]) -> None:
        for future in done:
            self.running.pop(future).take(future.result())
        ended = 1.0 - self.budget.left / self.given if math.isfinite(self.given) else 0.0
        if self.turns is not None:
            ended = max(ended, self.started / self.turns)
        self.on_progress("modules annealed", min(ended, 1.0))

    # -- plans of the whole ------------------------------------------------------------------------

    def _join(self, is_last: bool) -> None:
        """Put the shortest plans of the modules together or, where too full, those that fit."""
        chain, arcs, length = self._shortest(np.zeros_like(self.price))
        if math.isinf(length):
            return
        plans = [_choice(arc, arc.plans[0]) for arc in arcs]
        used = np.sum([each.memory for each in plans], axis=0)
        if (used <= self.problem.device_memory).all():
            self.price[:] = 0.0
            self._keep(chain, plans)
        elif is_last or self._may_fit:
            self._fit(length)

    @property
    def _may_fit(self) -> bool:
        if self.turns is not None:
            return self.started >= self.fittings * TURNS_BETWEEN_FITTINGS
        passed = self.given - self.budget.left
        is_due = self.fitting_seconds <= FITTING_SHARE * passed and passed >= FITTING_SECONDS
        return self.best is None or is_due

    def _fit(self, length: float) -> None:
        started = time.monotonic()
        self.fittings += 1
        capacity = self.problem.device_memory
        goal = self.best.value if self.best else 2.0 * length
        self.price = prices_of(self.chains, capacity, goal)
        for chain in sorted(self.chains, key=lambda chain: cheapest(chain, self.price)[1]):
            found = fitted(choices_of(chain), capacity, self._fitting_seconds)
            if found is not None:
                self._keep(chain, found)
                break
        self.fitting_seconds += time.monotonic() - started

    @property
    def _fitting_seconds(self) -> float:
        if self.turns is not None:
            return math.inf
        return min(FITTING_SECONDS, max(self.budget.left, LEAST_SECONDS))

    def _shortest(
        self, price: Floats, optimistic: bool = False
    ) -> tuple[Chain[AnnealedArcs], list[Arc], float]:
        """The chain with the cheapest path, that path, and its length."""
        paths = [(chain, *cheapest(chain, price, optimistic)) for chain in self.chains]
        return min(paths, key=itemgetter(2))

    def _keep(self, chain: Chain[AnnealedArcs], found: list[Choice]) -> None:
        """Take plans that fit, for what follows, and the whole if it is shorter than the best."""
        pairs = zip(chain.arcs, found, strict=True)
        self.chosen = [arcs.at[each.pair] for arcs, each in pairs]
        length = sum(each.value for each in found)
        if self.best is not None and length >= self.best.value * (1 - LONG_ROUNDING):
            return
        whole = timed(self.problem, chain.joined([each.placement for each in found]))
        if self.best is None or whole.value < self.best.value:
            self.best = whole
            self._tell()

    def _tell(self) -> None:
        best = self.best
        assert best is not None
        self.reporter.tell(best.value, lambda: best.placement)


def choices_of(chain: Chain[AnnealedArcs]) -> list[list[Choice]]:
    """Of each part the plans that its arcs have."""
    return [
        [_choice(arc, plan) for arc in arcs.at.values() for plan in arc.plans]
        for arcs in chain.arcs
    ]


def _choice(arc: Arc, plan: Incumbent) -> Choice:
    return Choice((arc.source, arc.target), plan.value, arc.memory(plan), plan.placement)
