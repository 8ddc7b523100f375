"""Where the times of a plan come from: shares of all its ops' seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placewright.objectives import OBJECTIVES
from placewright.planning import make_problem
from placewright.problem import COST_SOURCES, MEASURED
from placewright.report.costs import cost_shares, cost_words
from placewright.solving import solve


def planned(objective, **columns):
    options = {"objective": objective} | ({"batch": 4} if "batch" in objective else {})
    cluster = "tarnawski" if "invocation" in objective else "2x3090"
    problem, _ = make_problem("zoo:gpt2?layers=1", cluster, options)
    return solve(replace(problem, **columns), "single-device")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_zoo_model_rests_on_datasheets(objective):
    assert cost_shares(planned(objective)) == {"datasheet": pytest.approx(1.0)}
    assert cost_words(planned(objective)).startswith("costs 100% datasheet: ")


def test_shares_are_of_seconds_on_the_devices_of_the_plan():
    problem = planned("latency").problem
    source = np.zeros((problem.op_count, problem.device_count), dtype=np.int32)
    source[::2] = MEASURED
    plan = planned("latency", op_cost_source=source)
    seconds = plan.problem.op_time[np.arange(problem.op_count), plan.placement.device]
    shares = cost_shares(plan)
    assert shares[COST_SOURCES[MEASURED]] == pytest.approx(seconds[::2].sum() / seconds.sum())
    assert sum(shares.values()) == pytest.approx(1.0)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_a_problem_that_does_not_say_has_no_shares():
    assert cost_shares(planned("latency", op_cost_source=())) == {}
    assert cost_words(planned("latency", op_cost_source=())) == ""
