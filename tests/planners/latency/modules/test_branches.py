"""Equal branches: found, shared out by counts against all ways to do it, and put in an order."""

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.formulations.latency.incumbent import timed
from placewright.planners.latency.modules.arcs_annealed import AnnealedArcs, Turn
from placewright.planners.latency.modules.branch_assignment import (
    ENOUGH,
    SPREAD,
    WEIGHT,
    shared_out,
)
from placewright.planners.latency.modules.branches import shared_start
from placewright.planners.latency.modules.chain import chains_of
from placewright.planners.latency.modules.equal_branches import Twins, twins_of
from placewright.planning import make_problem
from placewright.simulate.latency import time_placement
from placewright.solving import solve
from tests.planners.latency.modules.branched import all_shares, branched_problems, busy


def heads(query="gpt3-330m?layers=1", cluster="moirai-intra-server"):
    return make_problem(f"zoo:{query}", cluster, {"contention": "port"})[0]


def test_heads_of_a_layer_are_twins():
    problem = heads()
    (twins,) = twins_of(problem)
    assert twins.unit.shape == (16, 12)
    names = np.array(problem.op_names)
    unit_name = {int(unit): names[op] for op, unit in enumerate(problem.op_unit)}
    for column in twins.unit.T:
        assert len({unit_name[int(unit)].rpartition(".")[2] for unit in column}) == 1
    numbers = [unit_name[int(unit)].split(".")[-2] for unit in twins.unit[:, 0]]
    assert numbers == [str(head) for head in range(16)]


def test_a_chain_has_no_twins_and_few_branches_are_none():
    assert twins_of(heads("resnet50")) == []
    assert twins_of(heads("gpt3-330m?layers=1&heads=2")) == []


@settings(max_examples=20, deadline=None)
@given(branched_problems(memory=False))
def test_twins_are_equal_place_by_place(case):
    problem, place = case
    for twins in twins_of(problem):
        assert len(np.unique(twins.unit)) == twins.unit.size
        for column in twins.unit.T:
            ops = [np.flatnonzero(problem.op_unit == unit) for unit in column]
            times = [problem.op_time[each].tolist() for each in ops]
            assert all(each == times[0] for each in times)
            assert len({int(p) for each in ops for p in place[each]}) <= place.max() + 1


@settings(max_examples=25, deadline=None)
@given(branched_problems(max_devices=3), st.integers(0, 3), st.randoms(use_true_random=False))
def test_counts_are_as_good_as_any_shares(case, seed, random):
    problem, place = case
    places, branches = int(place.max()) + 1, int((place == 0).sum())
    unit = np.arange(1, problem.op_count - 1).reshape(branches, places)
    ends = [
        random.choice(np.flatnonzero(np.isfinite(problem.op_time[op])).tolist())
        for op in (0, problem.op_count - 1)
    ]
    device = np.zeros(problem.op_count, dtype=np.int32)
    device[[0, -1]] = ends
    weight = WEIGHT * SPREAD ** np.random.default_rng(seed).random()
    rows = shared_out(problem, Twins(problem.op_unit[unit]), device[np.argsort(problem.op_unit)],
                      30.0, seed)  # fmt: skip
    best = np.inf
    for inner in all_shares(problem, place, branches):
        device[1:-1] = inner
        if (problem.free_memory(device[np.argsort(problem.op_unit)]) >= 0.0).all():
            best = min(best, busy(problem, place, device, weight))
    if rows is None:
        assert np.isinf(best)
        return
    device[1:-1] = rows.ravel()
    assert busy(problem, place, device, weight) <= best * (1 + ENOUGH) + 1e-5 * weight


@settings(max_examples=20, deadline=None)
@given(branched_problems(fewest=4, most=6), st.integers(0, 3))
def test_a_shared_start_keeps_what_is_outside_and_fits(case, seed):
    problem, _ = case
    allowed = problem.unit_allowed
    assume(allowed.any(axis=1).all())
    device = allowed.argmax(axis=1).astype(np.int32)
    assume((problem.free_memory(device) >= 0.0).all())
    groups = twins_of(problem)
    found = shared_start(problem, groups, device[problem.op_unit], 30.0, seed)
    unit_device = np.empty(problem.unit_count, dtype=np.int32)
    unit_device[problem.op_unit] = found.device
    assert (unit_device[problem.op_unit] == found.device).all()
    assert allowed[np.arange(problem.unit_count), unit_device].all()
    assert (problem.free_memory(unit_device) >= 0.0).all()
    inside = {int(unit) for twins in groups for unit in twins.unit.ravel()}
    outside = [unit for unit in range(problem.unit_count) if unit not in inside]
    assert (unit_device[outside] == device[outside]).all()


def test_many_heads_shared_out_take_less_than_with_heft_and_less_still_refined():
    problem = heads("gpt3-13b?layers=1")
    kinds = {arcs for chain in chains_of(problem, AnnealedArcs) for arcs in chain.arcs}
    arc = max(kinds, key=lambda arcs: len(arcs.part.ops)).at[0, 0]
    heft = solve(arc.problem, "heft")
    device = np.zeros(arc.problem.op_count, dtype=np.int32)
    shared = shared_start(arc.problem, twins_of(arc.problem), device, math.inf, 0)
    value = time_placement(arc.problem, shared).makespan
    assert value < 0.96 * heft.value
    arc.offer(timed(arc.problem, shared))
    found = arc.search("shared", Turn(2.0), in_turns=False, seed=0, price=np.zeros(4))
    assert found is not None and found.value < 0.98 * value
    hurried = arc.search("shared", Turn(0.5), in_turns=False, seed=0, price=np.zeros(4))
    assert hurried is not None and hurried.value < heft.value


def test_a_program_that_has_no_time_leaves_the_start():
    problem = heads()
    device = np.zeros(problem.op_count, dtype=np.int32)
    found = shared_start(problem, twins_of(problem), device, 0.0, 0)
    assert (found.device == 0).all()
