"""What a moved op costs is what evaluating, and judging, the moved placement gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.options import Options
from placewright.plan import Placement, Plan
from placewright.simulate import evaluate
from placewright.solving import solve
from placewright.verify import verify
from placewright.whatif.explain.moved import Moving
from placewright.whatif.explain.named import Named
from placewright.whatif.explain.places import explain_place
from tests.builders import chain, small, throughput_chain
from tests.whatif.explain.plans import plans

RANDOM_OPS = {
    "latency": 80,
    "throughput": 50,
    "invocation-latency": 40,
    "batch-throughput": 30,
}
"""200 in all."""
SAYS = {
    "support": ("cannot run it", "a size that the device does not take"),
    "pin": ("is pinned to",),
    "colocation": ("must be together",),
    "memory": ("needs",),
    "contiguity": ("circle",),
    "replicas": ("not equally fast",),
}
"""What the judge says of each thing that forbids a move."""


def judged(plan, move):
    """The judge's report on the plan with the move made."""
    outcome = evaluate(plan.problem, move.placement)
    placement = replace(move.placement, sequence=None)
    return verify(replace(plan, placement=placement, outcome=outcome, value=outcome.value))


def check(plan, move):
    """That a move is what it says."""
    moving = Moving(plan)
    if move.placement is None:
        assert move.blocked in ("support", "contiguity")
        assert np.isinf(move.value)
        return
    there = {move.device} | {stage[0] for stage in plan.placement.replicas if move.device in stage}
    elsewhere = np.setdiff1d(np.arange(plan.problem.op_count), move.ops)
    assert set(np.unique(move.placement.device[move.ops]).tolist()) <= there
    assert (move.placement.device[elsewhere] == plan.placement.device[elsewhere]).all()
    problem = moving.freed if move.blocked in ("pin", "colocation", "memory") else plan.problem
    assert move.value == evaluate(problem, move.placement).value
    assert move.change == move.value - plan.value
    if not move.blocked:
        report = judged(plan, move)
        assert report.ok, report.violations
        assert report.value == pytest.approx(move.value, rel=1e-9)


@pytest.mark.parametrize("objective", RANDOM_OPS)
def test_what_a_moved_op_costs_is_what_evaluation_and_the_judge_say(objective):
    @settings(max_examples=RANDOM_OPS[objective])
    @given(data=st.data())
    def of_a_random_op(data):
        plan = data.draw(plans(objective))
        op = data.draw(st.integers(0, plan.problem.op_count - 1))
        found = explain_place(plan, Named("op", plan.problem.op_names[op], np.array([op])))
        for move in (*found.moves, *found.parted, *found.ties):
            check(plan, move)

    of_a_random_op()


@pytest.mark.parametrize("objective", RANDOM_OPS)
def test_what_is_forbidden_the_judge_refuses_for_the_same_reason(objective):
    @settings(max_examples=15)
    @given(data=st.data())
    def of_a_random_op(data):
        plan = data.draw(plans(objective))
        op = data.draw(st.integers(0, plan.problem.op_count - 1))
        device = data.draw(st.integers(0, plan.problem.device_count - 1))
        move = Moving(plan).move("op", np.array([op]), device)
        moved = (
            move.placement is not None and (move.placement.device != plan.placement.device).any()
        )
        if move.blocked and moved:
            violations = judged(plan, move).violations
            assert any(words in each for words in SAYS[move.blocked] for each in violations)

    of_a_random_op()


@given(plans("latency"), st.data())
def test_a_move_is_timed_in_the_better_of_two_orders(plan, data):
    op = data.draw(st.integers(0, plan.problem.op_count - 1))
    device = data.draw(st.integers(0, plan.problem.device_count - 1))
    ops = np.flatnonzero(plan.problem.op_unit == plan.problem.op_unit[op])
    move = Moving(plan).move("op", ops, device)
    if not move.blocked and plan.problem.options.memory == "resident":
        anew = evaluate(plan.problem, Placement(move.placement.device))
        assert move.value <= anew.value
        if (move.placement.device == plan.placement.device).all():
            assert move.value <= plan.value * (1 + 1e-12)


def test_memory_that_lacks_is_told_in_bytes():
    plan = solve(chain([6.0, 6.0], [6.0, 8.0], tensor_bytes=1.0), "heft")
    op = int(np.flatnonzero(plan.placement.device == 0)[0])
    move = Moving(plan).move("op", np.array([op]), 1)
    assert (move.blocked, move.short, move.full) == ("memory", 4.0, 1)
    assert move.value == 4.0  # both on y


def test_an_op_of_a_group_does_not_move_alone():
    plan = solve(small(), "heft")
    assert Moving(plan).move("b", np.array([1]), 1).blocked == "colocation"


def test_seconds_of_computing_and_of_transfers_are_told_apart():
    plan = solve(chain([1.0, 1.0], [10.0, 10.0], tensor_bytes=5.0), "heft")
    move = Moving(plan).move("o1", np.array([1]), 1)
    assert (move.value, move.computing, move.transferring) == (4.0, 1.0, 1.0)


def test_replicas_with_unequal_shares_share_anew_what_is_moved_to_them():
    options = Options("throughput", contiguous=False, replicate=True, shares="unequal")
    problem = throughput_chain(
        op_time=[[1, 3, 9], [1, 1, 9], [1, 3, 9], [1, 3, 9]],
        device_memory=[np.inf] * 3,
        options=options,
    )
    placement = Placement([0, 2, 0, 0], replicas=((0, 1),), replica_shares=((0.75, 0.25),))
    outcome = evaluate(problem, placement)
    plan = Plan(problem, placement, outcome, outcome.value, 0.0, "none", "by hand")
    move = Moving(plan).move("b", np.array([1]), 1)
    check(plan, move)
    assert judged(plan, move).violations == ()
    assert move.placement.replica_shares == (pytest.approx((10 / 14, 4 / 14)),)
    assert move.value == pytest.approx(4 * 10 / 14)
