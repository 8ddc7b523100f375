"""The critical path of a schedule: each step begins when the one before it is done."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, reject

from placewright.analysis.waiting import Step, critical_path
from placewright.errors import InfeasibleError
from placewright.solving import solve
from tests.builders import chain
from tests.report.html.plans import plan_for
from tests.strategies import problems


def times(plan, step):
    schedule = plan.schedule
    if step.is_transfer:
        moves = schedule.transfers
        return float(moves.start[step.item]), float(moves.finish[step.item])
    return float(schedule.op_start[step.item]), float(schedule.op_finish[step.item])


def test_the_path_of_a_chain_is_the_chain():
    plan = solve(chain([1.0, 1.0, 1.0], [100.0, 100.0]), "heft")
    assert critical_path(plan) == [Step(False, op) for op in range(3)]


def test_the_path_goes_through_transfers():
    plan = solve(chain([8.0, 8.0], [8.0, 8.0], tensor_bytes=5.0), "heft")
    assert critical_path(plan) == [Step(False, 0), Step(True, 0), Step(False, 1)]


def test_the_path_of_a_model_leads_from_the_start_to_the_end_without_a_gap():
    plan = plan_for("latency")
    path = [times(plan, step) for step in critical_path(plan)]
    assert path[0][0] == 0.0
    assert path[-1][1] == plan.value
    for (_, finish), (start, _) in pairwise(path):
        assert start == pytest.approx(finish, abs=1e-9 * plan.value)


@given(problems())
def test_no_step_of_a_path_begins_before_the_one_before_it_is_done(problem):
    try:
        plan = solve(problem, "heft")
    except InfeasibleError:
        reject()
    path = [times(plan, step) for step in critical_path(plan)]
    assert path[-1][1] == plan.value
    for (_, finish), (start, _) in pairwise(path):
        assert start >= finish - 1e-9 * plan.value
