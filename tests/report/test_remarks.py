"""What is said of a plan besides its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

import placewright as pw
from placewright.plan import Placement
from placewright.planning import make_problem
from placewright.report.records import plan_record
from placewright.simulate import evaluate
from tests.builders import tied_row as row

COPIED = (
    "'lm_head' has a copy of weights that other ops hold too (73.6 MiB), so that these need not be "
    "on one device: that costs memory only"
)


def throughput(source: str, cluster: str = "8xA100", **options: object) -> pw.Plan:
    return pw.plan(source, cluster, planner="row-cuts", objective="throughput", **options)


def together(cluster: str = "8xA100", **options: object) -> pw.Plan:
    """Training GPT-2 with the tied ops on one device."""
    asked = {"objective": "throughput", **options}
    problem, _ = make_problem("zoo:gpt2", cluster, asked, training=True, together=True)
    return pw.solve(problem, "row-cuts")


def test_training_that_tied_weights_limit_has_a_remark_that_names_them_and_the_way_out():
    plan = together()
    (remark,) = pw.remarks(plan)
    assert remark.startswith("'embedding.tokens' and 'lm_head' are on one device (colocated, as ")
    assert remark.endswith("other ops there too; --no-contiguous lets these run elsewhere")
    assert plan_record(plan)["remarks"] == [remark]
    free = together(contiguous=False)
    assert free.value < plan.value / 4  # the way out is one
    assert pw.remarks(free) == []


def test_a_pipeline_with_copies_of_tied_weights_says_so():
    plan = throughput("zoo:gpt2")
    assert pw.remarks(plan) == [COPIED]
    (trained,) = pw.remarks(throughput("zoo:gpt2", training=True))
    assert "has a copy of weights" in trained
    assert trained.endswith("what they exchange in training is counted")
    alone = pw.plan("zoo:gpt2", "8xA100", planner="single-device", objective="throughput")
    assert pw.remarks(alone) == []


@pytest.mark.parametrize("source", ["zoo:bert-base", "zoo:llama-7b?layers=4", "zoo:resnet50"])
def test_a_model_without_ties_has_no_remark(source):
    plan = throughput(source)
    assert pw.remarks(plan) == []
    assert plan_record(plan)["remarks"] == []


def test_a_plan_for_another_objective_has_no_remark():
    assert pw.remarks(pw.plan("zoo:gpt2", "8xA100", planner="heft")) == []


def test_a_plan_that_a_tie_does_not_limit_has_no_remark():
    problem = row([0, -1, 0, -1, -1, -1, -1, -1])
    device = [0, 0, 0, 0, 1, 1, 1, 1]
    outcome = evaluate(problem, Placement(device))
    plan = pw.Plan(problem, Placement(device), outcome, outcome.value, 0.0, "", "test")
    assert pw.remarks(plan) == []


def test_a_tie_that_other_devices_could_not_help_with_has_no_remark():
    plan = together("2x3090")
    assert len(pw.remarks(plan)) == 1
    slow = replace(plan.problem, op_time=plan.problem.op_time * [1.0, 1e6])
    assert pw.remarks(pw.solve(slow, "row-cuts")) == []
