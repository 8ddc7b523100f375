"""How a run stands: the best plan and the best bound so far, and where they come from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from placewright.bounds import Bound, lower_bound
from placewright.errors import VerificationError
from placewright.plan import Placement, Plan, gap_of
from placewright.problem import ROUNDING, Problem
from placewright.simulate import evaluate
from placewright.simulate.latency import schedule_placement
from placewright.verify import verify

WRONG = 1e-6  # relative: a bound that is above a value by more is no bound


@dataclass(frozen=True, eq=False)
class Origin:
    """What every plan of a run says of where it comes from."""

    source: str = ""
    seed: int = 0


class Incumbent:
    """The best plan, each judged before it counts, and the best bound on all plans."""

    def __init__(self, problem: Problem, origin: Origin) -> None:
        self.problem, self.origin = problem, origin
        self.bound: Bound = lower_bound(problem)
        self.placement: Placement | None = None
        self.found_by = ""
        self._plan: Plan | None = None

    @property
    def value(self) -> float:
        return self._plan.value if self._plan else math.inf

    @property
    def gap(self) -> float:
        if self._plan is None:
            return math.inf
        return gap_of(self.value, self.bound.value)

    def offer(self, placement: Placement, member: str) -> bool:
        """Whether the placement is better than all before. VerificationError if it is wrong."""
        if self.problem.options.row.has_sequence and placement.sequence is None:
            placement = schedule_placement(self.problem, placement.device)
        outcome = evaluate(self.problem, placement)
        if not outcome.value < self.value * (1 - ROUNDING):
            return False
        if outcome.value < self.bound.value * (1 - WRONG):
            raise VerificationError(
                f"a plan of {outcome.value:.9g} s is below what '{self.bound.source}' has proved, "
                f"{self.bound.value:.9g} s"
            )
        plan = Plan(
            problem=self.problem,
            placement=replace(placement, sequence=None),
            outcome=outcome,
            value=outcome.value,
            lower_bound=min(self.bound.value, outcome.value),
            bound_source=self.bound.source,
            planner="auto",
            seed=self.origin.seed,
            planner_options={"found_by": member},
            source=self.origin.source,
        )
        verify(plan).raise_if_failed()
        self._plan, self.placement, self.found_by = plan, placement, member
        return True

    def prove(self, bound: float, source: str) -> bool:
        """Whether the bound is better than all before. VerificationError if a plan beats it."""
        if not bound > self.bound.value * (1 + ROUNDING):
            return False
        if bound > self.value * (1 + WRONG):
            raise VerificationError(
                f"its bound of {bound:.9g} s is above the plan of {self.value:.9g} s that "
                f"'{self.found_by}' found"
            )
        self.bound = Bound(bound, source)
        return True

    def plan(self, seconds: float = math.nan) -> Plan | None:
        """The best plan with the best bound; None if there is no plan."""
        if self._plan is None:
            return None
        bound = min(self.bound.value, self.value)
        return replace(
            self._plan, lower_bound=bound, bound_source=self.bound.source, seconds=seconds
        )
