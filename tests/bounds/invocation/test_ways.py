"""The shortest way over a chain is that of all ways, and what lies between counts as it should."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.bounds.invocation.beside import Combinations
from placewright.bounds.invocation.ways import Ways
from tests.naive.invocation_ways import least_seconds

SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0, math.inf])
NEVER = st.just(math.inf)


def array(draw, shape, seconds=SECONDS):
    size = math.prod(shape)
    return np.array(draw(st.lists(seconds, min_size=size, max_size=size))).reshape(shape)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_the_shortest_way_is_that_of_all_ways(data):
    places, kinds = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    slots = data.draw(st.lists(st.integers(1, 2), min_size=kinds, max_size=kinds))
    paces = np.array(data.draw(st.sampled_from([[0, 0, 0], [0, 1, 1], [0, 1, 2]]))[:kinds])
    combinations = Combinations.of(slots, paces, places, ops=2)
    groups = combinations.count.shape[1]
    length = array(data.draw, (kinds, places, places))
    on_cpu = array(data.draw, (places,))
    ops = data.draw(st.lists(st.integers(0, 1), min_size=places + 1, max_size=places + 1))
    turns = np.array(data.draw(st.lists(st.booleans(), min_size=places, max_size=places)))
    between = SimpleNamespace(
        combinations=combinations,
        ops=[range(count) for count in ops],
        apart=array(data.draw, (places + 1, kinds + 1, kinds + 1)),
        beside=array(data.draw, (places + 1, len(combinations.count), groups + 1, groups + 1)),
        least=array(data.draw, (places + 1,)),
        is_mixed=np.array(
            data.draw(st.lists(st.booleans(), min_size=places + 1, max_size=places + 1))
        ),
    )
    number = {tuple(count): each for each, count in enumerate(combinations.count.tolist())}
    group = [*combinations.group.tolist(), groups]

    def seconds(place, holder, kind, beside):
        turning = 0 < place < places and turns[place]
        if any(beside) and (turning or between.is_mixed[place] or not ops[place]):
            return math.inf
        if turning:
            return (between.least[place],)
        if between.is_mixed[place]:
            return between.least[place]
        if not any(beside):
            return between.apart[place, holder, kind]
        if beside not in number:
            return math.inf
        return between.beside[place, number[beside], group[holder], group[kind]]

    found, runs = Ways(slots, paces, turns, between).shortest(length, on_cpu)
    assert found == pytest.approx(least_seconds(length, on_cpu, slots, paces.tolist(), seconds))
    if found < math.inf:
        inside = [place for _, first, last in runs for place in range(first, last + 1)]
        assert len(set(inside)) == len(inside)
        assert all(length[run] < math.inf for run in runs)


def test_combinations_are_all_of_a_size_or_none():
    """Of 12 paces there are 66 pairs and 220 triples; beyond the limit all count as one pace."""
    few = Combinations.of([1, 2], np.array([0, 1]), places=10, ops=3)
    assert {tuple(each) for each in few.count.tolist()} == {
        (0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2),
    }  # fmt: skip
    assert not few.is_cut_off
    assert not few.stand_for_more(9).any()
    many = Combinations.of([1] * 12, np.arange(12), places=10, ops=9)
    assert many.count.tolist() == [[each] for each in range(10)]
    assert not many.is_cut_off


def test_more_subgraphs_than_are_counted_take_no_less_than_the_critical_path():
    """Of 20 accelerators up to 16 beside two others are told apart."""
    found = Combinations.of([20], np.array([0]), places=3, ops=18)
    assert found.size.tolist() == list(range(17))
    assert found.is_cut_off
    assert found.stand_for_more(18).tolist() == [False] * 16 + [True]
    assert not found.stand_for_more(16).any()
