"""m-SCT: its program against enumeration, its kernels against their twins, its plans judged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.analysis.orders import mean_op_time
from placewright.errors import OptionError
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.favourite_child import favourite_child_placement, favourite_descent
from placewright.kernels.latency.getf import soft_longest_path
from placewright.kernels.latency.units import units_of
from placewright.planners.latency.construct import favourite_child
from placewright.planners.latency.construct.favourite_child import (
    MSct,
    OpPairs,
    Symmetry,
    _pair_seconds,
    _solve_exactly,
    favourite_children,
)
from placewright.planning import make_problem
from placewright.solving import solve
from tests.naive import lp_planners as naive
from tests.planners.judging import judged_twice
from tests.strategies import TIMES, problems, tight

LP = st.sampled_from(["auto", "glop", "highs", "descent"])


def pairs_of(problem):
    return OpPairs.of(problem, _pair_seconds(problem))


@given(problem=problems() | tight(problems(8)), lp=LP, seed=st.integers(0, 3))
@settings(max_examples=30)
def test_its_plan_passes_the_judge_and_comes_again(problem, lp, seed):
    judged_twice(problem, MSct(lp=lp, iterations="20"), seed)


@given(st.data())
def test_kernel_places_as_its_twin(data):
    problem = data.draw(problems())
    priority = np.array(data.draw(st.permutations(range(problem.op_count))), dtype=np.int32)
    favourite = np.full(problem.op_count, -1, dtype=np.int32)
    for producer, consumer in zip(problem.edge_producer, problem.consumers, strict=True):
        if data.draw(st.booleans()):
            favourite[producer] = consumer
    unit_device = np.full(problem.unit_count, -1, dtype=np.int32)
    expected = naive.favourite_child_placement(problem, priority, favourite, unit_device)
    units = units_of(problem, unit_device)
    failed = favourite_child_placement(arrays_of(problem), priority, favourite, units)
    assert (failed >= 0) == (expected[1] >= 0)
    if failed < 0:
        assert units.device.tolist() == expected[0]


@given(st.data())
@settings(max_examples=20)
def test_soft_flow_is_that_of_all_paths_weighted(data):
    problem = data.draw(problems(max_ops=7))
    pairs = pairs_of(problem)
    op_weight = np.array(
        data.draw(st.lists(TIMES, min_size=problem.op_count, max_size=problem.op_count))
    )
    temperature = data.draw(st.sampled_from([0.05, 0.5, 3.0]))
    head, flow = np.empty(problem.op_count), np.empty(problem.op_count)
    pair_flow = np.empty(len(pairs.producer))
    soft_longest_path(
        pairs.order, pairs.in_offsets, pairs.producer, op_weight, pairs.seconds, pairs.is_last,
        temperature, head, flow, pair_flow,
    )  # fmt: skip
    expected = naive.soft_longest_path(pairs, op_weight, pairs.seconds, temperature)
    assert flow == pytest.approx(expected[0], abs=1e-9)
    assert pair_flow == pytest.approx(expected[1], abs=1e-9)


@given(problem=problems(max_ops=7), iterations=st.integers(1, 6))
@settings(max_examples=20)
def test_descent_goes_as_its_twin(problem, iterations):
    pairs, op_time = pairs_of(problem), mean_op_time(problem)
    saved, makespan = favourite_descent(
        pairs.order, pairs.in_offsets, pairs.producer, pairs.consumer, pairs.is_last, op_time,
        pairs.seconds, 0.7, iterations,
    )  # fmt: skip
    expected = naive.favourite_descent(pairs, op_time, 0.7, iterations)
    assert makespan == pytest.approx(expected[1], rel=1e-9)
    for ends in (pairs.producer, pairs.consumer):
        assert (np.bincount(ends, saved, problem.op_count) <= 1 + 1e-9).all()


@given(problem=problems(max_ops=8))
@settings(max_examples=20)
def test_classes_are_the_coarsest_that_tell_ops_apart(problem):
    pairs = pairs_of(problem)
    colour = np.unique(problem.op_time[:, 0], return_inverse=True)[1]
    merged = Symmetry.of(pairs, colour.astype(np.uint64), problem.op_unit)
    expected = naive.equitable_classes(pairs, colour.tolist(), problem.op_unit)
    assert naive.same_partition(merged.op_class.tolist(), expected)


@given(problem=problems(max_ops=6))
@settings(max_examples=20)
def test_program_is_below_the_best_integral_choice_and_no_lower_when_merged(problem):
    pairs, op_time = pairs_of(problem), mean_op_time(problem)
    if len(pairs.producer) > 8:
        return
    optimum = favourite_children(problem, "glop")[1]
    assert optimum <= naive.best_favourites(pairs, op_time) + 1e-6
    apart = Symmetry.of(pairs, np.arange(problem.op_count).astype(np.uint64))
    assert len(apart.first) == problem.op_count
    assert optimum == pytest.approx(_solve_exactly(pairs, op_time, apart, "highs")[1], abs=1e-6)
    assert favourite_children(problem, "descent")[1] >= optimum - 1e-6


@given(problem=problems(), lp=LP)
@settings(max_examples=20)
def test_an_op_has_one_favourite_child_and_is_that_of_one(problem, lp):
    favourite, _ = favourite_children(problem, lp, iterations=20)
    children = favourite[favourite >= 0].tolist()
    assert len(children) == len(set(children))
    known = set(zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True))
    assert {(op, int(favourite[op])) for op in np.flatnonzero(favourite >= 0)} <= known


def test_heads_of_a_layer_are_solved_as_one():
    problem, _ = make_problem("zoo:gpt3-330m", "moirai-inter-server")
    merged = Symmetry.of(pairs_of(problem), mean_op_time(problem).view(np.uint64))
    assert len(merged.first) < problem.op_count / 5
    exact = favourite_children(problem, "glop")[1]
    assert exact <= favourite_children(problem, "descent")[1] <= exact * 1.01


def test_a_retry_with_more_pins_does_not_solve_the_program_again(monkeypatch):
    problem, _ = make_problem("zoo:googlenet", "2x3090")
    planner = MSct()
    first = solve(problem, planner).value
    monkeypatch.setattr(favourite_child, "favourite_children", None)
    assert solve(problem.with_pins({0: 1}), planner).placement.device[0] == 1
    assert solve(problem, planner).value == first


@pytest.mark.parametrize(
    "options", [{"lp": "simplex"}, {"threshold": "0.6"}, {"threshold": "x"}, {"iterations": "-1"}]
)
def test_it_refuses_an_option_it_cannot_use(options):
    with pytest.raises(OptionError, match=f"option {next(iter(options))} is"):
        MSct(**options)


@pytest.mark.slow
def test_fifty_thousand_ops_take_seconds():
    problem, _ = make_problem("zoo:alphafold2-3.2b", "moirai-intra-server")
    solve(problem, MSct())  # compile
    plan = solve(problem, MSct())
    assert plan.seconds < 10
