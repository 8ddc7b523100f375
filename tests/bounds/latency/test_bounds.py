"""Lower bounds against brute force."""

import numpy as np
from hypothesis import given, settings

from placewright.bounds.latency.paths import critical_path, lower_bound, work
from placewright.errors import InfeasibleError
from placewright.solving import solve
from tests import naive
from tests.strategies import problems


@settings(max_examples=25)
@given(problem=problems(max_ops=7, max_devices=3))
def test_no_bound_is_above_the_optimum(problem):
    try:
        problem.check_feasible()
    except InfeasibleError:
        return
    optimum = naive.shortest_makespan(problem)
    for bound in (critical_path(problem), work(problem)):
        assert bound.value <= optimum + 1e-9, bound
    assert lower_bound(problem).value >= 0


@settings(max_examples=25)
@given(problem=problems(max_ops=5, max_devices=3))
def test_no_planner_beats_the_optimum(problem):
    try:
        plan = solve(problem, "heft")
    except InfeasibleError:
        return
    if problem.options.memory == "resident":
        assert plan.value >= naive.shortest_makespan(problem) - 1e-9
    assert np.isfinite(plan.value)
