"""CP-SAT on whole graphs: optimal, bounded, repeatable, and how it stops."""

import math
import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError, OptionError
from placewright.formulations.latency.cp_frame import whole
from placewright.formulations.latency.cp_model import Effort, Model
from placewright.options import Options
from placewright.planners.latency.exact import cp_sat as cp_planner
from placewright.planners.latency.exact.cp_sat import CpSat, Lns
from placewright.planners.latency.exact.diviml import DivimlMilp
from placewright.planners.latency.exact.moirai import MoiraiMilp
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.planning import make_problem
from placewright.simulate.latency import time_placement
from placewright.solving import solve
from placewright.verify import verify
from tests.interrupting import interrupted_after
from tests.naive import shortest_makespan
from tests.planners.judging import judged
from tests.strategies import problems, tight, tiny

RESIDENT = st.builds(
    Options,
    transfer_unit=st.sampled_from(["tensor", "edge"]),
    contention=st.sampled_from(["none", "port", "link"]),
)
MODULE = "zoo:rwnn?modules=1&ops=10"


def is_optimal(problem):
    best = shortest_makespan(problem)
    assume(np.isfinite(best))  # the planner's refusal is tested below
    plan = solve(problem, CpSat())
    assert verify(plan).ok
    assert plan.value == pytest.approx(best, rel=1e-5, abs=1e-9)
    assert plan.value >= best * (1 - 1e-9)
    assert plan.lower_bound <= best * (1 + 1e-9)
    assert plan.status == "optimal"


@settings(max_examples=40)
@given(tiny(RESIDENT))
def test_it_finds_and_proves_the_shortest_makespan(problem):
    is_optimal(problem)


@settings(max_examples=15)
@given(tiny(RESIDENT), st.data())
def test_it_respects_pins_and_finds_the_optimum_with_them(problem, data):
    op = data.draw(st.integers(0, problem.op_count - 1))
    device = data.draw(st.integers(0, problem.device_count - 1))
    is_optimal(problem.with_pins({int(problem.op_unit[op]): device}))


@settings(max_examples=12)
@given(RESIDENT.flatmap(lambda chosen: tight(problems(8, 3, options=chosen))))
def test_it_agrees_with_the_mixed_integer_programs(problem):
    other = DivimlMilp() if problem.options.contention == "none" else MoiraiMilp()
    one = judged(problem, CpSat())
    if one is None:
        assert judged(problem, other) is None
        return
    two = solve(problem, other, time_limit=10)
    assert one.value <= two.value * (1 + 1e-5)
    assert two.lower_bound <= one.value * (1 + 1e-9)
    assert one.lower_bound <= two.value * (1 + 1e-9)


@settings(max_examples=15)
@given(tiny(st.just(Options(memory="peak", contention="port"))))
def test_under_peak_memory_its_bound_is_below_a_plan_that_the_judge_accepts(problem):
    try:
        plan = solve(problem, CpSat())
    except InfeasibleError:
        return
    assert verify(plan).ok
    assert plan.lower_bound <= plan.value


@settings(max_examples=20)
@given(
    RESIDENT.flatmap(lambda chosen: problems(10, 3, options=chosen)),
    st.sampled_from([0, 1, 2]),
    st.booleans(),
)
def test_the_incumbent_obeys_the_model_however_it_is_written(problem, level, is_linear):
    incumbent, _ = first_incumbent(problem, 0, None, Budget())
    assume(incumbent is not None and incumbent.value > 0)
    model = Model(whole(problem), incumbent.value, is_linear=is_linear)
    model.hint(incumbent.placement.device, incumbent.schedule.op_start)
    answer = model.solve(Effort(10.0, level=level))
    assert answer.complete and answer.values is not None
    assert answer.values.finish.max() <= incumbent.value * (1 + 1e-6)
    assert answer.bound <= incumbent.value


def test_a_horizon_below_the_optimum_leaves_nothing():
    problem, _ = make_problem(MODULE, "diviml", {"contention": "none"})
    best = solve(problem, CpSat())
    answer = Model(whole(problem), best.lower_bound * 0.99).solve(Effort(30.0))
    assert answer.complete and answer.values is None


def test_one_worker_and_units_give_the_same_plan_again():
    problem, _ = make_problem("zoo:rwnn?modules=1", "diviml", {"contention": "port"})
    planner = CpSat(workers="1", units="0.6")
    one, two = (planner.plan(problem, Budget(), 0, no_progress) for _ in range(2))
    assert (one.placement.device == two.placement.device).all()
    assert (one.placement.sequence == two.placement.sequence).all()
    assert one.lower_bound == two.lower_bound > 0


def test_without_time_the_first_plan_is_returned_and_nothing_proved():
    problem, _ = make_problem("zoo:rwnn?modules=1", "diviml")
    assert CpSat().plan(problem, Budget(0.0), 0, no_progress).lower_bound == 0.0
    assert solve(problem, CpSat(), time_limit=1e-6).value <= solve(problem, "heft").value


@pytest.mark.parametrize(
    ("planner", "seconds"),
    [(CpSat(), 2.0), (Lns(), 1.0), (Lns(iterations="100000"), 4.0), (Lns("100000", "1"), 4.0)],
)
def test_an_interrupt_ends_the_search_and_keeps_the_best(planner, seconds):
    problem, _ = make_problem("zoo:rwnn?modules=2", "diviml")
    Lns("8").plan(problem, Budget(), 0, no_progress)  # Ctrl-C may be lost while code is compiled
    started = time.monotonic()
    with interrupted_after(seconds):
        proposal = planner.plan(problem, Budget(40.0), 0, no_progress)
    assert time.monotonic() - started < 20.0
    found = time_placement(problem, proposal.placement).makespan
    assert proposal.lower_bound <= found <= solve(problem, "heft").value


def test_a_graph_too_large_is_refused_with_its_size(monkeypatch):
    monkeypatch.setattr(cp_planner, "MOST_LITERALS", 10)
    problem, _ = make_problem(MODULE, "diviml")
    with pytest.raises(OptionError, match=r"would have \d+ yes-or-no variables.*lns"):
        solve(problem, CpSat())


@pytest.mark.parametrize(
    ("planner", "options", "complaint"),
    [
        (CpSat, {"workers": "0"}, "workers is '0'; give a whole number above 0"),
        (CpSat, {"level": "3"}, "level is '3'; give 0, 1 or 2"),
        (CpSat, {"units": "-1"}, "units is '-1'; give a number above 0"),
        (CpSat, {"start": "nothing"}, "no planner 'nothing'"),
        (Lns, {"iterations": "many"}, "iterations is 'many'; give a whole number above 0"),
        (Lns, {"workers": "x"}, "workers is 'x'"),
        (Lns, {"units": str(math.inf)}, "units is 'inf'; give a number above 0"),
    ],
)
def test_a_wrong_option_is_refused(planner, options, complaint):
    with pytest.raises(OptionError, match=complaint):
        planner(**options)
