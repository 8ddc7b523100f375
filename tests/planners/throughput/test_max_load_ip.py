"""`max-load-ip`, the annealing behind it, and the bounds on throughput."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.analysis.contracted import unit_graph
from placewright.bounds import throughput as bounds
from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError, OptionError
from placewright.options import Options
from placewright.plan import Placement
from placewright.planners.throughput import max_load_ip as module
from placewright.planners.throughput import reporting
from placewright.planners.throughput.local_search import LocalSearch
from placewright.planners.throughput.max_load_ip import MaxLoadIp
from placewright.planners.throughput.multilevel import MultilevelAnnealing
from placewright.planners.throughput.one_set import (
    count_question,
    device_classes,
    one_set_bound,
    work_question,
)
from placewright.planning import make_problem
from placewright.simulate import evaluate
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import throughput_chain as chain
from tests.naive.max_load import least_max_load, placements_that_fit, stages_with_replicas
from tests.strategies.throughput import pipelines

TOLERANCE = 3e-5  # of the value: what whole numbers and solvers' tolerances may hide
SOON = 3  # a seed with which the search is at the optimum soon; the proof is quick then


def planned(problem, planner, seconds=20.0):
    """The planner's plan, or None where it says that there is none."""
    try:
        return solve(problem, planner, time_limit=seconds)
    except InfeasibleError:
        return None


def program_alone(monkeypatch):
    """Leave the planner its program: no plan to start from, no bounds, no search."""
    from placewright.planners.throughput import max_load_ip as home

    def nothing(*_):
        raise InfeasibleError("no start")

    monkeypatch.setattr(home, "first_plan", nothing)


@settings(max_examples=12)
@given(problem=pipelines(5, 3))
@pytest.mark.parametrize("solver", ["cp-sat", "highs"])
def test_the_program_alone_is_exact_under_every_option(solver, problem):
    with pytest.MonkeyPatch.context() as patch:
        program_alone(patch)
        plan = planned(problem, MaxLoadIp(solver=solver))
    best = least_max_load(problem)
    if plan is None:
        assert best == np.inf
        return
    assert plan.value == pytest.approx(best, rel=TOLERANCE, abs=1e-9)
    assert plan.lower_bound == pytest.approx(best, rel=TOLERANCE, abs=1e-9)
    assert plan.lower_bound <= best * (1 + 1e-12)


@settings(max_examples=12)
@given(problem=pipelines(5, 3))
@pytest.mark.parametrize("solver", ["cp-sat", "highs"])
def test_the_planner_is_exact_under_every_option(solver, problem):
    plan = planned(problem, MaxLoadIp(solver, steps=3000))
    best = least_max_load(problem)
    assert (plan is None) == (best == np.inf)
    if plan is not None:
        assert plan.value == pytest.approx(best, rel=TOLERANCE, abs=1e-9)
        assert plan.lower_bound <= best * (1 + 1e-12)
        assert verify(plan).ok


@settings(max_examples=12)
@given(pipelines(6, 3, contiguous=False, memory=False))
def test_annealing_finds_the_best_plan_of_a_small_problem(problem):
    plan = planned(problem, MultilevelAnnealing(steps=40_000))
    best = least_max_load(problem)
    assert (plan is None) == (best == np.inf)
    if plan is not None:
        assert plan.value <= best * 1.0001 + 1e-9


@given(pipelines(5, 3))
def test_no_quick_bound_is_above_the_best_plan(problem):
    best = least_max_load(problem)
    for bound in (bounds.work, bounds.even_share, bounds.single_unit, bounds.least_load):
        if np.isfinite(best):
            assert bound(problem).value <= best * (1 + 1e-9), bound.__name__


@given(pipelines(4, 3, replicate=True))
def test_no_quick_bound_is_above_the_best_plan_with_replicas(problem):
    values = [evaluate(problem, each).value for each in stages_with_replicas(problem)]
    for bound in (bounds.work, bounds.even_share, bounds.single_unit, bounds.least_load):
        if values:
            assert bound(problem).value <= min(values) * (1 + 1e-9), bound.__name__


@settings(max_examples=12)
@given(pipelines(6, 3, memory=False), st.sampled_from([1.0, 1.3]))
def test_no_bound_of_one_set_is_above_the_best_plan(problem, slack):
    best = least_max_load(problem)
    if not 0 < best < np.inf:
        return
    graph = unit_graph(problem)
    for members in device_classes(problem)[1]:
        questions = [work_question(graph, members)]
        counted = count_question(graph, members, best * slack)
        questions += [counted] if counted else []
        for question in questions:
            assert question.at_least <= best * (1 + 1e-9)
            assert one_set_bound(question, best * slack, Budget(5.0)) <= best * (1 + 1e-6)


def test_least_load_counts_the_transfers_that_no_set_avoids():
    """An op between two tensors too big to send: its neighbours are where it is."""
    problem = chain(
        tensor_bytes=[100, 100, 0], options=Options(objective="throughput"), device_memory=[9] * 3
    )
    assert bounds.least_load(problem).value == pytest.approx(3.0)  # a, b, c on one device
    assert bounds.single_unit(problem).value == pytest.approx(2.0)  # d


def test_replicas_and_rows_of_devices_are_refused_where_they_are_not_planned():
    problem = chain()
    with pytest.raises(OptionError, match="row"):
        solve(problem, MultilevelAnnealing())
    shared = replace(problem, options=Options(objective="throughput", replicate=True))
    with pytest.raises(OptionError, match="replicas"):
        solve(shared, MaxLoadIp())


@pytest.mark.parametrize("options", [{"solver": "cplex"}, {"steps": "0"}, {"steps": "many"}])
def test_a_wrong_option_is_said_to_be_wrong(options):
    with pytest.raises(OptionError, match=r"choose|whole number"):
        MaxLoadIp(**options)


def test_too_little_memory_is_said_to_be_proved():
    problem = chain(op_memory=[3, 3, 3, 1], device_memory=[4, 4, 2.5])
    with pytest.raises(InfeasibleError, match="proved"):
        solve(problem, MaxLoadIp(), time_limit=20)


def test_the_same_steps_and_seed_give_the_same_plan(workloads):
    problem = published(workloads, "layer_resnet50_inference")
    plans = [solve(problem, MultilevelAnnealing(steps=50_000), seed=3) for _ in range(2)]
    assert np.array_equal(*(plan.placement.device for plan in plans))


def published(workloads, name):
    path = workloads / "tarnawski" / "throughput" / f"{name}.json"
    return make_problem(path, None, {"objective": "throughput", "contiguous": False})[0]


@pytest.fixture(scope="module")
def compiled(workloads):
    """Compiling takes half a minute once; a minute of search is to be one."""
    solve(published(workloads, "op_bert_L-12_training"), MaxLoadIp(), time_limit=60)


@pytest.mark.parametrize(
    ("name", "milliseconds"),
    [
        ("op_bert_l-3_inference", 21.91),
        ("op_bert_l-3_training", 54.21),
        ("layer_bert24_inference", 17.71),
        ("layer_bert24_training", 39.79),
    ],
)
@pytest.mark.parametrize("seed", [SOON, *(pytest.param(k, marks=pytest.mark.slow) for k in (0, 1))])
def test_published_values_are_met_and_proved(workloads, name, milliseconds, seed):
    planner = MaxLoadIp(steps=1_000_000)
    plan = solve(published(workloads, name), planner, seed=seed, time_limit=60)
    assert plan.status == "optimal"
    assert plan.value * 1e3 <= milliseconds * 1.0005


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "milliseconds", "gap"),
    [
        ("op_bert_l-12_inference", 130.03, 0.16),
        ("op_resnet50_inference", 124.35, 1e-4),
        ("layer_resnet50_inference", 33.31, 0.006),
        ("layer_inceptionv3_inference", 51.52, 0.006),
        ("op_bert_L-12_training", 373.42, 0.116),
        ("op_resnet50_training", 255.19, 1e-4),
        ("layer_resnet50_training", 76.65, 0.006),
        ("layer_inceptionv3_training", 117.72, 0.006),
    ],
)
def test_published_values_are_met_in_a_minute(compiled, workloads, name, milliseconds, gap):
    plan = solve(published(workloads, name), MaxLoadIp(), time_limit=60)
    assert plan.value * 1e3 <= milliseconds * 1.0005
    assert plan.gap <= gap


class Ear:
    """A listener that keeps what it is told."""

    def __init__(self):
        self.plans, self.bounds = [], []

    def found(self, placement):
        self.plans.append(placement)

    def proved(self, lower_bound, source):
        self.bounds.append((lower_bound, source))


SEARCHES = [
    lambda: MaxLoadIp(steps=1000),
    lambda: MultilevelAnnealing(steps=1000),
    lambda: LocalSearch(iterations=50),
]


@settings(max_examples=15)
@given(problem=pipelines(5, 3, contiguous=False, memory=True), number=st.integers(0, 10**6))
@pytest.mark.parametrize("create", SEARCHES, ids=["max-load-ip", "annealing", "local-search"])
def test_no_search_returns_worse_than_its_start_and_what_it_tells_is_true(create, problem, number):
    fitting = list(placements_that_fit(problem))
    if not fitting:
        return
    start = Placement(fitting[number % len(fitting)])
    ear = Ear()
    budget = Budget(20.0, start, ear)
    proposal = create().plan(problem, budget, 0, no_progress)
    best = least_max_load(problem)
    value = evaluate(problem, proposal.placement).value
    assert value <= evaluate(problem, start).value * (1 + 1e-9)
    told = [evaluate(problem, each).value for each in ear.plans]
    assert told == sorted(told, reverse=True)
    assert all(value <= each * (1 + 1e-9) for each in told)
    units = [each.device for each in [*ear.plans, proposal.placement]]
    assert all(any(np.array_equal(one, other) for other in fitting) for one in units)
    assert all(bound <= best * (1 + 1e-9) for bound, source in ear.bounds if source)


def test_a_start_that_is_best_is_kept_when_there_is_no_time(workloads):
    problem = published(workloads, "layer_bert24_inference")
    best = solve(problem, MaxLoadIp(steps=1_000_000), seed=SOON, time_limit=30).placement
    value = evaluate(problem, best).value
    for planner in (MaxLoadIp(), MultilevelAnnealing(), LocalSearch()):
        proposal = planner.plan(problem, Budget(0.2, best), 1, no_progress)
        assert evaluate(problem, proposal.placement).value <= value


def test_a_start_that_does_not_fit_is_left_aside():
    problem = chain(op_memory=[3, 3, 3, 1], device_memory=[4, 6, 4])
    start = Placement(np.zeros(4, dtype=np.int32))
    for planner in (MaxLoadIp(steps=1000), MultilevelAnnealing(steps=1000), LocalSearch()):
        if planner.supports(problem) is None:
            placement = planner.plan(problem, Budget(20.0, start), 0, no_progress).placement
            assert (problem.free_memory(placement.device) >= 0).all()


def test_bounds_are_told_while_the_search_goes_on(workloads):
    problem = published(workloads, "layer_resnet50_training")
    ear = Ear()
    proposal = MaxLoadIp().plan(problem, Budget(4.0, None, ear), 0, no_progress)
    bounds_told = [bound for bound, _ in ear.bounds]
    assert bounds_told == sorted(bounds_told)
    assert 0.0 < bounds_told[0] <= proposal.lower_bound
    assert len(ear.plans) >= 2


def test_what_the_program_proves_at_first_is_not_told_where_more_is_known(monkeypatch):
    asked = []

    def solve_whole(*args, on_bound, **options):
        asked.append(1)
        on_bound(1e-6)
        return real(*args, on_bound=on_bound, **options)

    real = module.solve_whole
    monkeypatch.setattr(module, "solve_whole", solve_whole)
    monkeypatch.setattr(reporting, "SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(module._Attempt, "_is_proved", lambda self: False)
    ear = Ear()
    planner = MaxLoadIp(solver="cp-sat")
    planner.plan(chain(op_time=[[1.0, 2.0, 2.0]] * 4), Budget(20.0, None, ear), 0, no_progress)
    bounds_told = [bound for bound, _ in ear.bounds]
    assert asked and bounds_told and min(bounds_told) > 1.0
    assert bounds_told == sorted(bounds_told)


def test_planning_ends_when_time_is_up(workloads):
    problem = published(workloads, "layer_inceptionv3_training")
    MaxLoadIp().plan(problem, Budget(0.5), 0, no_progress)  # compiles
    started = time.monotonic()
    MaxLoadIp().plan(problem, Budget(2.0), 0, no_progress)
    assert time.monotonic() - started < 30.0  # half a second more on a machine that is free


def test_the_whole_planner_gives_the_same_plan_for_the_same_steps(workloads):
    problem = published(workloads, "layer_bert24_inference")
    plans = [solve(problem, MaxLoadIp(steps=1_000_000), seed=2, time_limit=60) for _ in range(2)]
    assert np.array_equal(*(plan.placement.device for plan in plans))
