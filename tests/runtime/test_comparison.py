"""What a run measured beside what its plan says, with steps made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placewright.errors import InputError, OptionError
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.runtime.results import RunReport, StepTime
from placewright.runtime.tuning.comparison import compare_run
from placewright.solving import solve
from tests.builders import small, throughput_chain
from tests.runtime.simulated import simulated_run

A, B, C, D = range(4)
X, Y = 0, 1


def two_devices(**changes: object) -> Problem:
    """a and d on x, b and c on y; a tensor of 8 bytes there, of 4 and 2 bytes back."""
    return small(op_pinned=[X, Y, Y, X], op_time=[[1, 9], [9, 4], [9, 6], [1, 9]], **changes)


@pytest.fixture
def plan() -> Plan:
    return solve(two_devices(), "heft")


def with_steps(plan: Plan, *steps: StepTime) -> RunReport:
    return replace(simulated_run(plan, plan.problem), passes=(steps,))


def test_a_run_that_takes_what_the_plan_says_is_like_it_in_everything(plan: Plan) -> None:
    found = compare_run(plan, simulated_run(plan, plan.problem))
    assert [each.ratio for each in found.ops] == [1.0] * 4
    assert [each.measured for each in found.transfers] == [
        pytest.approx(each.planned) for each in found.transfers
    ]
    assert [(each.producer, each.source, each.target) for each in found.transfers] == [
        (A, X, Y), (B, Y, X), (C, Y, X),
    ]  # fmt: skip
    assert [each.planned for each in found.devices] == [2.0, 10.0]
    assert [each.computing for each in found.devices] == [2.0, 10.0]
    assert found.clocked == found.measured == found.predicted == plan.value


def test_an_op_is_compared_with_its_step_on_the_rank_of_its_device(plan: Plan) -> None:
    on_x, on_y = StepTime(0, "op", "a", 0.0, 3.0), StepTime(1, "op", "a", 0.0, 50.0)
    first, *others = compare_run(plan, with_steps(plan, on_x, on_y)).ops
    assert (first.planned, first.measured, first.ratio, first.lost) == (1.0, 3.0, 3.0, 2.0)
    assert [(each.measured, each.ratio, each.lost) for each in others] == [(None, None, 0.0)] * 3


def test_a_transfer_lasts_from_its_send_to_the_end_of_the_wait_for_it(plan: Plan) -> None:
    send = StepTime(0, "send", "a", 1.0, 1.5, 1, 8)
    wait = StepTime(1, "wait", "a", 0.0, 21.0, 0, 8)
    found = compare_run(plan, with_steps(plan, send, wait))
    first = found.transfers[0]
    assert (first.planned, first.measured, first.bytes, first.awaited) == (8.5, 20.0, 8, True)
    assert (found.devices[X].sending, found.devices[Y].waiting) == (0.5, 21.0)
    late = compare_run(plan, with_steps(plan, send, replace(wait, start=20.0))).transfers[0]
    assert (late.measured, late.awaited) == (20.0, False)


def test_messages_of_one_op_are_told_apart_by_size_and_then_by_order(plan: Plan) -> None:
    sends = [StepTime(0, "send", "a", at, at, 1, size) for at, size in ((1, 8), (2, 4), (3, 8))]
    waits = [StepTime(1, "wait", "a", 0, at, 0, size) for at, size in ((5, 4), (6, 8), (7, 8))]
    found = compare_run(plan, with_steps(plan, *sends, *waits))
    assert [(each.bytes, each.seconds) for each in found.messages[0]] == [(8, 5), (4, 3), (8, 4)]
    whole = found.transfers[0]
    assert (whole.bytes, whole.measured, whole.planned) == (20, 6, 8.5)


def test_what_a_rank_does_between_its_ops_counts_as_computing(plan: Plan) -> None:
    steps = [StepTime(0, "op", "a", 0, 1), StepTime(0, "op", "view", 1, 2),
             StepTime(0, "update", "weight", 2, 4)]  # fmt: skip
    found = compare_run(plan, with_steps(plan, *steps))
    assert found.devices[X].computing == 4
    assert found.clocked == 4


def test_of_several_clocked_calls_everything_is_the_median(plan: Plan) -> None:
    once = simulated_run(plan, plan.problem)
    runs = [simulated_run(plan, replace(plan.problem, op_time=plan.problem.op_time * factor,
                                        link_latency=plan.problem.link_latency * factor,
                                        link_seconds_per_byte=plan.problem.link_seconds_per_byte
                                        * factor)).steps for factor in (1, 5, 2)]  # fmt: skip
    found = compare_run(plan, replace(once, passes=tuple(runs)))
    assert found.ops[A].samples == (1, 5, 2)
    assert [each.ratio for each in found.ops] == [2.0] * 4
    assert [each.ratio for each in found.transfers] == pytest.approx([2.0] * 3)
    assert [each.computing for each in found.devices] == [4.0, 20.0]
    assert (found.measured, found.clocked) == (plan.value, pytest.approx(2 * plan.value))


def test_a_transfer_that_the_run_makes_and_the_plan_does_not_has_no_planned_time() -> None:
    problem = replace(two_devices(), tensor_bytes=np.array([8.0, 4.0, 2.0]))
    made = solve(problem, "heft")
    back = StepTime(0, "send", "d", 1, 1, 1, 2), StepTime(1, "wait", "d", 0, 2, 0, 2)
    found = compare_run(made, with_steps(made, *back)).transfers
    assert [(t.producer, t.planned is None, t.measured) for t in found] == [
        (A, False, None), (B, False, None), (C, False, None), (D, True, 1),
    ]  # fmt: skip


def test_a_report_that_does_not_belong_to_the_plan_is_refused(plan: Plan) -> None:
    report = simulated_run(plan, plan.problem)
    with pytest.raises(InputError, match="no times of its steps; run the plan again"):
        compare_run(plan, replace(report, passes=()))
    with pytest.raises(InputError, match="the run has device 'z', which the plan lacks"):
        compare_run(plan, replace(report, devices=("x", "z")))
    with pytest.raises(InputError, match="the run has 3 ranks"):
        compare_run(plan, replace(report, ranks=3))
    pipeline = solve(throughput_chain(), "linear-dp")
    with pytest.raises(OptionError, match="for throughput, and only plans for latency"):
        compare_run(pipeline, report)
