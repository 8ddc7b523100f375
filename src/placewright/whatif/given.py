"""A placement found before, as a planner: for `solve` to time, bound and judge."""

from __future__ import annotations

from typing import ClassVar

from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.plan import Placement
from placewright.planners.base import Proposal
from placewright.problem import Problem


class Given:
    """It proposes the placement, for ``latency``, and nothing else."""

    name: ClassVar[str] = "replan"
    objective: ClassVar[str] = "latency"

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.asked = False

    def supports(self, problem: Problem) -> str | None:
        return None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        if self.asked:  # asked again with less memory, this planner has nothing else to offer
            raise InfeasibleError("the placement's peak memory does not fit")
        self.asked = True
        return Proposal(self.placement)


class GivenPipeline(Given):
    """The same for ``throughput``."""

    objective: ClassVar[str] = "throughput"
