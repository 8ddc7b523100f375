"""What holds for every quick planner in the table, on random problems."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placewright import planners
from tests.planners.judging import judged, judged_twice
from tests.strategies import problems, tight

NAMES = [row.name for row in planners.planners_for("latency") if row.quick]


@pytest.mark.parametrize("name", NAMES)
@given(problem=problems() | tight(problems(8)))
def test_its_plan_passes_the_judge_or_nothing_fits(name, problem):
    judged(problem, name)


@pytest.mark.parametrize("name", NAMES)
@given(problem=problems(memory=False), data=st.data())
def test_it_respects_pins(name, problem, data):
    op = data.draw(st.integers(0, problem.op_count - 1))
    device = data.draw(st.integers(0, problem.device_count - 1))
    assume(np.isfinite(problem.unit_time[problem.op_unit[op], device]))
    plan = judged(problem.with_pins({int(problem.op_unit[op]): device}), name)
    assert plan is not None or name == "single-device"
    assert plan is None or plan.placement.device[op] == device


@pytest.mark.parametrize("name", NAMES)
@given(problem=problems() | tight(problems(8)), seed=st.integers(0, 3))
def test_it_gives_the_same_plan_again(name, problem, seed):
    judged_twice(problem, name, seed)
