"""Percentiles of the makespan when costs vary."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placewright.errors import InfeasibleError, OptionError, VerificationError
from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.outcome import Schedule, Transfers
from placewright.plan import Placement, Plan
from placewright.planners.latency.construct.list_scheduling import Greedy, Heft
from placewright.planning import plan
from placewright.simulate.latency import schedule_sequence, time_placement
from placewright.solving import solve
from placewright.whatif.robustness import (
    makespan_percentiles,
    sampled_makespans,
)
from placewright.whatif.samples import DISTRIBUTIONS
from tests import naive
from tests.strategies import problems


def alone(seconds: float = 2.0) -> Plan:
    """One op of `seconds`."""
    builder = GraphBuilder("one")
    builder.add_op("a", "op", flops=1.0)
    found = plan(builder.build(), "2x3090", planner="heft")
    problem = replace(found.problem, op_time=np.full((1, 2), seconds))
    return solve(problem, Heft())


@given(problems())
def test_without_noise_every_sample_is_the_value(problem):
    found = planned(problem)
    for distribution in DISTRIBUTIONS:
        values = sampled_makespans(found, 0.0, 3, 0, distribution)
        assert values == pytest.approx(found.value, rel=1e-12)


@given(problems())
def test_the_sequence_of_a_schedule_is_topological_and_times_no_later(problem):
    found = planned(problem)
    sequence = schedule_sequence(found)
    position = {int(item): k for k, item in enumerate(sequence)}
    assert len(position) == len(sequence) == problem.op_count + problem.edge_count
    for edge in range(problem.edge_count):
        assert position[int(problem.edge_producer[edge])] < position[-1 - edge]
        assert position[-1 - edge] < position[int(problem.consumers[edge])]
    again = time_placement(problem, Placement(found.placement.device, sequence))
    assert (again.op_finish <= found.schedule.op_finish + 1e-12).all()


@given(problems(max_ops=8), st.sampled_from(DISTRIBUTIONS), st.integers(0, 3))
def test_samples_are_those_of_the_naive_twin(problem, distribution, seed):
    found = planned(problem)
    expected = naive_samples(found, 0.3, 4, seed, distribution)
    assert sampled_makespans(found, 0.3, 4, seed, distribution) == pytest.approx(expected)


def naive_samples(found, noise, samples, seed, distribution):
    """Draw as documented, scale each op and each edge, and walk the sequence with dictionaries."""
    problem, device = found.problem, found.placement.device
    rng = np.random.default_rng(seed)
    sequence = schedule_sequence(found).tolist()
    values = []
    for _ in range(samples):
        count = problem.op_count + problem.edge_count
        if distribution == "uniform":
            factors = rng.uniform(1 - noise, 1 + noise, count)
        else:
            factors = np.exp(noise * rng.standard_normal(count))
        finish, arrived, free = {}, {}, {}
        for item in sequence:
            if item >= 0:
                start = free.get(("device", device[item]), 0.0)
                for e in naive.inputs_of(problem, item):
                    producer = problem.edge_producer[e]
                    local = device[producer] == device[item]
                    start = max(start, finish[producer] if local else arrived[key(found, e)])
                time = problem.op_time[item, device[item]] * factors[item]
                finish[item] = free["device", device[item]] = start + time
                continue
            e = -1 - item
            source, target = device[problem.edge_producer[e]], device[problem.consumers[e]]
            if source == target or key(found, e) in arrived:
                continue
            resources = naive.contended(problem, source, target)
            start = max(finish[problem.edge_producer[e]], *(free.get(r, 0.0) for r in resources),
                        0.0)  # fmt: skip
            seconds = naive.transfer_time(problem, problem.edge_tensor[e], source, target)
            arrived[key(found, e)] = start + seconds * factors[problem.op_count + e]
            free |= dict.fromkeys(resources, arrived[key(found, e)])
        values.append(max(finish.values()))
    return values


def key(found, edge):
    problem = found.problem
    if problem.options.transfer_unit == "edge":
        return edge
    return problem.edge_tensor[edge], found.placement.device[problem.consumers[edge]]


def planned(problem) -> Plan:
    try:
        return solve(problem, Greedy())
    except InfeasibleError:
        assume(False)
        raise


def test_one_op_has_the_percentiles_of_the_distribution():
    low, middle, high = makespan_percentiles(alone(), 0.5, 20_000, 0, "uniform")
    assert (low, middle, high) == pytest.approx((1.1, 2.0, 2.9), rel=0.02)
    low, middle, high = makespan_percentiles(alone(), 0.2, 20_000)
    z = 1.6448536
    assert (low, middle, high) == pytest.approx(
        (2 * math.exp(-0.2 * z), 2.0, 2 * math.exp(0.2 * z)), rel=0.02
    )


def test_equal_seeds_give_equal_percentiles_and_others_do_not():
    found = plan("zoo:gpt2?layers=2", "2x3090", planner="heft")
    assert makespan_percentiles(found, 0.1, 50, 3) == makespan_percentiles(found, 0.1, 50, 3)
    assert makespan_percentiles(found, 0.1, 50, 3) != makespan_percentiles(found, 0.1, 50, 4)


def test_more_noise_spreads_the_makespan():
    found = plan("zoo:gpt2?layers=2", "2x3090", planner="heft")
    narrow, wide = (makespan_percentiles(found, noise, 200) for noise in (0.05, 0.4))
    assert wide.p95 - wide.p5 > narrow.p95 - narrow.p5
    assert narrow.p5 < narrow.p50 < narrow.p95


def test_many_ops_that_all_must_finish_are_late_more_often_than_one():
    """Two plans of one value: a chain evens out, and the maximum of many does not."""
    wide = fan(8)
    together = [alone(), wide]
    assert together[0].value == together[1].value
    assert makespan_percentiles(wide, 0.2).p50 > makespan_percentiles(alone(), 0.2).p50


def fan(count: int) -> Plan:
    """`count` ops of two seconds, each on a device of its own."""
    builder = GraphBuilder("fan")
    for k in range(count):
        builder.add_op(f"op{k}", "op", flops=1.0)
    problem = plan(builder.build(), "8xA100", planner="heft").problem
    return solve(replace(problem, op_time=np.full((count, 8), 2.0)), Heft())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-0.1,), "noise is -0.1"),
        ((float("nan"),), "noise is nan"),
        ((4.0,), "noise is 4"),
        ((1.5, 10, 0, "uniform"), "from 0 to 1"),
        ((0.1, 0), "samples is 0"),
        ((0.1, 10, 0, "normal"), "distribution is 'normal'; choose lognormal, uniform"),
    ],
)
def test_impossible_noise_is_refused(arguments, message):
    with pytest.raises(OptionError, match=message):
        makespan_percentiles(alone(), *arguments)


def test_another_objective_is_refused():
    found = plan("zoo:gpt2?layers=1", "2x3090", planner="greedy", objective="throughput")
    with pytest.raises(OptionError, match="for objective latency, not for throughput"):
        makespan_percentiles(found, 0.1)


def test_a_schedule_that_is_off_by_rounding_keeps_its_order():
    found = sent()
    schedule = found.schedule
    early = Schedule(
        np.where(schedule.op_start > 0, schedule.op_start * (1 - 1e-12), 0.0),
        schedule.op_finish,
        schedule.transfers,
    )
    again = makespan_percentiles(replace(found, outcome=early), 0.0, 1)
    assert again.p50 == pytest.approx(found.value)


def test_a_plan_that_lacks_a_transfer_is_refused():
    found = sent()
    none = Transfers(*([[]] * 6))
    broken = Schedule(found.schedule.op_start, found.schedule.op_finish, none)
    with pytest.raises(VerificationError, match="lacks a transfer"):
        makespan_percentiles(replace(found, outcome=broken), 0.1)


def sent() -> Plan:
    """a on x, then b on y, then c on x."""
    builder = GraphBuilder("there and back")
    a = builder.add_op("a", "op", flops=1e12)
    b = builder.add_op("b", "op", inputs=[builder.add_tensor(a, 1e6)], flops=1e12)
    builder.add_op("c", "op", inputs=[builder.add_tensor(b, 1e6)], flops=1e12)
    pins = {"a": "gpu0", "b": "gpu1", "c": "gpu0"}
    found = plan(builder.build(), "2x3090", planner="heft", pinned=pins)
    assert found.problem.options == Options()
    return found
