"""Plans that are good when costs are not what was estimated."""

from __future__ import annotations

import itertools
import math
import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.errors import OptionError, VerificationError
from placewright.graph import GraphBuilder
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency import robust as kernel
from placewright.kernels.latency.search import keep
from placewright.options import Options
from placewright.plan import Placement, Plan
from placewright.planners.latency.construct.list_scheduling import Heft
from placewright.planning import make_problem, plan
from placewright.simulate import evaluate
from placewright.simulate.latency import schedule_sequence
from placewright.simulate.peak import peak_memory
from placewright.solving import solve
from placewright.verify import verify
from placewright.whatif import robust_search
from placewright.whatif.given import Given
from placewright.whatif.robust import SUFFIX, robust_plan
from placewright.whatif.robustness import makespan_percentiles
from placewright.whatif.samples import Costs, in_lanes, scratch_of
from tests.interrupting import no_interrupt_lost
from tests.naive import robust as naive_robust
from tests.strategies import placements, problems, sequences
from tests.whatif.test_robustness import planned


def samples_of(problem, factors, share) -> kernel.Samples:
    lanes = in_lanes(factors, problem.op_count)
    return kernel.Samples(*lanes, size=len(factors), rank=share * (len(factors) - 1))


# -- kernels ---------------------------------------------------------------------------------


@given(st.data())
def test_a_block_times_each_sample_as_its_naive_twin(data):
    problem = data.draw(problems(max_ops=8))
    device, sequence = data.draw(placements(problem)), data.draw(sequences(problem))
    assume(np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all())
    costs = Costs(problem, 0.4, "lognormal", data.draw(st.integers(0, 3)))
    factors = costs.factors(costs.rng(), kernel.LANES + 3)
    found = costs.makespans(device, sequence, kernel.LANES + 3, costs.rng())
    expected = [naive_robust.makespan(problem, device, sequence, row) for row in factors]
    assert found == pytest.approx(expected, rel=1e-12)


@given(st.data())
def test_racing_comes_to_the_percentile_or_to_infinity_above_the_limit(data):
    problem = data.draw(problems(max_ops=8))
    device, sequence = data.draw(placements(problem)), data.draw(sequences(problem))
    assume(np.isfinite(problem.op_time[np.arange(problem.op_count), device]).all())
    costs = Costs(problem, 0.4, "lognormal", 1)
    factors = costs.factors(costs.rng(), data.draw(st.integers(1, 3 * kernel.LANES)))
    share = data.draw(st.sampled_from([0.0, 0.5, 0.95, 1.0]))
    samples = samples_of(problem, factors, share)
    scratch = scratch_of(problem, len(samples.op_factor))

    def within(limit):
        return kernel.percentile_within(
            arrays_of(problem), samples, device.copy(), sequence.copy(), scratch, limit
        )

    value = naive_robust.percentile_within(problem, device, sequence, factors, share, math.inf)
    assert within(math.inf) == pytest.approx(value, rel=1e-12)
    for limit in (0.999 * value, 1.001 * value, 0.5 * value, 2.0 * value):
        expected = value if value <= limit else math.inf
        assert within(limit) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=25)
@given(problems(max_ops=8), st.integers(0, 5))
def test_annealing_takes_the_steps_of_its_naive_twin(problem, seed):
    start = planned(problem)
    sequence = schedule_sequence(start)
    costs = Costs(problem, 0.3, "lognormal", seed)
    factors = costs.factors(costs.rng(), 5)
    twin = naive_robust.Annealer(
        problem, start.placement.device, sequence, factors, 0.8, np.random.default_rng(seed)
    )
    placement = Placement(start.placement.device, sequence)
    search = robust_search.RobustSearch(costs, placement, robust_search.Budget(), 1)
    state = robust_search._state(problem, placement)
    samples = samples_of(problem, factors, 0.8)
    keep(state, search._percentile(samples, state))
    rng = np.random.default_rng(seed)
    temperature = 0.5
    for count in (7, 13):
        temperature = kernel.anneal(
            search.arrays, search.space, samples, state, search.scratch, rng, count,
            temperature, 0.9,
        )  # fmt: skip
    expected = twin.anneal(20, 0.5, 0.9)
    assert temperature == pytest.approx(expected)
    assert state.sequence.tolist() == twin.items
    assert state.unit_device.tolist() == twin.at
    assert state.value == pytest.approx([twin.value, twin.best[0]], rel=1e-9)
    assert state.best_unit_device.tolist() == twin.best[1]
    assert state.best_sequence.tolist() == twin.best[2]
    assert [state.position[k] for k in range(problem.op_count)] == [
        twin.items.index(op) for op in range(problem.op_count)
    ]


# -- plans -----------------------------------------------------------------------------------


@settings(max_examples=20)
@given(problems(max_ops=8), st.sampled_from(["lognormal", "uniform"]))
def test_its_plan_holds_and_is_never_later_than_the_start(problem, distribution):
    start = planned(problem)
    found = robust_plan(start, 0.3, distribution=distribution, iterations=200, samples=200, seed=1)
    assert verify(found.plan).violations == ()
    assert found.plan.problem is problem
    assert found.plan.lower_bound == start.lower_bound <= found.plan.value
    assert found.after.p95 <= found.before.p95
    assert found.improved == (found.plan is not start)
    for each, of in ((found.before, start), (found.after, found.plan)):
        assert each == makespan_percentiles(of, 0.3, 200, 1, distribution)


def fragile() -> Plan:
    """Ten ops at once on ten quick devices, or one after another on a device almost as good.

    Each of the ten takes 10 s on a device of its own, and then half a second goes into joining
    them: a join is as late as the last of ten. On `steady` each takes 1.04 s and the join 0.5 s.
    """
    count = 10
    builder = GraphBuilder("fragile")
    tensors = [
        builder.add_tensor(builder.add_op(f"part{k}", "op", flops=1.0), 0.0) for k in range(count)
    ]
    builder.add_op("join", "op", inputs=tensors, flops=1.0)
    problem = plan(builder.build(), "8xA100", planner="heft").problem
    devices = count + 1
    times = np.full((count + 1, devices), 100.0)
    times[np.arange(count), np.arange(count)] = 10.0
    times[:count, count] = 1.04
    times[count, :] = 0.5
    nothing = np.zeros((devices, devices))
    problem = replace(
        problem,
        op_time=times,
        device_names=(*(f"quick{k}" for k in range(count)), "steady"),
        device_kinds=("kind",) * devices,
        device_memory=np.full(devices, np.inf),
        link_latency=nothing,
        link_seconds_per_byte=nothing,
        channel_offsets=np.zeros(devices * devices + 1),
        channels=np.zeros(0),
        is_cpu=np.zeros(devices),
        op_cost_source=(),
        host_latency=np.zeros((2, devices)),
        host_seconds_per_byte=np.zeros((2, devices)),
        options=Options(contention="none"),
    )
    spread = Placement(np.append(np.arange(count), 0))
    return solve(problem, Given(spread))


def test_the_best_plan_is_fragile_and_another_is_better_at_the_95th_percentile():
    """Of independent lognormal factors the largest of ten is 1.75 late at the 95th percentile.

    P(all ten ≤ x) = 0.95 at z = 2.568, so that the spread plan's ten take 10·exp(0.2 · 2.568) =
    16.7 s; the sum of ten on `steady` has standard deviation 0.2·1.04·√10 ≈ 0.67 around 10.6.
    """
    start = fragile()
    assert start.value == pytest.approx(10.5)
    found = robust_plan(start, 0.2, iterations=4000)
    assert found.plan.value == pytest.approx(10.9)
    assert set(found.plan.device_of().values()) == {"steady"}
    assert found.before.p95 == pytest.approx(10 * math.exp(0.2 * 2.568) + 0.5, rel=0.02)
    assert found.after.p95 == pytest.approx(10.6 + 0.5 + 1.645 * 0.69, rel=0.02)


def test_without_noise_only_the_makespan_counts():
    start = fragile()
    found = robust_plan(start, 0.0, iterations=500)
    assert not found.improved
    assert found.plan is start


def test_on_a_few_ops_it_finds_the_least_percentile_of_all_placements():
    builder = GraphBuilder("diamond")
    a = builder.add_op("a", "op", flops=3e12)
    left, right = (builder.add_tensor(a, 2e7) for _ in range(2))
    b = builder.add_op("b", "op", inputs=[left], flops=9e12)
    c = builder.add_op("c", "op", inputs=[right], flops=8e12)
    ends = [builder.add_tensor(op, 2e7) for op in (b, c)]
    builder.add_op("d", "op", inputs=ends, flops=2e12)
    problem, _ = make_problem(builder.build(), "4090+3060")
    together = solve(problem, Given(Placement(np.ones(4))))
    found = robust_plan(together, 0.3, iterations=3000)
    least = min(
        makespan_percentiles(solve(problem, Given(Placement(np.array(device)))), 0.3).p95
        for device in itertools.product(range(2), repeat=4)
    )
    assert found.after.p95 <= least * (1 + 1e-9)


@pytest.mark.parametrize("contention", ["none", "port", "link"])
@pytest.mark.parametrize("transfer_unit", ["tensor", "edge"])
def test_it_improves_a_plan_that_is_not_good(contention, transfer_unit):
    start = plan(
        "zoo:rwnn?modules=1&ops=10",
        "4090+3060",
        planner="m-topo",
        contention=contention,
        transfer_unit=transfer_unit,
    )
    found = robust_plan(start, 0.2, iterations=1000)
    assert found.after.p95 < found.before.p95
    assert found.plan.planner == "m-topo" + SUFFIX
    again = robust_plan(found.plan, 0.2, iterations=100)
    assert again.plan.planner == "m-topo" + SUFFIX


def test_pins_stay():
    start = plan("zoo:gpt2?layers=2", "2x3090", planner="m-topo", pinned={first_op(): "gpu1"})
    found = robust_plan(start, 0.2, iterations=2000)
    assert found.improved
    assert found.plan.device_of()[first_op()] == "gpu1"


def first_op() -> str:
    problem, _ = make_problem("zoo:gpt2?layers=2", "2x3090")
    return problem.op_names[0]


def test_memory_is_respected():
    """All on one device would be best, and does not fit."""
    problem, _ = make_problem("zoo:gpt2?layers=2", "2x3090")
    most = 0.85 * float(problem.op_memory.sum())
    problem = replace(problem, device_memory=np.full(2, most))
    found = robust_plan(solve(problem, "m-topo"), 0.2, iterations=4000)
    assert found.improved
    assert (found.plan.device_memory <= most).all()
    assert verify(found.plan).violations == ()


def test_peak_memory_is_respected_where_what_is_best_overflows(monkeypatch):
    problem, _ = make_problem("zoo:rwnn?modules=3&ops=12", "4090+3060", {"memory": "peak"})
    start = solve(problem, "m-topo")
    most = peak_memory(problem, start.placement, start.schedule) * [1.0, 3.0]
    tight = replace(problem, device_memory=most)
    overflows = robust_search.RobustSearch.overflows
    said = []

    def noted(search, placement):
        said.append(overflows(search, placement))
        return said[-1]

    monkeypatch.setattr(robust_search.RobustSearch, "overflows", noted)
    found = robust_plan(replace(start, problem=tight), 0.2, iterations=5000)
    assert set(said) == {False, True}
    assert found.improved
    assert verify(found.plan).violations == ()
    assert (peak_memory(tight, found.plan.placement, found.plan.schedule) <= most).all()


def test_the_same_seed_gives_the_same_plan_and_another_need_not():
    start = plan("zoo:rwnn?modules=1&ops=10", "4090+3060", planner="m-topo")
    one, two, other = (robust_plan(start, 0.2, seed=s, iterations=300) for s in (0, 0, 1))
    assert one.plan.to_document() == two.plan.to_document()
    assert one.after == two.after
    assert one.before != other.before


@pytest.mark.parametrize("memory", ["resident", "peak"])
def test_how_often_it_looks_at_the_clock_changes_nothing(monkeypatch, memory):
    start = plan("zoo:rwnn?modules=1&ops=10", "4090+3060", planner="m-topo", memory=memory)
    one = robust_plan(start, 0.2, iterations=300)
    monkeypatch.setattr("placewright.budget.FIRST_CHUNK", 1)
    monkeypatch.setattr("placewright.budget.CHUNK_SECONDS", 0.0)
    two = robust_plan(start, 0.2, iterations=300)
    assert one.plan.to_document() == two.plan.to_document()


def test_it_stops_in_time():
    start = plan("zoo:gpt2", "4090+3060", planner="m-topo")
    robust_plan(start, 0.2, iterations=8)  # compiles
    began = time.perf_counter()
    found = robust_plan(start, 0.2, time_limit=1.0)
    assert time.perf_counter() - began < 30.0  # on a loaded machine, where little is found
    assert verify(found.plan).violations == ()


def test_an_interrupt_ends_the_search_with_what_it_found():
    start = plan("zoo:rwnn?modules=1&ops=10", "4090+3060", planner="m-topo")
    robust_plan(start, 0.2, iterations=8)  # compiles
    heard = []

    def interrupt_after_a_while(what, done):
        heard.append(done)
        if len(heard) == 40:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()

    with no_interrupt_lost():
        found = robust_plan(start, 0.2, time_limit=60.0, on_progress=interrupt_after_a_while)
    assert heard[-1] < 0.9
    assert found.improved
    assert verify(found.plan).violations == ()


def test_progress_rises_from_round_to_round():
    start = plan("zoo:rwnn?modules=1&ops=10", "4090+3060", planner="m-topo")
    heard = []
    robust_plan(start, 0.2, iterations=200, on_progress=lambda what, done: heard.append(done))
    assert heard == sorted(heard)
    assert heard[0] == 0.0
    assert heard[-1] < 1.0


def test_a_large_graph_gets_fewer_samples():
    problem, _ = make_problem("zoo:gpt2?layers=2", "2x3090")
    start = solve(problem, Heft())
    placement = Placement(start.placement.device, schedule_sequence(start))
    costs = Costs(problem, 0.1, "lognormal", 0)
    costs.items = 1_000_000
    search = robust_search.RobustSearch(costs, placement, robust_search.Budget(), 1)
    assert search.samples == robust_search.LEAST_BLOCKS * kernel.LANES


def test_what_cannot_be_is_refused():
    start = plan("zoo:gpt2?layers=1", "2x3090", planner="heft")
    with pytest.raises(OptionError, match="noise is -1"):
        robust_plan(start, -1.0)
    with pytest.raises(OptionError, match="iterations is 0; give a whole number above 0"):
        robust_plan(start, 0.1, iterations=0)
    with pytest.raises(VerificationError):
        robust_plan(replace(start, value=start.value / 2), 0.1)
    other = plan("zoo:gpt2?layers=1", "2x3090", planner="greedy", objective="throughput")
    with pytest.raises(OptionError, match="for objective latency, not for throughput"):
        robust_plan(other, 0.1)


@settings(max_examples=20)
@given(problems(max_ops=6, memory=False))
def test_the_order_found_is_the_order_of_its_schedule(problem):
    """Percentiles are those of the order of the schedule, which a plan file keeps."""
    start = planned(problem)
    found = robust_plan(start, 0.2, iterations=100, samples=50)
    again = evaluate(problem, Placement(found.plan.placement.device, schedule_sequence(found.plan)))
    assert again.value == pytest.approx(found.plan.value)
