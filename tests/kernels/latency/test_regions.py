"""Dominator trees and regions against searches through the graph; jumps against timing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.budget import Budget
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.common.dominators import dominator_tree
from placewright.kernels.latency import region_moves
from placewright.planners.base import NoRoomError
from placewright.planners.latency.search.region_moves import candidates_of, regions_of
from placewright.planners.latency.search.strings import OnePlusOneEA
from placewright.planners.latency.search.walk import Walk
from tests import naive
from tests.naive import regions as naive_regions
from tests.strategies import problems

TWINS = (
    (region_moves.BEHIND, naive_regions.behind),
    (region_moves.BEFORE, naive_regions.before),
    (region_moves.BESIDE, naive_regions.beside),
)


def subtree(at, first, size, op):
    return set(at[first[op] : first[op] + size[op]].tolist())


@given(problem=problems(), data=st.data())
def test_a_subtree_is_what_an_op_dominates(problem, data):
    n = problem.op_count
    counts = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    offsets, edges = problem.op_inputs
    parent, at, first, size = dominator_tree(
        problem.topological_order, offsets, problem.edge_producer[edges], counts
    )
    for op in range(n):
        expected = naive_regions.dominated(problem, op, counts)
        assert subtree(at, first, size, op) == expected
        if parent[op] >= 0:
            assert op in subtree(at, first, size, parent[op])
    assert sorted(at.tolist()) == list(range(n))


@given(problems())
def test_the_first_two_trees_are_of_all_paths_from_the_start_and_to_the_end(problem):
    regions = regions_of(problem)
    for op in range(problem.op_count):
        for tree, back in ((0, False), (1, True)):
            found = subtree(regions.at[tree], regions.first[tree], regions.size[tree], op)
            assert found == naive_regions.dominated(problem, op, back=back)


@given(problems())
def test_regions_are_what_is_behind_before_and_beside(problem):
    regions, arrays = regions_of(problem), arrays_of(problem)
    found = np.empty(problem.op_count, dtype=np.int32)
    for op in np.arange(problem.op_count, dtype=np.int32):
        for kind, twin in TWINS:
            count = region_moves.members(arrays, regions, kind, op, found)
            assert len(set(found[:count].tolist())) == count
            assert set(found[:count].tolist()) == twin(problem, op)
            assert not regions.met.any()


@given(problems())
def test_no_two_listed_jumps_are_the_same(problem):
    regions, arrays = regions_of(problem), arrays_of(problem)
    listed = candidates_of(problem, regions, 10_000)
    found = np.empty(problem.op_count, dtype=np.int32)
    seen = set()
    for kind, op, device in zip(listed.kind, listed.op, listed.device, strict=True):
        count = region_moves.members(arrays, regions, kind, op, found)
        seen.add((frozenset(found[:count].tolist()), int(device)))
    assert len(seen) == len(listed)
    assert len(candidates_of(problem, regions, 1)) == problem.device_count


@given(problems())
def test_a_region_is_described_by_the_sums_over_its_ops(problem):
    regions, weight = regions_of(problem), problem.op_time.min(axis=1)
    ops = np.arange(problem.op_count, dtype=np.int32)
    for kind, twin in TWINS:
        keys, weights = np.zeros(len(ops), dtype=np.int64), np.zeros(len(ops))
        kinds = np.full(len(ops), kind)
        region_moves.describe(arrays_of(problem), regions, weight, kinds, ops, keys, weights)
        for op in ops.tolist():
            inside = sorted(twin(problem, op))
            assert keys[op] == regions.key[inside].sum()
            assert weights[op] == pytest.approx(weight[inside].sum())


@given(problem=problems(), seed=st.integers(0, 9))
def test_a_jump_has_the_makespan_of_the_devices_it_leads_to(problem, seed):
    try:
        start = OnePlusOneEA().start(problem)
    except NoRoomError:
        return
    walk = Walk(problem, Budget(), seed, np.inf, start)
    regions = regions_of(problem)
    listed = candidates_of(problem, regions, 60)
    sequences = np.stack([walk.state.sequence])
    values = np.empty(len(listed))
    region_moves.move_values(
        walk.arrays, regions, walk.space, walk.state, walk.scratch, sequences,
        listed.kind, listed.op, listed.device, values,
    )  # fmt: skip
    assert walk.state.unit_device.tolist() == start.tolist()
    found = np.empty(problem.op_count, dtype=np.int32)
    for k, value in enumerate(values):
        count = region_moves.members(walk.arrays, regions, listed.kind[k], listed.op[k], found)
        device, at = int(listed.device[k]), start.copy()
        for unit in {int(problem.op_unit[op]) for op in found[:count]}:
            if walk.space.allowed[unit, device]:
                at[unit] = device
        if value == np.inf:
            assert (at == start).all() or (problem.free_memory(at) < 1e-9).any()
        else:
            finish = naive.time_sequence(problem, at[problem.op_unit], walk.state.sequence)[1]
            assert value == max(finish.values())


@given(problem=problems(), seed=st.integers(0, 9), gain=st.sampled_from([0.0, 0.5]))
def test_of_jumps_one_after_another_those_are_made_that_help(problem, seed, gain):
    try:
        start = OnePlusOneEA().start(problem)
    except NoRoomError:
        return
    walk = Walk(problem, Budget(), seed, np.inf, start)
    regions = regions_of(problem)
    listed = candidates_of(problem, regions, 60)
    sequences = np.stack([walk.state.sequence])
    value = float(walk.state.value[0])
    found = region_moves.descend(
        walk.arrays, regions, walk.space, walk.state, walk.scratch, sequences,
        listed.kind, listed.op, listed.device, np.full(len(listed), gain), value,
    )  # fmt: skip
    at, members = start.copy(), np.empty(problem.op_count, dtype=np.int32)
    for kind, op, device in zip(listed.kind, listed.op, listed.device.tolist(), strict=True):
        count = region_moves.members(walk.arrays, regions, kind, op, members)
        units = {int(problem.op_unit[each]) for each in members[:count]}
        there = at.copy()
        there[[unit for unit in units if walk.space.allowed[unit, device]]] = device
        if (there == at).all() or (problem.free_memory(there) < 0).any():
            continue
        finish = naive.time_sequence(problem, there[problem.op_unit], walk.state.sequence)[1]
        if max(finish.values()) <= value - gain:
            at, value = there, max(finish.values())
    assert walk.state.unit_device.tolist() == at.tolist()
    assert found == value
