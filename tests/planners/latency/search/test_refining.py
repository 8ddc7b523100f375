"""Annealing with a free order: how hot it starts."""

import math

import numpy as np
import pytest

from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError, OptionError
from placewright.planners.latency import first_incumbent
from placewright.planners.latency.search import refining
from placewright.planners.latency.search.strings import Annealing
from placewright.planning import make_problem
from placewright.simulate.latency import schedule_placement
from placewright.solving import solve
from placewright.verify import verify


@pytest.fixture(scope="module")
def problem():
    return make_problem("zoo:gpt2?layers=2", "2x3090", {})[0]


@pytest.fixture
def begun(monkeypatch):
    """First temperatures, in makespans per op of the start, of annealings that are not begun."""
    noted = []

    def note(refinement, hot, pace, *rest):
        if hot > refining.COLDEST:  # not the moment that shows the pace
            noted.append(hot * refinement.problem.op_count / refinement.value)
        elif pace.budget.seconds < math.inf:
            pace.seconds_per_evaluation = 1e-2

    monkeypatch.setattr(refining.Refinement, "anneal", note)
    return noted


def on_one_device(problem):
    return schedule_placement(problem, np.zeros(problem.op_count, dtype=np.int32))


def refine(problem, budget, limit, **heat):
    start = on_one_device(problem)
    return refining.refined(problem, start, budget, limit, 0, no_progress, **heat)


def test_the_longer_the_annealing_the_hotter_it_starts(problem, begun):
    for per_op in (10, 1_000, 10_000, 100_000):
        refine(problem, Budget(), per_op * problem.op_count)
    assert begun == pytest.approx([4.0 * 0.001**0.7, 4.0 * 0.1**0.7, 4.0, 4.0])


def test_with_a_time_limit_the_pace_tells_how_long_it_is(problem, begun):
    # ten seconds for each op: that some pass before the annealing begins does not matter
    refine(problem, Budget(problem.op_count * 10.0), math.inf)
    refine(problem, Budget(60.0), 1_000 * problem.op_count)
    assert begun == pytest.approx([4.0 * 0.1**0.7] * 2, rel=0.1)


def test_iterations_that_are_used_up_before_the_time_give_the_same_plan(problem):
    seconds, iterations = (math.inf, 60.0, 90.0), 3_000
    found = [refine(problem, Budget(each), iterations)[0] for each in seconds]
    assert all((each.sequence == found[0].sequence).all() for each in found)
    assert all((each.device == found[0].device).all() for each in found)


def test_a_temperature_given_counts(problem, begun):
    hot = 3.0 * refining.makespan_per_op(problem, on_one_device(problem))
    refine(problem, Budget(), math.inf, hot=hot)
    assert begun == pytest.approx([3.0])


def test_from_a_given_start_it_is_colder_by_turns(problem, begun):
    start = on_one_device(problem)
    for seed in range(20):
        budget = Budget(start=start)
        Annealing(iterations=9_000 * problem.op_count, order="free").plan(
            problem, budget, seed, no_progress
        )
    hottest = refining.hot_for(9_000)
    assert all(hottest / 40 <= each <= hottest for each in begun)
    assert min(begun) < 0.4 and max(begun) > 1.0


def tight_problem():
    """Two devices that hold five sixths of the model each."""
    problem = make_problem("zoo:gpt2?layers=2", "2x3090", {})[0]
    return problem.with_device_memory(np.full(2, 5 / 6 * problem.unit_memory.sum()))


def test_overfull_devices_may_have_a_price_on_the_way_and_the_plan_fits():
    problem = tight_problem()
    options = {"order": "free", "iterations": "20000", "overfull": "priced"}
    found = solve(problem, "annealing", planner_options=options)
    assert verify(found).violations == ()
    again = solve(problem, "annealing", planner_options=options)
    assert (again.placement.device == found.placement.device).all()
    never = solve(problem, "annealing", planner_options={**options, "overfull": "never"})
    assert (never.placement.device != found.placement.device).any()


def test_a_simple_plan_to_start_from_leads_elsewhere():
    problem = tight_problem()
    options = {"order": "free", "iterations": "5", "start": "simple"}
    begun = solve(problem, "annealing", planner_options=options)
    assert verify(begun).violations == ()
    simple = min(solve(problem, name).value for name in ("heft", "m-etf"))
    assert begun.value <= simple
    by_regions = solve(problem, "annealing", planner_options={**options, "start": "region-moves"})
    assert (by_regions.placement.device != begun.placement.device).any()


def test_no_simple_plan_to_start_from_is_said():
    problem = tight_problem()
    full = problem.with_device_memory(np.full(2, problem.unit_memory.max() * 0.9))
    with pytest.raises(InfeasibleError):
        Annealing(order="free", start="simple").plan(full, Budget(), 0, no_progress)


def test_that_nothing_simple_was_found_is_said_too(monkeypatch):
    monkeypatch.setattr(first_incumbent, "STARTS", ())
    with pytest.raises(InfeasibleError, match="planner 'annealing' found no plan to start from"):
        Annealing(order="free", start="simple").plan(tight_problem(), Budget(), 0, no_progress)


def test_there_is_no_price_where_everything_fits_anywhere(problem):
    assert refining.first_price(problem, 1.0) == 0.0
    tight = tight_problem()
    price = refining.first_price(tight, 1.0)
    assert price == pytest.approx(tight.unit_count / tight.op_count / tight.unit_memory.sum())


def test_what_goes_with_a_price_is_said():
    with pytest.raises(OptionError, match="overfull is 'often'; choose never or priced"):
        Annealing(order="free", overfull="often")
    with pytest.raises(OptionError, match="overfull=priced goes with order=free; give both"):
        Annealing(overfull="priced")
    with pytest.raises(OptionError, match="start is 'heft'; choose region-moves or simple"):
        Annealing(order="free", start="heft")
    with pytest.raises(OptionError, match="start=simple goes with order=free; give both"):
        Annealing(start="simple")
    problem = make_problem("zoo:gpt2?layers=2", "2x3090", {"memory": "peak"})[0]
    with pytest.raises(OptionError, match="not for a peak; leave out overfull"):
        solve(problem, "annealing", planner_options={"order": "free", "overfull": "priced"})
