"""GETF: its bound against brute force, its kernels against their twins, its plans judged."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.errors import InfeasibleError, OptionError
from placewright.kernels.latency.getf import assignment_descent, dual_value
from placewright.options import Options
from placewright.planners.latency.construct.favourite_child import OpPairs
from placewright.planners.latency.construct.getf import (
    Getf,
    Kinds,
    assign_groups,
    default_gamma,
    device_groups,
    device_speed,
    relaxation,
)
from placewright.planning import make_problem
from placewright.solving import solve
from placewright.verify import verify
from tests import naive
from tests.naive import lp_planners as naive_lp
from tests.planners.judging import judged_twice
from tests.strategies import TIMES, problems, tight

LP = st.sampled_from(["auto", "glop", "highs", "descent"])


@pytest.fixture(scope="module")
def googlenet():
    return make_problem("zoo:googlenet", "moirai-intra-server")[0]


def relaxed(problem, lp, iterations=60):
    try:
        problem.check_feasible()
        return relaxation(problem, lp, iterations)
    except InfeasibleError:
        return None


@given(problem=problems() | tight(problems(8)), lp=LP, seed=st.integers(0, 3))
@settings(max_examples=30)
def test_its_plan_passes_the_judge_and_comes_again(problem, lp, seed):
    judged_twice(problem, Getf(lp=lp, iterations="20"), seed)


@given(problem=problems(max_ops=4, max_devices=3), lp=LP)
@settings(max_examples=15)
def test_no_schedule_is_shorter_than_its_bound(problem, lp):
    found = relaxed(problem, lp)
    if found is not None:
        assert found.bound <= naive.shortest_makespan(problem) * (1 + 1e-12)


@given(problem=problems(max_ops=9))
@settings(max_examples=20)
def test_solvers_agree_and_the_descent_stays_below(problem):
    found = relaxed(problem, "glop")
    if found is None:
        return
    assert relaxed(problem, "highs").bound == pytest.approx(found.bound, abs=1e-6)
    assert relaxed(problem, "descent").bound <= found.bound + 1e-6
    assert found.share.sum(axis=1) == pytest.approx(1.0)
    assert not found.share[np.isinf(problem.unit_time)].any()


@given(problem=problems(max_ops=6, memory=False, options=Options(contention="none")))
@settings(max_examples=20)
def test_its_bound_is_that_of_the_program_by_a_grid(problem):
    """Two devices and one free unit at a time leave a program that a fine grid solves."""
    if problem.device_count != 2 or not np.isfinite(problem.op_time).all():
        return
    pinned = problem.with_pins({unit: unit % 2 for unit in range(1, problem.unit_count)})
    bound = relaxation(pinned, "glop").bound
    pairs = OpPairs.of(problem, np.zeros(problem.edge_count))
    every = naive_lp.paths(pairs)
    fraction = np.arange(problem.unit_count) % 2.0
    best = np.inf
    for first in np.linspace(0, 1, 41):
        fraction[0] = first
        share = np.stack([1 - fraction, fraction], axis=1)[problem.op_unit]
        time = (problem.op_time * share).sum(axis=1)
        load = (problem.op_time * share).sum(axis=0).max()
        path = max(naive_lp.length(each, time, np.zeros(len(pairs.producer))) for each in every)
        best = min(best, max(load, path))
    slope = problem.unit_time[0].max() / 40
    assert bound <= best + 1e-6
    assert bound >= best - slope - 1e-6


@given(problem=problems(max_ops=6, max_devices=3), iterations=st.integers(1, 6))
@settings(max_examples=20)
def test_descent_goes_as_its_twin(problem, iterations):
    try:
        problem.check_feasible()
    except InfeasibleError:
        return
    pairs, kinds = OpPairs.of(problem, np.zeros(problem.edge_count)), Kinds.of(problem)
    share, bound = assignment_descent(
        pairs.order, pairs.in_offsets, pairs.producer, pairs.is_last, problem.op_unit,
        kinds.op_time, kinds.unit_fill, kinds.unit_allowed, kinds.size, iterations,
    )  # fmt: skip
    expected = naive_lp.assignment_descent(
        pairs, problem.op_unit, kinds.op_time, kinds.unit_fill, kinds.unit_allowed, kinds.size,
        iterations,
    )  # fmt: skip
    assert bound == pytest.approx(expected[1], abs=1e-9)
    assert share.ravel() == pytest.approx(list(itertools.chain(*expected[0])), abs=1e-6)


@given(st.data())
@settings(max_examples=20)
def test_dual_value_is_the_cheapest_assignment(data):
    units, kinds = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    draw = lambda size: np.array(data.draw(st.lists(TIMES, min_size=size, max_size=size)))  # noqa: E731
    cost, price = draw(units * kinds).reshape(units, kinds), draw(kinds)
    flags = st.lists(st.booleans(), min_size=units * kinds, max_size=units * kinds)
    allowed = np.array(data.draw(flags)).reshape(units, kinds)
    allowed[:, 0] |= ~allowed.any(axis=1)
    assert dual_value(cost, allowed, price) == pytest.approx(
        naive_lp.dual_value(cost, allowed, price)
    )


def test_groups_hold_speeds_of_one_power_of_gamma():
    speed = np.array([8.0, 1.0, 1.9, 7.9, 2.0, 0.0])
    assert device_groups(speed, 2.0).tolist() == [3, 0, 0, 2, 1, 0]
    assert device_groups(speed, np.inf).tolist() == [0] * 6


@pytest.mark.parametrize(("devices", "gamma"), [(1, 2.0), (2, 2.0), (4, 2.0), (256, 8 / 3)])
def test_gamma_grows_as_in_the_paper(devices, gamma):
    assert default_gamma(devices) == pytest.approx(gamma)


def test_an_op_gets_the_strongest_group_not_slower_than_its_half(googlenet):
    speed = np.array([1.0, 1.0, 4.0, 16.0])
    group = np.array([0, 0, 1, 2], dtype=np.int32)
    share = np.tile([0.1, 0.1, 0.4, 0.4], (googlenet.unit_count, 1))
    assert set(assign_groups(googlenet, share, group, speed).tolist()) == {2}
    assert set(assign_groups(googlenet, share, group, np.array([9, 9, 8, 1.0])).tolist()) == {1}
    share = np.tile([0.3, 0.3, 0.2, 0.2], (googlenet.unit_count, 1))
    assert set(assign_groups(googlenet, share, group, np.array([9, 9, 8, 1.0])).tolist()) == {0}


def test_a_group_takes_no_more_than_its_memory(googlenet):
    tight = googlenet.with_device_memory(np.full(4, googlenet.op_memory.sum() * 0.4))
    group, speed = np.array([0, 0, 1, 1], dtype=np.int32), device_speed(tight)
    share = np.tile([0.0, 0.0, 0.5, 0.5], (tight.unit_count, 1))
    chosen = assign_groups(tight, share, group, speed)
    held = np.bincount(chosen, tight.unit_memory, 2)
    assert (held <= tight.op_memory.sum() * 0.8).all()
    assert held[1] > tight.op_memory.sum() * 0.7
    assert verify(solve(tight, Getf())).violations == ()


def test_what_does_not_fit_even_split_is_infeasible(googlenet):
    tight = googlenet.with_device_memory(np.full(4, googlenet.op_memory.sum() * 0.24))
    with pytest.raises(InfeasibleError, match="do not fit the devices' memory"):
        relaxation(tight)
    with pytest.raises(InfeasibleError, match="found no device for op"):
        relaxation(googlenet.with_device_memory(np.full(4, googlenet.op_memory.max() * 0.9)))


@pytest.mark.parametrize("options", [{"lp": "pdlp"}, {"gamma": "1"}, {"iterations": "1.5"}])
def test_it_refuses_an_option_it_cannot_use(options):
    with pytest.raises(OptionError, match=f"option {next(iter(options))} is"):
        Getf(**options)


# Proven optimum and best known value under port contention: found with an independent program
# (branch-and-bound over modules, CP-SAT), to the digits given.
@pytest.mark.parametrize(
    ("file", "known"),
    [("moirai/googlenet.json", 1.278119e-3), ("moirai/transformer.json", 19.312e-3)],
)
@pytest.mark.parametrize("lp", ["glop", "descent"])
def test_its_bound_is_below_the_best_known_values(file, known, lp, workloads):
    problem, _ = make_problem(workloads / file)
    assert 0.4 * known < relaxation(problem, lp).bound <= known


@pytest.mark.slow
@pytest.mark.parametrize("lp", ["auto", "descent"])
def test_fifty_thousand_ops_take_seconds(lp):
    problem, _ = make_problem("zoo:alphafold2-3.2b", "moirai-intra-server")
    solve(problem, Getf(lp=lp))  # compile
    plan = solve(problem, Getf(lp=lp))
    assert plan.seconds < 10
