"""A planner of your own: random placements, the best of many. Everything else comes for free.

A planner only says which op goes where; scheduling, the lower bound and the judge are the same for
all, so a planner cannot claim what does not hold.

Run: python examples/own_planner.py
"""

from typing import ClassVar

import numpy as np

import placewright as pw
from placewright.budget import Budget, Progress
from placewright.planners.base import LatencyPlanner, MemoryAccount, Proposal
from placewright.simulate.latency import time_placement


class RandomPlacement(LatencyPlanner):
    """The best of `tries` random placements that fit."""

    name: ClassVar[str] = "random"

    def __init__(self, tries: int = 200) -> None:
        self.tries = tries

    def plan(
        self, problem: pw.Problem, budget: Budget, seed: int, on_progress: Progress
    ) -> Proposal:
        random = np.random.default_rng(seed)
        best, shortest = None, np.inf
        for number in range(self.tries):
            account = MemoryAccount(problem, self.name)
            for unit in range(problem.unit_count):
                account.place_first(unit, random.permutation(problem.device_count))
            placement = account.placement()
            makespan = time_placement(problem, placement).makespan
            if makespan < shortest:
                best, shortest = placement, makespan
            on_progress(self.name, (number + 1) / self.tries)
            if budget.left <= 0:
                break
        assert best is not None
        return Proposal(best)


def main() -> None:
    problem = pw.build_problem(
        pw.load("zoo:googlenet").graph, pw.load_cluster("4090+3060"), pw.Options(), pw.CostOptions()
    )
    for planner in (RandomPlacement(), "heft", "single-device"):
        plan = pw.solve(problem, planner)
        print(f"{plan.planner:14} {plan.value * 1e3:8.3f} ms, lower bound {plan.lower_bound:.6f} s")


if __name__ == "__main__":
    main()
