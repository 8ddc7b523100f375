"""The range of a plan's value follows from the spread of its costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placewright.plan import Placement
from placewright.planning import plan
from placewright.problem import COST_SPREADS, DATASHEET
from placewright.simulate import evaluate, invocation
from placewright.simulate.batch import expand
from placewright.simulate.latency import makespans, schedule_sequence, time_placement
from placewright.simulate.throughput import sampled_values
from placewright.whatif import ranges
from placewright.whatif.ranges import cost_spread, value_range
from tests.cli.running import run

OBJECTIVES = {
    "latency": {},
    "throughput": {},
    "invocation-latency": {},
    "batch-throughput": {"batch": 4},
}


def planned(objective="latency", spread=None, **options):
    found = plan(
        "zoo:gpt2?layers=2", "4x3090+cpu", planner="greedy" if not options else "auto",
        objective=objective, time_limit=2.0, **options,
    )  # fmt: skip
    if spread is None:
        return found
    shape = found.problem.op_time.shape
    problem = replace(found.problem, op_cost_spread=np.full(shape, spread))
    return replace(found, problem=problem)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_range_holds_the_value_for_every_objective(objective):
    found = planned(objective, **OBJECTIVES[objective])
    low, high = value_range(found)
    assert 0 < low < found.value < high


def test_exact_costs_have_no_range():
    found = planned(spread=0.0)
    assert value_range(found) == pytest.approx((found.value, found.value))


def test_a_wider_spread_is_a_wider_range():
    widths = [high - low for low, high in (value_range(planned(spread=s)) for s in (0.1, 0.3))]
    assert widths[1] > 2 * widths[0] > 0


def test_one_type_of_op_varies_as_one():
    """Errors of many ops of a type must not cancel: one factor, so the range is that of one op."""
    found = planned(spread=0.2)
    problem = replace(found.problem, op_types=("op",) * found.problem.op_count)
    single = replace(found, problem=problem)
    low, high = value_range(single)
    busy = found.value
    assert high / busy == pytest.approx(np.exp(1.645 * 0.2), rel=0.1)
    assert low / busy == pytest.approx(np.exp(-1.645 * 0.2), rel=0.1)


def test_where_nobody_says_there_is_no_range():
    found = planned()
    silent = replace(found, problem=replace(found.problem, op_cost_source=(), op_cost_spread=()))
    assert value_range(silent) is None
    assert (cost_spread(found.problem) == COST_SPREADS[DATASHEET]).all()


def test_sampled_makespans_are_those_of_the_problem_with_such_times():
    found = planned()
    problem, device = found.problem, found.placement.device
    placement = Placement(device, schedule_sequence(found))
    rng = np.random.default_rng(0)
    chosen = problem.op_time[np.arange(problem.op_count), device]
    samples = [chosen * rng.uniform(0.5, 2.0, problem.op_count) for _ in range(5)]
    expected = []
    for seconds in samples:
        op_time = np.array(problem.op_time)
        op_time[np.arange(problem.op_count), device] = seconds
        expected.append(time_placement(replace(problem, op_time=op_time), placement).value)
    assert makespans(problem, placement, samples).tolist() == expected


@pytest.mark.parametrize(
    "options",
    [{}, {"schedule": "gpipe"}, {"load": "overlap"}, {"replicate": True}],
    ids=["sum", "gpipe", "overlap", "replicas"],
)
def test_sampled_times_per_input_are_those_of_the_problem_with_such_times(options):
    found = plan(
        "zoo:gpt2?layers=2", "2x3090", planner="greedy", objective="throughput",
        training=True, **options,
    )  # fmt: skip
    problem, placement = found.problem, found.placement
    rng = np.random.default_rng(0)
    ops = np.arange(problem.op_count)
    chosen = problem.op_time[ops, placement.device]
    samples = [chosen * rng.uniform(0.5, 2.0, problem.op_count) for _ in range(5)]
    expected = []
    for seconds in samples:
        op_time = np.array(problem.op_time)
        op_time[ops, placement.device] = seconds
        expected.append(evaluate(replace(problem, op_time=op_time), placement).value)
    assert sampled_values(problem, placement, samples).tolist() == expected


@pytest.mark.parametrize("subgraphs", [1, 3])
def test_sampled_invocation_latencies_are_those_of_the_problem_with_such_times(subgraphs):
    found = plan(
        "zoo:gpt2?layers=2", "a100+2xt4+cpu", planner="linear-dp",
        objective="invocation-latency", subgraphs=subgraphs,
    )  # fmt: skip
    problem = found.problem
    ops, rng = np.arange(problem.op_count), np.random.default_rng(0)
    device = problem.topological_rank * problem.device_count // problem.op_count
    for placement in (found.placement, Placement(device)):  # the second in a row over all devices
        chosen = problem.op_time[ops, placement.device]
        samples = [chosen * rng.uniform(0.5, 2.0, problem.op_count) for _ in range(5)]
        expected = []
        for seconds in samples:
            op_time = np.array(problem.op_time)
            op_time[ops, placement.device] = seconds
            expected.append(evaluate(replace(problem, op_time=op_time), placement).value)
        assert invocation.sampled_values(problem, placement, samples).tolist() == expected


def test_samples_of_a_batch_keep_its_batches_and_their_order(monkeypatch):
    found, asked = planned("batch-throughput", batch=4), []

    def makespans_noted(problem, placement, samples):
        asked.append((problem.op_names, placement))
        return makespans(problem, placement, samples)

    monkeypatch.setattr(ranges, "makespans", makespans_noted)
    value_range(found)
    [(names, placement)] = asked
    expansion = expand(found.problem, found.placement.device)
    assert names == expansion.problem.op_names
    assert time_placement(expansion.problem, placement).value == found.value


def test_plans_say_their_range():
    result = run("plan", "zoo:gpt2?layers=2", "-c", "2x3090", "-p", "greedy", "--json")
    found = result.json["value_range"]
    assert 0 < found["p5"] < result.json["value"] < found["p95"]
    printed = run("plan", "zoo:gpt2?layers=2", "-c", "2x3090", "-p", "greedy", "--wide").out
    assert "(5-95%)" in printed
