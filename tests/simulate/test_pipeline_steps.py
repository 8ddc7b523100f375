"""Steps of micro-batches: textbook schedules, and any row beside the judge."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.bounds import lower_bound
from placewright.errors import OptionError
from placewright.options import Options
from placewright.plan import Placement, Plan
from placewright.simulate import evaluate
from placewright.simulate.pipeline_steps import Hops, kept_bytes, step_seconds
from placewright.verify import verify
from tests.naive.steps import every_step
from tests.strategies.steps import step_problems


def no_hops(stages):
    return Hops(np.zeros(stages), np.zeros(stages))


@pytest.mark.parametrize("is_gpipe", [True, False])
def test_equal_stages_take_as_many_slots_as_micro_batches_and_stages_less_one(is_gpipe):
    """(M + S − 1)(F + B), Narayanan et al. 2021 §2.2.1, under either schedule."""
    passes = np.array([[1.0] * 4, [2.0] * 4])
    assert step_seconds(passes, no_hops(4), 8, is_gpipe=is_gpipe) == (8 + 4 - 1) * 3.0


def test_gpipe_waits_for_the_slowest_pass_each_way():
    """Σ F + Σ B + (M − 1)(max F + max B): on different stages."""
    passes = np.array([[1.0, 5.0, 2.0], [4.0, 1.0, 1.0]])
    assert step_seconds(passes, no_hops(3), 10, is_gpipe=True) == 14.0 + 9 * (5.0 + 4.0)


def test_an_earlier_stage_may_be_busier_under_1f1b():
    """It is busy from its first to its last pass: M of its own, and no other stage before."""
    passes = np.array([[1.2, 1.0, 1.0, 1.0], [1.2, 1.0, 1.0, 1.0]])
    assert step_seconds(passes, no_hops(4), 8, is_gpipe=False) < (8 - 1) * 2.4 + 8.4 - 1e-9


def test_a_transfer_is_on_the_way_once_though_both_ends_are_busy_with_it():
    passes = np.array([[1.5, 1.5], [0.0, 0.0]])
    between = Hops(np.array([0.5, 0.0]), np.zeros(2))
    assert step_seconds(passes, between, 1, is_gpipe=True) == 2.5


def as_plan(problem, placement):
    outcome = evaluate(problem, placement)
    return Plan(problem, placement, outcome, outcome.value, 0.0, "none", "by hand")


@given(step_problems(), st.data())
def test_the_judge_finds_the_same_step(made, data):
    rows = list(every_step(*made))
    if not rows:
        return
    value, placement = data.draw(st.sampled_from(rows))
    plan = as_plan(made[0], placement)
    report = verify(plan)
    assert report.ok, report.violations
    assert report.value == pytest.approx(value, rel=1e-12)
    assert report.device_memory == pytest.approx(plan.device_memory.tolist())
    assert plan.device_memory.tolist() == pytest.approx(kept_bytes(made[0], placement).tolist())


@given(step_problems(), st.data())
def test_the_bound_of_a_full_pipeline_bounds_steps_too(made, data):
    rows = list(every_step(*made))
    if rows:
        best = min(value for value, _ in rows)
        assert lower_bound(made[0]).value <= best * (1 + 1e-9)


@given(step_problems(), st.data())
def test_a_claim_about_a_step_that_is_not_so_is_found(made, data):
    rows = [each for each in every_step(*made) if each[0] > 0]
    if not rows:
        return
    _, placement = data.draw(st.sampled_from(rows))
    plan = as_plan(made[0], placement)
    step = plan.outcome.step
    wrong = data.draw(
        st.sampled_from([
            {"seconds": step.seconds * 1.01}, {"in_flight": step.in_flight + 1},
            {"idle": step.idle + 0.01},
        ])
    )  # fmt: skip
    outcome = replace(plan.outcome, step=replace(step, **wrong))
    assert not verify(replace(plan, outcome=outcome)).ok
    assert not verify(replace(plan, outcome=replace(plan.outcome, step=None))).ok
    assert not verify(replace(plan, placement=replace(placement, row=()))).ok
    assert not verify(replace(plan, placement=replace(placement, row=(*placement.row, 0)))).ok
    if len(placement.row) > 1:
        turned = replace(placement, row=placement.row[::-1])
        assert not verify(replace(plan, placement=turned)).ok


@given(step_problems(), st.data())
def test_what_is_in_flight_must_fit(made, data):
    rows = [each for each in every_step(*made) if kept_bytes(made[0], each[1]).any()]
    if not rows:
        return
    _, placement = data.draw(st.sampled_from(rows))
    kept = kept_bytes(made[0], placement)
    small = made[0].with_device_memory(kept * 0.99)
    assert any("needs" in each for each in verify(as_plan(small, placement)).violations)


@pytest.mark.parametrize(
    ("given_options", "words"),
    [
        ({"micro_batches": 0}, "micro-batches is '0'"),
        ({"micro_batches": 10**9}, "at most 10000"),
        ({"micro_batches": 4, "load": "overlap"}, "leave out option load"),
        ({"micro_batches": 4, "replicate": True}, "leave out option replicate"),
        ({"micro_batches": 4, "contiguous": False}, "leave out option contiguous"),
        ({"micro_batches": 4, "objective": "latency"}, "belongs to objective throughput"),
    ],
)
def test_options_that_steps_are_not_timed_with_are_refused(given_options, words):
    with pytest.raises(OptionError, match=words):
        Options(**{"objective": "throughput", **given_options})


def test_a_placement_without_a_row_is_refused():
    problem = Placement(np.zeros(1, dtype=np.int32))
    with pytest.raises(OptionError, match="row"):
        from tests.builders import chain

        evaluate(chain([1.0], [9.0, 9.0], objective="throughput", micro_batches=2), problem)
