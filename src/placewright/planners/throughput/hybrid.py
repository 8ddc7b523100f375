"""Annealing and rebalancing in turns, and several such searches side by side.

Annealing (`multilevel`) comes to good plans from anywhere and sticks a little above the best;
rebalancing (`rebalance`) goes on from there, and annealing from where that sticks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from placewright.budget import Budget
from placewright.graph import Ints
from placewright.planners.throughput.multilevel import Found, Multilevel
from placewright.planners.throughput.rebalance import Rebalancing
from placewright.problem import Problem

ROUNDS = 20  # of annealing, then the best of what they lead to is rebalanced
TURN_STEPS = 4_000_000  # of one rebalancing at the most; then it is the annealing's turn
PATIENCE = 200  # rounds without a better plan before the search starts anew
LOOK_SECONDS = 0.25  # between two looks at what the searches have found


class Hybrid:
    """One search, which can be stopped and gone on with."""

    def __init__(self, problem: Problem, seed: int, start: Ints) -> None:
        self.annealing = Multilevel(problem, seed, start, PATIENCE)
        self.rebalancing = Rebalancing(problem, seed, start)
        self.seen = set[float]()  # values of plans that were rebalanced
        self.due = 0  # steps until it is the annealing's turn

    @property
    def best(self) -> Found:
        one, two = self.annealing.best, self.rebalancing.best
        return one if one.value <= two.value else two

    @property
    def steps(self) -> int:
        """Annealing steps, and what rebalancing did, counted in them."""
        return self.annealing.steps + self.rebalancing.steps

    def meet(self, other: Found) -> None:
        """Take in another search's best plan."""
        self.annealing.meet(other)
        self.annealing.keep(other.unit_device)
        self.seen.add(other.value)

    def run(self, budget: Budget, most_steps: float) -> None:
        """Until time is up or so many steps are made, in all calls together."""
        while self.annealing.can_improve and budget.left > 0 and self.steps < most_steps:
            if self.due <= 0 or self.rebalancing.settled:
                self._choose(self._annealed(budget, most_steps))
                self.due = TURN_STEPS
            before = self.rebalancing.steps
            self.rebalancing.run(budget, min(self.due, most_steps - self.steps))
            self.due -= self.rebalancing.steps - before
            self.annealing.keep(self.rebalancing.best.unit_device)

    def _choose(self, plans: list[Found]) -> None:
        """Go on rebalancing the same plan unless one is better, or nothing is left to try."""
        present = self.rebalancing.best.value
        if plans and (self.rebalancing.settled or min(p.value for p in plans) < present):
            self.seen.add(present)
            self.rebalancing.adopt(min(plans, key=lambda each: each.value).unit_device)

    def _annealed(self, budget: Budget, most_steps: float) -> list[Found]:
        """What some rounds of annealing lead to, but for what was rebalanced before."""
        plans = []
        for _ in range(ROUNDS):
            if budget.left <= 0 or self.steps >= most_steps:
                break
            found = self.annealing.round(budget, most_steps - self.rebalancing.steps)
            if found is not None and found.value not in self.seen:
                plans.append(found)
        return plans


def search_together(
    searches: Sequence[Hybrid], budget: Budget, most_steps: float, look: Callable[[], None]
) -> None:
    """Run searches side by side, `most_steps` of each; then each meets the next one's best plan.

    `look` is called now and then. KeyboardInterrupt stops them all and is raised again.
    """
    limit = Budget(budget.left)
    with ThreadPoolExecutor(len(searches)) as pool:
        running = [pool.submit(each.run, limit, most_steps) for each in searches]
        try:
            while wait(running, LOOK_SECONDS).not_done:
                look()
        except BaseException:
            limit.seconds = 0.0
            raise
        for each in running:
            each.result()
    found = [each.best for each in searches]
    for number, search in enumerate(searches):
        search.meet(found[number - 1])
