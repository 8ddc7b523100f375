"""The planner `auto` as a row of the table: the portfolio asked like any other planner."""

from __future__ import annotations

from typing import ClassVar

from placewright.budget import Budget, Progress
from placewright.errors import OptionError
from placewright.planners.base import Proposal, whole_number
from placewright.problem import Problem


class Auto:
    """Quick planners, then searches and proofs in turns on all cores (see `portfolio`).

    Options: `processes` (as many as cores; 1 works in this process), `iterations` (rounds of
    members: the same seed gives the same plan on every machine), `gap`, at which it stops, and
    `ray`, the address of a Ray cluster to work on (see `ray_connection`).
    Without iterations and time limit it takes `portfolio.DEFAULT_SECONDS`.
    """

    name: ClassVar[str] = "auto"
    counts_peak: ClassVar[bool] = True  # each member is asked as suits it

    def __init__(
        self,
        objective: str,
        processes: str = "",
        iterations: str = "",
        gap: str = "",
        ray: str = "",
    ) -> None:
        self.objective = objective
        self.processes = whole_number(self.name, "processes", processes) if processes else None
        self.iterations = whole_number(self.name, "iterations", iterations) if iterations else None
        self.gap = _share(gap) if gap else None
        self.ray = ray

    def supports(self, problem: Problem) -> str | None:
        return None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        from placewright.portfolio import Limits, best_proposal

        limits = Limits.of(max(budget.left, 0.0), self.iterations, self.gap)
        return best_proposal(
            problem,
            limits,
            seed=seed,
            processes=self.processes,
            ray=self.ray,
            start=budget.start,
            on_progress=on_progress,
        )


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise OptionError(
            f"planner 'auto': gap is '{text}'; give a share of the value, such as 0.01"
        ) from None
