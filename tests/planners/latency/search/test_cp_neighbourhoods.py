"""Neighbourhoods of a schedule: their models have the makespan of the whole for an objective."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.budget import Budget, no_progress
from placewright.formulations.latency.cp_model import Effort
from placewright.options import Options
from placewright.plan import Placement
from placewright.planners.latency.exact.cp_sat import Lns
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.planners.latency.search.neighbourhood import Neighbourhood
from placewright.planners.latency.search.neighbourhoods import KINDS, Kind, Search
from placewright.planners.latency.search.state import State
from placewright.planning import make_problem
from placewright.simulate.latency import time_placement
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import chain
from tests.naive import shortest_makespan
from tests.planners.judging import judged
from tests.strategies import placements, problems, sequences, tight

RESIDENT = st.builds(
    Options,
    transfer_unit=st.sampled_from(["tensor", "edge"]),
    contention=st.sampled_from(["none", "port", "link"]),
)
SEVERAL = {"contention": "port"}


@st.composite
def states(draw, max_ops=12, max_devices=3):
    """Any schedule, good or bad, of a problem without limits of memory."""
    limits = {"max_ops": max_ops, "max_devices": max_devices, "memory": False}
    problem = draw(RESIDENT.flatmap(lambda chosen: problems(options=chosen, **limits)))
    device = draw(placements(problem))
    if not np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all():
        device = np.zeros(problem.op_count, dtype=np.int32)
    state = State(problem, Placement(device, draw(sequences(problem))))
    assume(state.value > 0)
    return state


@st.composite
def neighbourhoods(draw, **limits):
    state = draw(states(**limits))
    count = state.problem.unit_count
    units = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=6, unique=True))
    free = np.zeros(count, dtype=bool)
    free[units] = True
    return Neighbourhood(state, free, reach=draw(st.integers(0, 3)))


def everything(state):
    return Neighbourhood(state, np.ones(state.problem.unit_count, dtype=bool))


@settings(max_examples=60)
@given(neighbourhoods())
def test_the_models_optimum_is_what_the_whole_schedule_then_takes(neighbourhood):
    state = neighbourhood.state
    assert neighbourhood.frame.floor <= state.value * (1 + 1e-9)
    # The last steps of a proof may take any time: what is not proved says nothing of the optimum.
    answer = neighbourhood.model(-1e-3).solve(Effort(30.0, level=2))
    assert answer.values is not None, "the present schedule is no solution"
    assert answer.bound <= state.value * (1 + 1e-6)
    found = neighbourhood.put_back(answer.values)
    assert found.value >= answer.bound - state.value * 1e-5
    assert found.value <= answer.bound + state.value * 1e-5 or not answer.complete


@settings(max_examples=30)
@given(neighbourhoods())
def test_what_is_not_free_stays_on_its_device_in_its_order(neighbourhood):
    better = neighbourhood.improved(Effort(10.0, level=0), gain=-0.2)
    assert better is not None
    kept = np.flatnonzero(~neighbourhood.free)
    assert (better.device[kept] == neighbourhood.state.device[kept]).all()
    # At one moment, ops that take no time may change places: schedules are sorted by time.
    kept = kept[better.problem.op_time[kept, better.device[kept]] > 0]
    for device in range(better.problem.device_count):
        rows = [
            [op for op in state.op_order.tolist() if state.device[op] == device and op in kept]
            for state in (neighbourhood.state, better)
        ]
        assert rows[0] == rows[1]


@settings(max_examples=25)
@given(neighbourhoods())
def test_a_better_schedule_is_better_by_the_simulators_count(neighbourhood):
    better = neighbourhood.improved(Effort(10.0, level=0))
    if better is None:
        return
    assert better.value < neighbourhood.state.value
    again = time_placement(better.problem, better.placement)
    assert again.makespan == better.value


@settings(max_examples=20)
@given(states(max_ops=5))
def test_a_neighbourhood_of_everything_is_solved_to_the_optimum(state):
    assume(state.problem.edge_count <= 7)
    best = shortest_makespan(state.problem)
    better = everything(state).improved(Effort(10.0, level=0), gain=1e-4) or state
    assert best * (1 - 1e-9) <= better.value <= best * (1 + 2e-4) + 1e-12


def test_where_hardly_a_byte_is_left_a_unit_has_no_room():
    full = np.nextafter(4.0, 5.0)
    problem = chain([4.0, 4.0], [full, np.inf], contention="none")
    state = State(problem, Placement([0, 1], [0, -1, 1]))
    there = Neighbourhood(state, np.array([False, True]), reach=0)
    assert 0 < there.frame.capacity[0] < 1e-12
    answer = there.model(-1e-3).solve(Effort(10.0, level=0))
    assert answer.values is not None
    assert there.put_back(answer.values).device.tolist() == [0, 1]


@settings(max_examples=25)
@given(states())
def test_heads_and_tails_add_up_to_the_makespan_on_a_critical_path(state):
    through = state.op_start + state.tails[0]
    assert (through <= state.value * (1 + 1e-9)).all()
    assert state.is_critical.any()
    assert through[state.is_critical] == pytest.approx(state.value)
    assert (state.tails[0] >= state.op_finish - state.op_start - 1e-9).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_neighbourhood_is_around_its_op_and_of_its_size(kind):
    problem, _ = make_problem("zoo:rwnn?modules=2", "diviml", SEVERAL)
    state = State(problem, first_incumbent(problem, 0, None, Budget())[0].placement)
    rng = np.random.default_rng(0)
    for op in np.flatnonzero(state.is_critical)[:10].tolist():
        ops = KINDS[kind](state, rng, op, 12)
        assert len(set(ops)) == len(ops) <= 12 + 12
        assert kind == "module" or op in ops


def test_neighbourhoods_grow_while_they_are_solved_and_have_more_effort_when_they_are_not():
    kind = Kind("stretch")
    size, units = kind.size, kind.units
    kind.learn(0.0, complete=True)
    assert kind.size > size and kind.units == units
    size = kind.size
    kind.learn(0.0, complete=False)
    assert kind.size < size and kind.units > units


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_number_of_neighbourhoods_gives_the_same_plan_again(workers):
    problem, _ = make_problem("zoo:rwnn?modules=2", "diviml", SEVERAL)
    first = State(problem, first_incumbent(problem, 0, None, Budget())[0].placement)
    one, two = (Search(first, 3, workers).run(Budget(), neighbourhoods=6) for _ in range(2))
    assert one.value == two.value <= first.value
    assert (one.device == two.device).all() and (one.sequence == two.sequence).all()


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("contention", ["none", "link"])
def test_it_improves_on_a_list_schedule(workers, contention):
    problem, _ = make_problem("zoo:rwnn?modules=1", "diviml", {"contention": contention})
    plan = solve(problem, Lns(iterations="12", workers=workers))
    assert verify(plan).ok
    assert plan.value < solve(problem, "heft").value


@settings(max_examples=15)
@given(RESIDENT.flatmap(lambda chosen: tight(problems(10, 3, options=chosen))))
def test_every_plan_is_accepted_by_the_judge_memory_included(problem):
    judged(problem, Lns(iterations="4"))


def test_it_stops_in_time():
    problem, _ = make_problem("zoo:rwnn", "diviml", {"contention": "none"})
    budget = Budget(3.0)
    proposal = Lns().plan(problem, budget, 0, no_progress)
    assert budget.left > -3.0
    assert proposal.placement.sequence is not None
