"""Replicas with shares of their own: what they take, the best shares, and bounds on all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.analysis.contracted import directions
from placewright.analysis.shares import harmonic
from placewright.analysis.warm_start import starting_placement
from placewright.bounds import throughput as bounds
from placewright.cluster import Cluster, Device, Link
from placewright.errors import FormatError, InfeasibleError, OptionError
from placewright.exporters.exporting import export
from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.plan import Placement, Plan
from placewright.planners.throughput.calibrated import placed
from placewright.planners.throughput.shares import balanced
from placewright.planners.throughput.splits import best_of_lines
from placewright.planners.throughput.stages import stage_tables
from placewright.planning import make_problem, plan_problem
from placewright.report.records import plan_record
from placewright.report.shares import input_texts
from placewright.report.terminal import summary
from placewright.runtime.plans import check_turns
from placewright.simulate import evaluate
from placewright.simulate.throughput import sampled_values
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import X, Y, row_of_ops
from tests.builders import throughput_chain as chain
from tests.naive.throughput import all_splits, best_split, with_shares
from tests.strategies.throughput import pipelines, throughput_problems

UNEQUAL = {"replicate": True, "shares": "unequal"}
BOUNDS = (bounds.work, bounds.even_share, bounds.single_unit, bounds.least_load)
SECONDS = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.0]), min_size=3, max_size=3)


def unequal_problems(max_ops=4):
    return pipelines(max_ops=max_ops, **UNEQUAL) | throughput_problems(
        max_ops=max_ops, contiguous=None, **UNEQUAL
    )


def shared(problem, speeds, share=0.0):
    """The problem on devices that differ by a factor for all ops, transfers free or alike."""
    time = problem.op_time[:, :1] * np.array(speeds)[None, : problem.device_count]
    d = problem.device_count
    away = 1.0 - np.eye(d)
    return replace(
        problem,
        op_time=time,
        staging="direct",
        link_latency=share * away,
        link_seconds_per_byte=0.5 * share * away,
        device_memory=np.full(d, np.inf),
        op_pinned=np.full(problem.op_count, -1),
    )


# -- what a placement comes to -------------------------------------------------------------------


def test_a_replica_has_its_share_of_what_the_ops_take_on_it():
    problem = chain(
        op_time=[[2, 6, 9], [1, 3, 9], [1, 3, 9], [1, 3, 9]],
        staging="direct",
        options=Options("throughput", **UNEQUAL),
    )
    placement = Placement([X] * 4, replicas=((X, Y),), replica_shares=((0.75, 0.25),))
    assert evaluate(problem, placement).load.tolist() == [3.75, 3.75, 0]
    equal = Placement([X] * 4, replicas=((X, Y),))
    assert evaluate(problem, equal).load.tolist() == [2.5, 7.5, 0]


def test_what_is_sent_is_weighted_by_the_shares_of_both_ends():
    away = np.array([[0.0, 4.0, 1.0], [4.0, 0.0, 8.0], [1.0, 8.0, 0.0]])
    problem = chain(
        op_time=np.ones((4, 3)),
        tensor_bytes=np.zeros(len(chain().tensor_bytes)),
        staging="direct",
        link_latency=away,
        link_seconds_per_byte=np.zeros((3, 3)),
        options=Options("throughput", **UNEQUAL),
    )
    placement = Placement([0, 0, 0, 2], replicas=((0, 1),), replica_shares=((0.75, 0.25),))
    found = evaluate(problem, placement)
    mean = 0.75 * 1.0 + 0.25 * 8.0
    sent = found.incoming[0, 2] / mean  # as many tensors as reach the last op
    assert sent == pytest.approx(round(sent))
    assert found.outgoing[0].tolist() == pytest.approx([0.75 * sent * mean, 0.25 * sent * mean, 0])


@given(unequal_problems(), st.data())
def test_the_judge_agrees_with_any_shares(problem, data):
    splits = [each for each in all_splits(problem) if each.replicas]
    assume(splits)
    placement = data.draw(st.sampled_from(splits))
    placement = data.draw(st.sampled_from(list(with_shares(problem, placement))))
    loose = replace(problem, options=replace(problem.options, contiguous=False))
    outcome = evaluate(loose, placement)
    assert verify(plan_of(loose, placement, outcome)).violations == ()


def plan_of(problem, placement, outcome):
    return Plan(problem, placement, outcome, outcome.value, 0.0, "none", "by hand")


@given(throughput_problems(max_ops=5, contiguous=False, replicate=True), st.data())
def test_equal_shares_that_are_said_are_those_that_are_not(problem, data):
    splits = [each for each in all_splits(problem) if each.replicas]
    assume(splits)
    placement = data.draw(st.sampled_from(splits))
    allowed = replace(problem, options=replace(problem.options, shares="unequal"))
    said = replace(placement, replica_shares=placement.shares)
    assert evaluate(allowed, said).load == pytest.approx(evaluate(problem, placement).load)


# -- the best shares -----------------------------------------------------------------------------


@given(SECONDS, SECONDS)
def test_what_is_shared_in_one_proportion_is_shared_no_better_than_each_by_itself(one, two):
    count = np.ones(3)
    apart = harmonic(np.array(one), count) + harmonic(np.array(two), count)
    assert harmonic(np.add(one, two), count) >= apart * (1 - 1e-9)


@settings(max_examples=60)
@given(unequal_problems(), st.data())
def test_balancing_never_makes_a_placement_worse(problem, data):
    splits = [each for each in all_splits(problem) if each.replicas]
    assume(splits)
    placement = data.draw(st.sampled_from(splits))
    found = balanced(problem, placement)
    assert evaluate(problem, found).value <= evaluate(problem, placement).value
    assert found.replicas == placement.replicas
    assert np.array_equal(found.device, placement.device)


@settings(max_examples=60)
@given(unequal_problems(), st.lists(st.floats(0.2, 5.0), min_size=3, max_size=3), st.data())
def test_no_shares_of_a_grid_are_better_where_transfers_are_alike(problem, speeds, data):
    problem = shared(problem, speeds, data.draw(st.sampled_from([0.0, 0.3])))
    splits = [each for each in all_splits(problem) if each.replicas]
    assume(splits)
    placement = data.draw(st.sampled_from(splits))
    found = evaluate(problem, balanced(problem, placement)).value
    grid = min(evaluate(problem, each).value for each in with_shares(problem, placement, 9))
    assert found <= grid * (1 + 1e-6)


@pytest.mark.parametrize("backward", [False, True])
def test_a_pass_that_takes_no_time_needs_no_part_of_the_limit(backward):
    """Under `gpipe`: inference, and training of which the forward pass is given as free."""
    problem = chain(
        op_time=[[2.2, 2.0, 9], [1.5, 1.5, 9], [0.7, 0.7, 9], [3.3, 3.3, 9]],
        device_memory=[np.inf] * 3,
        is_backward=[backward] * 4,
        staging="direct",
        options=Options("throughput", schedule="gpipe", **UNEQUAL),
    )
    found = evaluate(problem, balanced(problem, Placement([X] * 4, replicas=((X, Y),))))
    assert found.value == pytest.approx(1 / (1 / 7.7 + 1 / 7.5), rel=1e-12)


@pytest.mark.parametrize("schedule", ["pipedream", "gpipe"])
def test_beside_weights_that_take_far_longer_to_keep_equal_any_shares_will_do(schedule):
    problem = chain(
        device_memory=[np.inf] * 3,
        is_backward=[False, False, True, True],
        op_sync_bytes=[1e24, 0, 0, 0],
        staging="direct",
        options=Options("throughput", schedule=schedule, **UNEQUAL),
    )
    found = evaluate(problem, balanced(problem, Placement([X] * 4, replicas=((X, Y),))))
    assert found.value == pytest.approx(0.5e24)


# -- bounds --------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(unequal_problems())
def test_no_bound_is_above_any_shares_of_any_split(problem):
    least, _ = best_split(problem)
    assume(math.isfinite(least))
    for bound in BOUNDS:
        assert bound(problem).value <= least * (1 + 1e-9), bound.__name__


def test_the_largest_unit_is_shared_by_all_that_run_it():
    problem = chain(
        op_time=[[4, 12, 6], [0, 0, 0], [0, 0, 0], [0, 0, 0]],
        options=Options("throughput", **UNEQUAL),
    )
    assert bounds.single_unit(problem).value == pytest.approx(2.0)


# -- planners ------------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", ["ideal-dp", "linear-dp", "pipedream", "data-parallel"])
@settings(max_examples=25)
@given(unequal_problems())
def test_plans_pass_the_judge_and_their_bound_holds_for_any_shares(planner, problem):
    try:
        found = solve(problem, planner)
    except InfeasibleError:
        return
    assert verify(found).violations == ()
    least, _ = best_split(problem)
    assert found.lower_bound <= least * (1 + 1e-9)


@pytest.mark.parametrize("planner", ["ideal-dp", "linear-dp", "pipedream", "data-parallel"])
@settings(max_examples=25)
@given(unequal_problems())
def test_what_may_be_unequal_is_no_worse_than_what_must_be_equal(planner, problem):
    options = replace(problem.options, shares="equal")
    try:
        equal = solve(replace(problem, options=options), planner)
    except InfeasibleError:
        return
    assert solve(problem, planner).value <= equal.value * (1 + 1e-9)


def test_charges_are_corrected_by_what_shares_come_to():
    """By ops both devices share all, charged 2 + 4/3 + 8/3 s; that takes 12 · 14 / 26 s."""
    problem = row_of_ops(
        [1.0] * 3,
        op_time=np.array([[4.0, 4.0], [4.0, 2.0], [4.0, 8.0]]),
        tensor_bytes=np.zeros(2),
        link_latency=np.zeros((2, 2)),
        options=Options("throughput", **UNEQUAL),
    )
    graph = directions(problem)[0]
    split = best_of_lines(stage_tables(graph), [np.arange(graph.node_count)], np.inf)
    assert split.value == pytest.approx(6.0)
    assert evaluate(problem, split.placement()).value == pytest.approx(12 * 14 / 26)
    assert evaluate(problem, placed(split)).value == pytest.approx(6.0)


@settings(max_examples=30)
@given(unequal_problems(), st.lists(st.floats(0.3, 3.0), min_size=3, max_size=3))
def test_on_devices_that_differ_by_a_factor_stages_are_nearly_the_best(problem, speeds):
    problem = shared(problem, speeds)
    contiguous = replace(problem, options=replace(problem.options, contiguous=True))
    grid, _ = best_split(contiguous)
    found = solve(contiguous, "ideal-dp")
    if not contiguous.op_sync_bytes.any():
        assert found.value <= grid * (1 + 1e-6)
    assert found.lower_bound <= grid * (1 + 1e-9)


@settings(max_examples=25)
@given(unequal_problems(), st.lists(st.floats(0.3, 3.0), min_size=3, max_size=3))
def test_every_split_tried_with_its_best_shares_is_the_best(problem, speeds):
    problem = replace(problem, options=replace(problem.options, schedule="pipedream"))
    problem = shared(problem, speeds, 0.2)
    grid, _ = best_split(problem)
    found = solve(problem, "exhaustive")
    assert verify(found).violations == ()
    assert found.value <= grid * (1 + 1e-9)
    assert found.status == "optimal"
    for bound in BOUNDS:
        assert bound(problem).value <= found.value * (1 + 1e-9)


def two_unequal(**changes):
    return chain(
        op_time=[[2, 6, np.inf]] * 4,
        device_memory=[np.inf] * 3,
        options=Options("throughput", **UNEQUAL),
        **changes,
    )


def test_the_whole_model_is_shared_by_speed():
    found = solve(two_unequal(staging="direct"), "data-parallel")
    assert found.value == pytest.approx(6.0)
    assert found.placement.replica_shares == (pytest.approx((0.75, 0.25)),)


def test_the_devices_of_one_host_are_tried_by_themselves():
    """Weights of the two on one host are kept equal over a quick link."""
    slow = np.array([[0.0, 0.1, 9.0], [0.1, 0.0, 9.0], [9.0, 9.0, 0.0]])
    problem = two_unequal(
        staging="direct",
        link_latency=np.zeros((3, 3)),
        link_seconds_per_byte=slow,
        op_sync_bytes=[1.0, 1.0, 1.0, 1.0],
        device_hosts=("one", "one", "two"),
    )
    problem = replace(problem, op_time=np.array([[2.0, 6.0, 3.0]] * 4))
    found = solve(problem, "data-parallel")
    assert found.placement.replicas == ((0, 1),)
    assert found.value == pytest.approx(6.0 + 0.5 * 4 * 0.1)


def test_without_replicas_data_parallel_is_refused():
    problem = two_unequal()
    problem = replace(problem, options=Options("throughput"))
    with pytest.raises(OptionError, match="plan with --replicate"):
        solve(problem, "data-parallel")


def four_devices(**options):
    """Two ops on four devices of two kinds, each linked as fast to each."""
    devices = tuple(
        Device(name, kind, memory=9.0) for name, kind in zip("abcd", "xxyy", strict=True)
    )
    links = tuple(Link(*ends, bandwidth=1.0, latency=0.0) for ends in combinations("abcd", 2))
    graph = GraphBuilder("two")
    first = graph.add_op("first", "op")
    graph.add_op("second", "op", [graph.add_tensor(first, 1.0)], backward="schedule" in options)
    graph.times = {"x": [1.0, 2.0], "y": [2.0, 4.0]}
    options = {"objective": "throughput", **UNEQUAL, **options}
    return make_problem(graph.build(), Cluster("four", devices, links), options)[0]


def test_every_split_is_not_tried_where_shares_change_what_is_sent():
    problem = four_devices()
    pace = problem.link_seconds_per_byte * np.array([1.0, 1.0, 1.0, 2.0])
    problem = replace(problem, staging="direct", link_seconds_per_byte=pace)
    with pytest.raises(OptionError, match="what replicas send depends on their shares"):
        solve(problem, "exhaustive")


def test_every_split_is_not_tried_where_passes_have_limits_of_their_own():
    with pytest.raises(OptionError, match="shares of replicas are of one limit for both passes"):
        solve(four_devices(schedule="gpipe"), "exhaustive")


# -- what is refused -----------------------------------------------------------------------------


def test_shares_without_replicas_are_refused():
    with pytest.raises(OptionError, match="give replicate too, or leave shares out"):
        Options("throughput", shares="unequal")


def test_shares_belong_to_throughput():
    with pytest.raises(OptionError, match="option shares belongs to objective throughput"):
        Options("latency", shares="unequal")


# -- what others make of them --------------------------------------------------------------------


def shared_plan():
    return solve(two_unequal(staging="direct"), "data-parallel")


def test_a_file_keeps_shares_and_one_without_is_read_as_before(tmp_path):
    found = shared_plan()
    found.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again.placement.replica_shares == found.placement.replica_shares
    assert again.problem.options.shares == "unequal"
    document = found.to_document()
    del document["replica_shares"], document["problem"]["options"]["shares"]
    old = Plan.from_document(document)
    assert old.placement.replica_shares == ()
    assert old.placement.shares == ((0.5, 0.5),)
    assert old.problem.options.shares == "equal"
    assert "shares" not in old.to_document()["problem"]["options"]
    assert "replica_shares" not in old.to_document()


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ([[0.75]], "replica_shares does not have a share for each device"),
        ([[0.5, 0.25, 0.25]], "replica_shares does not have a share for each device"),
        ([[0.75, 0.5]], "give a stage shares above 0 that add up to 1"),
        ([[1.0, 0.0]], "give a stage shares above 0 that add up to 1"),
    ],
)
def test_shares_that_are_none_are_refused(shares, says):
    document = shared_plan().to_document()
    document["replica_shares"] = shares
    with pytest.raises(FormatError, match=says):
        Plan.from_document(document)


def test_the_judge_sees_shares_where_none_are_allowed_and_loads_of_others():
    found = shared_plan()
    equal = replace(found.problem, options=Options("throughput", replicate=True))
    said = verify(replace(found, problem=equal)).violations
    assert any("has them take as many inputs" in each for each in said)
    assert any("not equally fast" in each for each in said)
    other = replace(found.placement, replica_shares=((0.5, 0.5),))
    said = verify(replace(found, placement=other)).violations
    assert any("load of 'y'" in each for each in said), said


def test_another_plan_starts_from_a_placement_with_its_shares():
    found = shared_plan()
    assert starting_placement(found, found.problem).replica_shares == (
        found.placement.replica_shares
    )


def test_samples_of_the_costs_vary_each_replica_by_what_it_takes():
    found = shared_plan()
    seconds = found.problem.op_time[:, 0]
    values = sampled_values(found.problem, found.placement, [seconds, 2 * seconds])
    assert values == pytest.approx([found.value, 2 * found.value])


def test_tables_and_records_name_the_shares():
    found = shared_plan()
    assert "4 ops on x (75% of the inputs) and y (25% of the inputs)" in summary(found)
    assert plan_record(found)["replicas"] == [
        [{"name": "x", "share": pytest.approx(0.75)}, {"name": "y", "share": pytest.approx(0.25)}]
    ]
    assert input_texts(found) == ["75%", "25%", "-"]
    single = solve(two_unequal(staging="direct"), "single-device")
    assert "replicas" not in plan_record(single)
    assert "of the inputs" not in summary(single)


@pytest.mark.parametrize("engine", ["csv", "dot"])
def test_a_file_that_names_one_device_for_an_op_is_refused(engine, tmp_path):
    with pytest.raises(OptionError, match="unequal shares of the inputs"):
        export(shared_plan(), engine, tmp_path / "plan")


def test_replicas_that_take_turns_are_not_run_with_unequal_shares():
    with pytest.raises(OptionError, match="replicas that are run take turns"):
        check_turns(shared_plan())


@pytest.mark.filterwarnings("error::RuntimeWarning")  # what members fail with
@settings(max_examples=8)
@given(unequal_problems())
def test_the_default_planner_is_no_worse_than_the_whole_model_on_all(problem):
    try:
        whole = solve(problem, "data-parallel")
    except InfeasibleError:
        assume(False)
    found = plan_problem(problem, time_limit=3.0)
    assert verify(found).violations == ()
    assert found.value <= whole.value * (1 + 1e-9)
    assert found.lower_bound <= best_split(problem)[0] * (1 + 1e-9)
