"""What is joined on the way to a coarser level, against twins that look at every edge."""

from graphlib import TopologicalSorter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.multilevel_matching import (
    heads_and_tails,
    join_pairs,
    join_units,
    ordered,
)
from tests.naive import multilevel as naive_multilevel
from tests.strategies import TIMES, problems


def edges_of(problem):
    """The different pairs of ops that an edge leads from one to the other of, by source."""
    pairs = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    return sorted(set(pairs))


def columns(pairs):
    both = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


def listed(count, keys, values):
    """CSR `(offsets[key], values)` of pairs."""
    order = np.argsort(keys, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=count))])
    return offsets.astype(np.int64), values[order]


def drawn_list(data, values, size):
    return data.draw(st.lists(values, min_size=size, max_size=size))


@given(problem=problems(), data=st.data())
def test_heads_and_tails_are_the_longest_paths_to_and_from_each_op(problem, data):
    n, edges = problem.op_count, edges_of(problem)
    weight, cost = drawn_list(data, TIMES, n), drawn_list(data, TIMES, len(edges))
    offsets, readers = listed(n, *columns(edges))
    head, tail = heads_and_tails(
        problem.topological_order, np.array(weight), offsets, readers, np.array(cost, dtype=float)
    )
    costly = [(a, b, seconds) for (a, b), seconds in zip(edges, cost, strict=True)]
    heads, tails = naive_multilevel.heads_and_tails(costly, dict(enumerate(weight)))
    assert head.tolist() == pytest.approx([heads[op] for op in range(n)])
    assert tail.tolist() == pytest.approx([tails[op] for op in range(n)])


@given(problem=problems(), data=st.data())
def test_pairs_are_joined_as_the_twin_joins_them_and_leave_no_circle(problem, data):
    n, edges = problem.op_count, edges_of(problem)
    depth = naive_multilevel.depths(n, edges)
    one_level = [(a, b) for a in range(n) for b in range(a) if depth[a] == depth[b]]
    joinable = [(a, b) for a, b in edges if depth[b] == depth[a] + 1] + one_level
    pairs = data.draw(st.permutations(joinable))
    units = problem.unit_count
    memory = drawn_list(data, st.sampled_from([0.0, 1.0, 2.0]), units)  # sums of these are exact
    weight = drawn_list(data, st.sampled_from([0.5, 1.0, 4.0]), units)
    allowed = drawn_list(data, st.sets(st.integers(0, 2), min_size=1), units)
    limits = data.draw(st.sampled_from([(2.0, 4.0), (4.0, 8.0), (99.0, 99.0)]))
    least = data.draw(st.sampled_from([1, n // 2]))
    source, target = columns(edges)
    bits = np.array([sum(1 << d for d in each) for each in allowed], dtype=np.uint64)
    partner = join_pairs(
        *columns(pairs), np.array(depth, dtype=np.int32), *listed(n, source, target),
        *listed(n, target, source), problem.op_unit, np.arange(units, dtype=np.int32),
        np.array(memory), np.array(weight), bits, *limits, least,
    )  # fmt: skip
    expected = naive_multilevel.join_pairs(
        pairs, depth, edges, problem.op_unit.tolist(), memory, weight, allowed, limits, least
    )
    assert partner.tolist() == expected
    group = [min(op, other) for op, other in enumerate(expected)]
    before = {group[b]: {group[a] for a, c in edges if group[c] == group[b]} for _, b in edges}
    TopologicalSorter({g: others - {g} for g, others in before.items()}).prepare()


@given(data=st.data(), count=st.integers(1, 8))
def test_units_are_joined_as_the_twin_joins_them(data, count):
    unit = st.integers(0, count - 1)
    pairs = data.draw(st.lists(st.tuples(unit, unit), max_size=12))
    mass = drawn_list(data, st.sampled_from([0.5, 1.0, 2.0]), count)
    most = data.draw(st.sampled_from([1.0, 2.0, 3.0]))
    found = join_units(*columns(pairs), np.array(mass), most)
    assert found.tolist() == naive_multilevel.join_units(pairs, mass, most)


@given(problem=problems(), data=st.data())
def test_of_the_ready_ops_that_of_the_lowest_place_comes_first(problem, data):
    place = np.array(data.draw(st.permutations(range(problem.op_count))), dtype=np.int32)
    waiting = np.bincount(problem.consumers, minlength=problem.op_count)
    found = ordered(arrays_of(problem), waiting, place)
    assert found.tolist() == naive_multilevel.ordered(problem, place)
