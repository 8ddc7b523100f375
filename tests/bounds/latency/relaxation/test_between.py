"""Bounds on a problem with ops on given devices: never above its shortest schedule."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.bounds.latency.relaxation.between import Between
from placewright.budget import Budget
from placewright.solving import solve
from tests.bounds.latency.relaxation.test_relaxation import chain_of_three, chains_of_modules
from tests.naive import shortest_makespan
from tests.strategies import problems


@settings(max_examples=60, deadline=None)
@given(st.one_of(problems(max_ops=6, max_devices=3), chains_of_modules()), st.data())
def test_no_schedule_with_the_ops_there_is_shorter(problem, data):
    """For one pair of ops after another, what was solved for the first kept for the next."""
    between = Between(problem)
    first, last = problem.topological_order[[0, -1]].tolist()
    devices = st.integers(0, problem.device_count - 1)
    for _ in range(3):
        pins = {first: data.draw(devices), last: data.draw(devices)}
        units = {int(problem.op_unit[op]): device for op, device in pins.items()}
        best = shortest_makespan(problem.with_pins(units))
        assert between.bound(pins, Budget(20.0)) <= best * (1 + 1e-9) + 1e-12


@settings(max_examples=20, deadline=None)
@given(problems(max_ops=6, max_devices=2))
def test_out_of_time_it_is_still_a_bound(problem):
    between = Between(problem)
    assert between.bound({}, Budget(0.0)) <= shortest_makespan(problem) * (1 + 1e-9) + 1e-12
    assert between.bound({}, Budget(20.0)) <= shortest_makespan(problem) * (1 + 1e-9) + 1e-12


def test_pinned_ends_show_what_is_left_between_them():
    """With its ends on different devices the chain pays a transfer, which the bound then has."""
    problem = chain_of_three()
    between = Between(problem)
    first, last = problem.topological_order[[0, -1]].tolist()
    here, there = (between.bound({first: 0, last: device}, Budget(20.0)) for device in (0, 1))
    for device, bound in ((0, here), (1, there)):
        units = {int(problem.op_unit[first]): 0, int(problem.op_unit[last]): device}
        optimum = solve(problem.with_pins(units), "cp-sat", time_limit=20.0).value
        assert bound == pytest.approx(optimum)
    assert there > here
