"""The program of devices for all ops in any order against brute force, and where it is exact."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from placewright.bounds.latency.any_order import MOST_FLOWS, NOTHING, prove
from placewright.bounds.latency.paths import critical_path
from placewright.budget import Budget
from placewright.errors import InfeasibleError
from placewright.formulations.latency.incumbent import longest, timed
from placewright.plan import Placement
from placewright.solving import solve
from tests import naive
from tests.builders import chain
from tests.naive import peak as naive_peak
from tests.naive.any_order import least_by_paths
from tests.strategies import problems
from tests.strategies.common import tight

CLOSE = 1e-5  # of the longest time of interest, to what a solver solves


def limited(problem):
    """A problem whose memory matters, or none."""
    try:
        problem.check_feasible()
    except InfeasibleError:
        reject()
    if not (problem.unit_memory.sum() > problem.device_memory).any():
        reject()
    return problem


@settings(max_examples=60, deadline=None)
@given(tight(problems(6, 3)))
def test_it_is_no_less_than_paths_and_loads_of_any_placement_and_no_more_than_the_optimum(problem):
    problem = limited(problem)
    least = least_by_paths(problem)
    if math.isinf(least):  # nothing fits: it says that no plan is shorter than all in a row
        reject()
    bound = prove(problem, Budget(20.0)).value
    assert bound >= least - CLOSE * longest(problem)
    assert bound <= naive.shortest_makespan(problem) * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(tight(problems(6, 3)), st.booleans())
def test_from_a_plan_no_placement_is_below_it(problem, is_peak):
    """The horizon of a plan leaves out what no shorter one has; a peak is no less than is kept."""
    problem = limited(problem)
    optimum = naive.shortest_makespan
    if is_peak:
        problem = replace(problem, options=replace(problem.options, memory="peak"))
        optimum = naive_peak.shortest_makespan
    try:
        start = solve(problem, "greedy").placement
    except InfeasibleError:
        reject()
    value = timed(problem, start).value
    bound = prove(problem, Budget(20.0, start), value).value
    assert bound <= optimum(problem) * (1 + 1e-9)


@pytest.mark.parametrize("above", [1.0, 1.5])
def test_of_ops_in_a_row_it_is_the_optimum(above):
    """Of three ops that fill 0.6 of the fast device each one is there, and a change takes 0.5 s."""
    problem = chain([0.6] * 3, [1.0, 9.0])
    assert critical_path(problem).value < 5.2
    bound = prove(problem, Budget(20.0), 5.5 * above)
    assert bound.value == pytest.approx(5.5, rel=1e-4)
    assert bound.source == "devices for all ops, in any order"


def test_nothing_shorter_than_the_optimum_is_proved_from_it():
    problem = chain([0.6] * 3, [1.0, 9.0])
    best = solve(problem, "cp-sat")
    bound = prove(problem, Budget(20.0, Placement(best.placement.device)), best.value)
    assert bound.value == pytest.approx(best.value, rel=1e-4)
    assert bound.value <= best.value


def test_where_memory_is_no_matter_nothing_is_sought():
    assert prove(chain([0.1] * 3, [1.0, 9.0]), Budget(20.0)) == NOTHING


def test_what_is_too_large_is_left():
    problem = chain([0.1] * (MOST_FLOWS // 4 + 2), [0.6] * 2)
    assert prove(problem, Budget(20.0)) == NOTHING


def test_out_of_time_nothing_is_proved_but_what_is_true():
    problem = chain([0.6] * 3, [1.0, 9.0])
    assert 0.0 <= prove(problem, Budget(0.0)).value <= 5.5
