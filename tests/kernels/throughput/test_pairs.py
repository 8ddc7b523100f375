"""The dynamic program over two devices' loads against all ways to share their units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.analysis.contracted import unit_graph
from placewright.planners.throughput import pairs
from tests.builders import throughput_chain as chain
from tests.kernels.throughput.test_loads import random_devices
from tests.naive.max_load import all_sharings, busy_seconds
from tests.strategies.throughput import pipelines


@st.composite
def shared_pairs(draw, max_ops=7):
    """A problem that pairs are for, a placement, two devices and a cap no lower than theirs."""
    problem = draw(pipelines(max_ops, 3, contiguous=False, memory=False))
    options = replace(problem.options, load="sum", schedule="pipedream")
    problem = replace(problem, options=options, staging="host")
    here = random_devices(draw, problem)
    if here is None or problem.device_count < 2:
        return None
    devices = draw(st.permutations(range(problem.device_count)))[:2]
    now = busy_seconds(problem, here)[list(devices)]
    cap = float(now.max()) * draw(st.sampled_from([1.0, 1.1, 3.0])) * (1 + 1e-9)
    return problem, here, tuple(devices), now, cap


def found_in(case):
    problem, here, devices, now, cap = case
    return pairs.sharings(unit_graph(problem), here, devices, now, cap)


@given(shared_pairs())
def test_every_pair_of_loads_is_that_of_its_placement(case):
    if case is None or case[-1] <= 0.0 or (sharing := found_in(case)) is None:
        return
    problem, here, devices, _, cap = case
    places = np.flatnonzero(np.isfinite(sharing.loads[1]))
    assert len(places) > 0  # the placement itself is one
    for place in places.tolist():
        placed = sharing.placed(here, place)
        outside = ~np.isin(here, devices)
        assert np.array_equal(placed[outside], here[outside])
        loads = busy_seconds(problem, placed)[list(devices)]
        assert loads == pytest.approx(sharing.loads[:, place], abs=1e-9)
        assert loads.max() <= cap * (1 + 1e-9)


@given(shared_pairs())
def test_no_way_to_share_is_better_than_the_ways_found(case):
    if case is None or case[-1] <= 0.0 or (sharing := found_in(case)) is None:
        return
    problem, here, devices, _, cap = case
    # A bin keeps one way: its first load may be off by a bin's width at every step.
    off = (len(sharing.units) + 1) * cap / (sharing.loads.shape[1] - 1)
    for _, (one, two) in all_sharings(problem, here, devices):
        if max(one + off, two) <= cap:
            as_good = (sharing.loads[0] <= one + off) & (sharing.loads[1] <= two + 1e-9)
            assert as_good.any()


def test_a_pair_whose_units_all_share_nets_is_left_to_others(monkeypatch):
    problem = chain()
    graph = unit_graph(problem)
    here = np.zeros(problem.unit_count, dtype=np.int32)
    now = busy_seconds(problem, here)[[0, 1]]
    assert pairs.sharings(graph, here, (0, 1), now, float(now.max())) is not None
    monkeypatch.setattr(pairs, "MOST_WIDTH", 0)
    assert pairs.sharings(graph, here, (0, 1), now, float(now.max())) is None
