"""What is small is decided: `auto` says of a handful of ops that its plan is optimal, and it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from placewright.errors import InfeasibleError
from placewright.plan import OPTIMAL_GAP
from placewright.planning import plan_problem
from placewright.problem import Problem
from placewright.verify import verify
from tests.naive import batch, invocation, latency, peak, throughput
from tests.strategies.batch import batch_problems
from tests.strategies.common import problems, short_of_peaks, tight
from tests.strategies.invocation import invocation_problems, tight_invocation_problems
from tests.strategies.throughput import pipelines, throughput_problems

FAMILIES = {
    "latency": problems(7, 3),
    "latency, tight memory": tight(problems(7, 3)),
    "latency, peaks": short_of_peaks(5, 3),
    "throughput": throughput_problems(7, 3),
    "throughput, with training": pipelines(7, 3),
    "throughput, with replicas": pipelines(6, 3, replicate=True),
    "throughput, with unequal replicas": pipelines(4, 3, replicate=True, shares="unequal"),
    "invocation latency": invocation_problems(7, 2),
    "invocation latency, tight memory": tight_invocation_problems(6),
    "batches": batch_problems(4, 2, 3),
}
EACH = 100  # a thousand in all
SECONDS = 5.0  # that the planner may take for one
PATIENCE = 120.0  # the same where others use the machine: a proof ends it


def optimum(problem: Problem) -> float:
    """Of brute force; it rejects what would take it too long."""
    options = problem.options
    unequal = options.shares == "unequal"
    search: dict[str, Callable[[Problem], Any]] = {
        "latency": (peak if options.memory == "peak" else latency).shortest_makespan,
        "throughput": lambda each: throughput.best_split(each, finely=unequal)[0],
        "invocation-latency": invocation.least_latency,
        "batch-throughput": batch.shortest_batch_time,
    }
    found = search[options.objective](problem)
    return float(found[0] if isinstance(found, tuple) else found)


def check(problem: Problem, seconds: float) -> None:
    least = optimum(problem)
    try:
        plan = plan_problem(problem, time_limit=seconds)
    except InfeasibleError as error:
        assert math.isinf(least), error
        return
    assert verify(plan).violations == ()
    assert plan.status == "optimal", f"{plan.value} ≥ {plan.lower_bound}, optimal is {least}"
    assert plan.lower_bound <= least * (1 + 1e-9)
    assert plan.value <= least * (1 + 2 * OPTIMAL_GAP)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_of_every_family_are_decided(family: str) -> None:
    search(FAMILIES[family], 4, PATIENCE)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_thousand_are_decided_in_seconds(family: str) -> None:
    search(FAMILIES[family], EACH, SECONDS)


def search(family: st.SearchStrategy[Problem], count: int, seconds: float) -> None:
    @settings(
        max_examples=count,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],  # to make one smaller would take minutes
        suppress_health_check=list(HealthCheck),
    )
    @given(family)
    def run(problem: Problem) -> None:
        check(problem, seconds)

    run()
