"""What a sweep carries on: no line is worse than the plan of a neighbour in its place."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.costs.clusters import load_cluster
from placewright.graph import GraphBuilder
from placewright.plan import Placement, Plan
from placewright.planners.base import Proposal
from placewright.planning import make_problem, plan
from placewright.problem import LONG_ROUNDING
from placewright.serving.mix import Mix
from placewright.simulate.batch import batch_sequence, run_batches
from placewright.verify import verify
from placewright.whatif import sweep as module
from placewright.whatif.neighbours import carried_over, neighbours
from placewright.whatif.sweep import sweep
from placewright.whatif.sweep_lines import SweepLine, compared, with_certainty
from placewright.whatif.variants import (
    Variant,
    parse_bandwidths,
    parse_batches,
    parse_count,
    variants,
)

STAR = Cluster(
    "star",
    (
        Device("a", "A100 40GB"),
        Device("t0", "T4"),
        Device("t1", "T4"),
        Device("cpu", "EPYC 7763", memory=64e9),
    ),
    tuple(Link(name, "cpu", 8e9, 1e-5) for name in ("a", "t0", "t1")),
)


@st.composite
def graphs(draw):
    """Up to nine ops of very different work, with tensors of very different sizes."""
    builder = GraphBuilder("drawn")
    tensors = []
    for op in range(draw(st.integers(2, 9))):
        chosen = (
            draw(st.lists(st.sampled_from(tensors), max_size=2, unique=True)) if tensors else []
        )
        made = builder.add_op(
            f"op{op}", "op", inputs=chosen, flops=draw(st.sampled_from([1e9, 3e10, 5e11])),
            parameter_bytes=draw(st.sampled_from([0.0, 1e6, 4e8])),
        )  # fmt: skip
        tensors.append(builder.add_tensor(made, draw(st.sampled_from([1e3, 1e6, 3e7]))))
    return builder.build()


QUICK = st.sampled_from([
    ("latency", "greedy", {}), ("latency", "m-etf", {}), ("latency", "m-topo", {}),
    ("throughput", "local-search", {"contiguous": False}), ("throughput", "row-cuts", {}),
    ("throughput", "greedy", {}), ("throughput", "linear-dp", {"replicate": True}),
    ("batch-throughput", "greedy", {"batch": 3}),
    ("batch-throughput", "greedy", {"batch": 2, "transfer_unit": "edge"}),
    ("batch-throughput", "greedy", {"batch": 3, "contention": "none"}),
])  # fmt: skip


def never_worse(lines):
    return all(
        after.score >= before.score - 1e-9 * abs(before.score) for before, after in pairwise(lines)
    )


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), QUICK, st.integers(0, 3))
def test_more_devices_and_quicker_links_are_never_worse(graph, how, seed):
    objective, planner, options = how
    chosen = {"planner": planner, "objective": objective, "seed": seed, **options}
    for axes in (
        {"counts": [parse_count("T4=1..4")]},
        {"bandwidths": [parse_bandwidths("x0.2,x1,x5")]},
    ):
        lines = sweep(graph, variants([STAR], **axes), **chosen)
        assert never_worse(lines), [line.score for line in lines]
        for line in lines:
            assert verify(line.plan).ok
            assert line.plan.lower_bound <= line.plan.value
            assert line.carried != line.name
        again = sweep(graph, variants([STAR], **axes), **chosen)
        assert [line.plan.to_document() for line in again] == [
            line.plan.to_document() for line in lines
        ]


@pytest.mark.parametrize("objective", ["latency", "throughput", "invocation-latency"])
def test_auto_with_hardly_any_time_is_monotone_too(objective):
    found = variants([STAR], [parse_count("T4=1..3")])
    lines = sweep("zoo:gpt2?layers=3", found, objective=objective, time_limit=0.1)
    assert never_worse(lines)
    links = variants([STAR], (), [parse_bandwidths("x5,x0.2,x1")])
    fast, slow, middle = sweep("zoo:gpt2?layers=3", links, objective=objective, time_limit=0.1)
    assert never_worse([slow, middle, fast])


def test_both_axes_at_once_are_monotone():
    found = variants([STAR], [parse_count("T4=1..3")], [parse_bandwidths("x0.1,x10")])
    lines = sweep("zoo:gpt2?layers=2", found, planner="m-topo")
    score = {variant.at: line.score for variant, line in zip(found, lines, strict=True)}
    for (cluster, count, links), value in score.items():
        for after in ((cluster, count + 1, links), (cluster, count, links + 1)):
            assert score.get(after, np.inf) >= value - 1e-9 * abs(value)


class _Clumsy:
    """Good on three T4, poor elsewhere: a planner by whose luck more devices would look worse."""

    name, objective = "clumsy", "latency"

    def supports(self, problem):
        return None

    def plan(self, problem, budget, seed, on_progress):
        lucky = problem.device_names.count("t2") == 1 and problem.device_count == 5
        return Proposal(Placement(np.full(problem.op_count, 0 if lucky else 1)))


def test_what_one_variant_finds_goes_to_those_before_and_after_it(monkeypatch):
    real = module.make_plan

    def clumsy(problem, *, planner, **options):
        from placewright.solving import solve

        del planner, options
        return solve(problem, _Clumsy())

    monkeypatch.setattr(module, "make_plan", clumsy)
    found = variants([STAR], [parse_count("T4=1..4")])
    lines = sweep("zoo:gpt2?layers=1", found, planner="greedy")
    assert [line.carried for line in lines] == ["3 × T4", "3 × T4", "", "3 × T4"]
    assert len({line.plan.value for line in lines}) == 1
    assert [line.than_previous for line in lines] == ["", "equal", "equal", "equal"]
    assert real is not clumsy


def test_a_variant_whose_planner_finds_nothing_takes_a_neighbours_plan(monkeypatch):
    real, calls = module.make_plan, []

    def failing(*args, **kwargs):
        from placewright.errors import InfeasibleError

        calls.append(args)
        if len(calls) == 2:
            raise InfeasibleError("nothing found")
        return real(*args, **kwargs)

    monkeypatch.setattr(module, "make_plan", failing)
    lines = sweep("zoo:gpt2?layers=1", variants([STAR], [parse_count("T4=1..2")]), planner="heft")
    assert (lines[1].carried, lines[1].error) == ("1 × T4", "")
    assert verify(lines[1].plan).ok


def test_the_planner_starts_from_the_neighbours_plan(monkeypatch):
    starts, real = [], module.make_plan

    def seen(*args, warm_start, **kwargs):
        starts.append(warm_start)
        return real(*args, warm_start=warm_start, **kwargs)

    monkeypatch.setattr(module, "make_plan", seen)
    found = variants([STAR], [parse_count("T4=1..2")])
    lines = sweep("zoo:gpt2?layers=1", found, planner="greedy")
    assert starts[0] is None
    assert starts[1].value == lines[0].plan.value
    assert starts[1].problem.device_count == 4


def test_requests_of_a_mix_are_carried_over_by_tokens_per_second():
    tiny = "zoo:llama-7b?layers=2&hidden=64&feedforward=96&heads=4&kv_heads=2&vocabulary=50"
    found = variants([load_cluster("2x3090")], [parse_count("RTX 3090=1..3")])
    lines = sweep(tiny, found, mix=Mix(8, 4), planner="greedy", objective="throughput")
    assert never_worse(lines)
    assert all(line.plan is line.served.plan for line in lines)


# -- carrying over ---------------------------------------------------------------------------------


def test_devices_are_matched_by_name_and_kind_else_by_kind():
    old = plan("zoo:gpt2?layers=1", "4090+3060", planner="met")
    other = load_cluster("4090+3060")
    named = replace(
        other,
        devices=tuple(replace(each, name=f"new {each.name}") for each in other.devices),
        links=tuple(replace(link, a=f"new {link.a}", b=f"new {link.b}") for link in other.links),
        switches=tuple(f"new {name}" for name in other.switches),
    )
    problem, _ = make_problem("zoo:gpt2?layers=1", named)
    found = carried_over(old, problem)
    assert found.value == pytest.approx(old.value)
    assert [f"new {name}" for name in old.device_of().values()] == [*found.device_of().values()]
    assert verify(found).ok


def test_a_plan_that_uses_a_kind_that_is_not_there_is_not_carried_over():
    old = plan("zoo:gpt2?layers=1", "2x3090", planner="single-device")
    problem, _ = make_problem("zoo:gpt2?layers=1", "8xA100")
    assert carried_over(old, problem) is None


def test_a_plan_that_does_not_fit_is_not_carried_over():
    old = plan("zoo:gpt2", "2x3090", planner="single-device")
    small = old.problem.with_device_memory(np.full(old.problem.device_count, 1e6))
    assert carried_over(old, small) is None


def test_only_better_plans_are_judged():
    old = plan("zoo:gpt2?layers=1", "2x3090", planner="heft")
    assert carried_over(old, old.problem, old.value) is None
    assert carried_over(old, old.problem, old.value * 2).value <= old.value * (1 + LONG_ROUNDING)


def test_other_batches_take_the_same_places_over_and_over():
    cluster = load_cluster("2x3090")
    few, many = (
        make_problem("zoo:gpt2?layers=1", cluster, {"objective": "batch-throughput", "batch": b})[0]
        for b in (2, 4)
    )
    old = plan(few, planner="greedy")
    found = carried_over(old, many)
    assert found.placement.device.shape[1] == 4
    assert (found.placement.device == old.placement.device[:, [0, 1, 0, 1]]).all()
    assert verify(found).ok
    assert (carried_over(found, few).placement.device == old.placement.device).all()


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    graphs(),
    st.sampled_from(["none", "port", "link"]),
    st.sampled_from(["tensor", "edge"]),
    st.data(),
)
def test_batches_in_their_own_order_take_as_long_as_they_did(graph, contention, unit, data):
    options = {"objective": "batch-throughput", "batch": 3, "contention": contention,
               "transfer_unit": unit}  # fmt: skip
    problem, _ = make_problem(graph, STAR, options)
    shape = (problem.op_count, 3)
    places = data.draw(st.lists(st.integers(0, 3), min_size=shape[0] * 3, max_size=shape[0] * 3))
    placement = Placement(np.array(places).reshape(shape))
    outcome = run_batches(problem, placement)
    old = Plan(problem, placement, outcome, outcome.value, 0.0, "none", "by hand")
    again = run_batches(problem, replace(placement, sequence=batch_sequence(old, outcome)))
    assert again.value <= outcome.value * (1 + 1e-9)


# -- neighbours ------------------------------------------------------------------------------------


def test_neighbours_differ_in_one_thing_by_one_step():
    found = variants(
        [STAR], [parse_count("T4=4,1,2")], [parse_bandwidths("x2,x1")], parse_batches("1,8")
    )
    assert [variant.at for variant in found[:3]] == [(0, 2, 1, 0), (0, 2, 1, 1), (0, 2, 0, 0)]
    at = {variant.at: k for k, variant in enumerate(found)}
    beside = neighbours(found)
    assert {found[k].at for k in beside[at[0, 1, 0, 0]]} == {
        (0, 0, 0, 0), (0, 2, 0, 0), (0, 1, 1, 0), (0, 1, 0, 1),
    }  # fmt: skip


def test_factors_beside_bandwidths_keep_their_order_and_variants_by_hand_theirs():
    found = variants([STAR], (), [parse_bandwidths("x2,1GB/s")])
    assert [variant.at for variant in found] == [(0, 0), (0, 1)]
    by_hand = [Variant(name, STAR) for name in "abc"]
    assert neighbours(by_hand) == [[1], [0, 2], [1]]


# -- what is proved --------------------------------------------------------------------------------

LINES = st.lists(
    st.tuples(st.sampled_from([1.0, 2.0, 3.0, None]), st.sampled_from([0.0, 0.4, 1.0])), max_size=6
)


@given(LINES)
def test_a_line_is_better_for_sure_only_below_the_others_bound(drawn):
    base = plan("zoo:gpt2?layers=1", "2x3090", planner="heft")
    lines = with_certainty([
        SweepLine(str(k), 1, None, None if value is None
                  else replace(base, value=value, lower_bound=share * value))
        for k, (value, share) in enumerate(drawn)
    ])  # fmt: skip
    last = None
    for line, (value, _) in zip(lines, drawn, strict=True):
        beaten = [
            str(k) for k, (other, share) in enumerate(drawn)
            if value is not None and other is not None and value < other * share
        ]  # fmt: skip
        assert list(line.better_than) == beaten
        if value is None or last is None:
            assert line.than_previous == ""
        else:
            assert line.than_previous == compared(line, last)
            assert (line.than_previous == "better") == (last.name in beaten)
            assert (line.than_previous == "worse") == (line.name in last.better_than)
            assert (line.than_previous == "equal") == (value == last.plan.value)
        last = line if value is not None else last


def test_rates_are_compared_by_what_their_bounds_allow():
    """Of batches of other sizes seconds say nothing: samples per second do."""
    found = variants([load_cluster("2x3090")], batches=[1, 16])
    one, many = sweep("zoo:gpt2?layers=1", found, objective="batch-throughput", planner="greedy")
    for line in (one, many):
        assert line.highest_score == pytest.approx(
            line.score * line.plan.value / line.plan.lower_bound
        )
    assert many.plan.value > one.plan.value
    if many.score > one.highest_score:
        assert many.better_than == (one.name,) and many.than_previous == "better"
    else:
        assert many.than_previous in ("open", "equal", "worse")
