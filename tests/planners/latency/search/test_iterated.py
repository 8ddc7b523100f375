"""A long annealing is several short ones."""

import math

import numpy as np
import pytest

from placewright.budget import Budget, no_progress
from placewright.planners.latency.search import refining
from placewright.planners.latency.search.iterated import annealed
from placewright.planners.latency.search.refining import hot_for, makespan_per_op
from placewright.planning import make_problem
from placewright.simulate.latency import schedule_placement
from placewright.solving import solve
from placewright.verify import verify


@pytest.fixture(scope="module")
def problem():
    return make_problem("zoo:rwnn?modules=1&ops=12", "2x3090", {})[0]


@pytest.fixture
def begun(monkeypatch):
    """First temperature and evaluations of each annealing; none is begun, all report progress."""
    noted = []

    def note(refinement, hot, pace, reporter, on_progress, cooling=None):
        noted.append((hot, pace.limit))
        on_progress("annealing", 0.0)
        on_progress("annealing", 1.0)

    monkeypatch.setattr(refining.Refinement, "anneal", note)
    return noted


def run(problem, per_op, *, is_given, on_progress=no_progress, budget=None):
    """Annealed from everything on one device, for so many evaluations of each op."""
    start = schedule_placement(problem, np.zeros(problem.op_count, dtype=np.int32))
    limit = per_op * problem.op_count
    found, interrupted = annealed(
        problem, start, budget or Budget(), limit, 0, on_progress, is_given=is_given
    )
    assert not interrupted
    return start, found


def test_with_few_evaluations_it_is_one(problem, begun):
    start, _ = run(problem, 9_999, is_given=False)
    ((hot, limit),) = begun
    assert limit == 9_999 * problem.op_count
    assert hot == pytest.approx(hot_for(9_999) * makespan_per_op(problem, start))


def test_with_many_it_begins_three_times_and_goes_on_from_the_best_by_turns(problem, begun):
    start, _ = run(problem, 20_000, is_given=False)
    per_op = makespan_per_op(problem, start)
    hot, limits = (np.array(each) for each in zip(*begun, strict=True))
    assert hot[:3] == pytest.approx(np.array([1.0, 0.5, 0.25]) * hot_for(3_000) * per_op)
    turns = hot[3:] / (hot_for(1_000) * per_op)
    assert len(turns) == 11
    assert ((turns >= 1 / 40) & (turns <= 1.0)).all() and turns.min() < 0.2 < turns.max()
    assert limits[:3] == pytest.approx(3_000 * problem.op_count)
    assert limits.sum() == pytest.approx(20_000 * problem.op_count)


def test_from_a_plan_to_go_on_from_there_are_turns_alone(problem, begun):
    run(problem, 10_000, is_given=True)
    assert [limit for _, limit in begun] == pytest.approx([1_000 * problem.op_count] * 10)


def test_progress_is_that_of_all_together(problem, begun):
    told = []
    run(problem, 20_000, is_given=False, on_progress=lambda what, part: told.append(part))
    assert told == sorted(told)
    assert told[0] == 0.0 and told[-1] == pytest.approx(1.0)
    assert told[:4] == pytest.approx([0.0, 0.15, 0.15, 0.3])


def test_a_time_limit_is_shared_out_too(problem, monkeypatch):
    paces = []
    anneal = refining.Refinement.anneal

    def note(refinement, hot, pace, *rest):
        paces.append(pace.budget.seconds)
        anneal(refinement, hot, pace, *rest)

    monkeypatch.setattr(refining.Refinement, "anneal", note)
    start = schedule_placement(problem, np.zeros(problem.op_count, dtype=np.int32))
    budget = Budget(2.0)
    annealed(problem, start, budget, math.inf, 0, no_progress, is_given=False)
    probe, *starts = paces[:4]
    assert probe <= 0.1 and len(paces) > 8
    assert starts == pytest.approx([0.15 * (2.0 - probe)] * 3, rel=0.1)
    assert -0.5 < budget.left <= 0.01


def test_the_same_evaluations_give_the_same_plan_and_none_longer_than_the_start(problem):
    start, found = run(problem, 10_000, is_given=False)
    _, again = run(problem, 10_000, is_given=False, budget=Budget(600.0))
    assert (found.device == again.device).all() and (found.sequence == again.sequence).all()
    value = refining.time_placement(problem, found).makespan
    assert value <= refining.time_placement(problem, start).makespan


def test_the_planner_does_so(problem):
    options = {"order": "free", "iterations": str(12_000 * problem.op_count)}
    plan = solve(problem, "annealing", planner_options=options)
    assert verify(plan).violations == ()
