"""What the plan of every planner that repeats has to stand."""

from placewright.errors import InfeasibleError
from placewright.plan import Plan
from placewright.planners.base import Planner
from placewright.problem import Problem
from placewright.solving import solve
from placewright.verify import verify


def judged_twice(problem: Problem, planner: Planner, seed: int) -> Plan | None:
    """The plan, which passed the judge and came again, byte for byte; None if nothing fits."""
    try:
        plan = solve(problem, planner, seed=seed)
    except InfeasibleError:
        return None
    assert verify(plan).violations == ()
    assert plan.lower_bound <= plan.value
    assert solve(problem, planner, seed=seed).to_document() == plan.to_document()
    return plan
