"""What holds for every quick planner in the table, on random problems."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright import planners
from placewright.errors import InfeasibleError
from placewright.solving import solve
from placewright.verify import verify
from tests.strategies import problems

NAMES = [row.name for row in planners.planners_for("latency") if row.quick]


@pytest.mark.parametrize("name", NAMES)
@given(problem=problems())
def test_its_plan_passes_the_judge_or_it_says_that_nothing_fits(name, problem):
    try:
        plan = solve(problem, name)
    except InfeasibleError as error:
        assert not np.isinf(problem.device_memory).all() or np.isinf(problem.op_time).any(), error
        return
    assert verify(plan).violations == ()
    assert plan.lower_bound <= plan.value


@pytest.mark.parametrize("name", NAMES)
@given(problem=problems(memory=False), data=st.data())
def test_it_respects_pins(name, problem, data):
    op = data.draw(st.integers(0, problem.op_count - 1))
    device = data.draw(st.integers(0, problem.device_count - 1))
    unit = problem.op_unit[op]
    pinned = problem.with_pins({int(unit): device})
    try:
        plan = solve(pinned, name)
    except InfeasibleError:
        assert np.isinf(problem.op_time).any() or name == "single-device"
        return
    assert plan.placement.device[op] == device


@pytest.mark.parametrize("name", NAMES)
@given(problem=problems(), seed=st.integers(0, 3))
def test_it_gives_the_same_plan_again(name, problem, seed):
    try:
        first, second = solve(problem, name, seed=seed), solve(problem, name, seed=seed)
    except InfeasibleError:
        return
    assert first.to_document() == second.to_document()
