"""The judge looks at what changes no value: a plan's status, and labels where none belong.

A plan of each objective that holds, with one word or number of its file changed.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from placewright.outcome import Loads
from placewright.plan import Placement, Plan
from placewright.verify import verify
from tests.builders import X, Y
from tests.builders import throughput_chain as chain
from tests.verify.test_batch import plan as batch_plan
from tests.verify.test_invocation import good_plan as invocation_plan
from tests.verify.test_latency import plan as latency_plan
from tests.verify.test_throughput import planned

PLANS = {
    "latency": latency_plan(),
    "throughput": replace(planned(chain(), Placement([X, X, Y, Y])), lower_bound=1.0),
    "invocation-latency": replace(invocation_plan(), lower_bound=1.0),
    "batch-throughput": batch_plan(),
}
objectives = pytest.mark.parametrize("objective", PLANS)


def from_file(plan: Plan, **changes: object) -> Plan:
    """The plan as its file, with some fields changed, has it."""
    return Plan.from_document(json.loads(json.dumps(plan.to_document())) | changes)


@objectives
def test_the_plans_hold(objective):
    assert verify(from_file(PLANS[objective])).violations == ()


# -- status --------------------------------------------------------------------------------------


@objectives
def test_a_file_that_says_optimal_of_a_wide_gap_is_wrong(objective):
    (said,) = verify(from_file(PLANS[objective], status="optimal")).violations
    assert said.startswith("the status is 'optimal', but with a gap of ")
    assert said.endswith("between value and lower bound a plan is 'feasible'")


@objectives
def test_a_file_that_says_feasible_of_no_gap_is_wrong(objective):
    plan = replace(PLANS[objective], lower_bound=PLANS[objective].value)
    assert verify(from_file(plan)).ok
    (said,) = verify(from_file(plan, status="feasible")).violations
    assert said.startswith("the status is 'feasible', but with a gap of 0.000% ")


@pytest.mark.parametrize(("gap", "right"), [(0.99e-4, "optimal"), (1.01e-4, "feasible")])
def test_a_plan_is_optimal_within_a_ten_thousandth(gap, right):
    value = PLANS["latency"].value
    for status in ("optimal", "feasible"):
        judged = from_file(PLANS["latency"], lower_bound=value * (1 - gap), status=status)
        assert verify(judged).ok == (status == right)


def test_a_plan_that_is_no_files_or_was_changed_since_states_no_status():
    plan = from_file(PLANS["latency"], status="optimal")
    assert (plan.stated_status, plan.status) == ("optimal", "feasible")
    assert PLANS["latency"].stated_status is None
    assert verify(replace(plan, lower_bound=plan.value)).ok


# -- what belongs to another objective -----------------------------------------------------------


@objectives
def test_replicas_are_for_throughput_only(objective):
    if objective == "throughput":
        return
    (said,) = verify(from_file(PLANS[objective], replicas=[[0, 1]])).violations
    assert said == f"the plan has replicas, which no plan for {objective} has"


@objectives
def test_subgraphs_are_for_invocation_latency_only(objective):
    if objective == "invocation-latency":
        return
    count = PLANS[objective].problem.op_count
    (said,) = verify(from_file(PLANS[objective], subgraph=[0] * count)).violations
    assert said == f"the plan has subgraphs, which no plan for {objective} has"


def test_loads_are_no_outcome_of_a_plan_for_latency():
    """Under its other options, a problem of latency can be worked out as a pipeline's too."""
    plan = PLANS["latency"]
    zeros = np.zeros((2, 3))
    zeros[0] = [4.0, 3.0, 0.0]
    outcome = Loads(zeros, np.zeros((2, 3)), np.zeros((2, 3)), np.zeros(3), zeros[0], 4.0)
    judged = verify(replace(plan, outcome=outcome, value=4.0, lower_bound=1.0))
    assert judged.violations == ("the outcome is Loads, which no plan for latency has",)
    assert math.isnan(judged.value)


# -- provenance ----------------------------------------------------------------------------------


@objectives
@pytest.mark.parametrize("seconds", [-1.0, math.inf])
def test_planning_takes_no_such_time(objective, seconds):
    (said,) = verify(replace(PLANS[objective], seconds=seconds)).violations
    assert said.startswith("planning is said to have taken ")


@objectives
@pytest.mark.parametrize("seconds", [0.0, 2.5, math.nan])
def test_planning_takes_any_other_time_or_nobody_knows(objective, seconds):
    assert verify(replace(PLANS[objective], seconds=seconds)).ok
