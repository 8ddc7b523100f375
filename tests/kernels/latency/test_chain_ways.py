"""Shortest ways along a chain against every way there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.bounds.latency.ways import Along
from placewright.kernels.latency.chain_ways import shortest_way
from tests.naive import chain_ways as naive


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    places=st.integers(1, 5),
    kinds=st.integers(1, 3),
    spans=st.integers(0, 3),
)
def test_the_shortest_way_is_that_of_the_twin(seed, places, kinds, spans):
    draw = np.random.default_rng(seed)

    def costs(*shape):
        return np.where(draw.random(shape) < 0.15, np.inf, draw.integers(0, 9, shape) / 2.0)

    away, split, start = costs(places, kinds, kinds), costs(places, kinds), costs(kinds)
    begin, cheapest = costs(places, kinds), draw.integers(0, 3, places).astype(float)
    before = np.cumsum(draw.integers(0, 9, (places, kinds)), axis=0).astype(float)
    first = np.minimum(draw.integers(0, places, (places, kinds)), np.arange(places)[:, None])
    ends = np.sort(draw.integers(0, places, (spans, 2)), axis=1)
    time = draw.integers(0, 9, (spans, kinds)).astype(float)
    along = Along.of(ends, time, places)
    end, source, opened = shortest_way(
        first, away, split, start, begin, before, cheapest, along.offsets, along.low, along.seconds
    )
    listed = [(int(low), int(high), each) for (low, high), each in zip(ends, time, strict=True)]
    twin = (away, split, start, begin, before, cheapest, listed)
    assert end[-1].tolist() == pytest.approx(naive.shortest(places, kinds, first, *twin))
    for kind in np.flatnonzero(np.isfinite(end[-1])).tolist():
        way, place, on = [], places - 1, kind
        while place >= 0:
            way.append((int(opened[place, on]), place, on))
            place, on = way[-1][0] - 1, int(source[way[-1][0], on])
        assert naive.seconds_of(way[::-1], *twin) == pytest.approx(end[-1, kind])


def test_what_runs_to_a_place_is_told_with_where_it_begins():
    along = Along.of(
        np.array([[0, 2], [1, 2], [0, 2], [0, 1]]), np.array([[1.0], [2], [3], [4]]), 4
    )
    found = [[(low, time.tolist()) for low, time in along.to(place)] for place in range(4)]
    assert found == [[], [(0, [4.0])], [(0, [4.0]), (1, [2.0])], []]
