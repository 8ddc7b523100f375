"""Modules at prices of memory: the least of makespan and what bytes cost, against brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.budget import Budget
from placewright.formulations.latency.incumbent import timed
from placewright.options import Options
from placewright.planners.latency.exact.cases import overfull
from placewright.planners.latency.exact.priced import TURNS, Priced
from placewright.planners.latency.first_incumbent import first_incumbent
from tests.naive import shortest_makespan
from tests.strategies import problems, tight, tiny

RESIDENT = st.builds(
    Options,
    transfer_unit=st.sampled_from(["tensor", "edge"]),
    contention=st.sampled_from(["none", "port", "link"]),
)
PRICES = st.sampled_from([0.0, 0.0, 0.25, 1.0, 3.0])


def least_cost(problem, price):
    """By trying every placement, each with its shortest makespan."""
    best = math.inf
    for devices in itertools.product(range(problem.device_count), repeat=problem.unit_count):
        kept = np.bincount(devices, problem.unit_memory, problem.device_count)
        if (kept > problem.device_memory).any():
            continue
        if np.isinf(problem.unit_time[np.arange(problem.unit_count), devices]).any():
            continue
        pinned = problem.with_pins(dict(enumerate(devices)))
        best = min(best, shortest_makespan(pinned) + float(price @ kept))
    return best


@settings(max_examples=40, deadline=None)
@given(st.one_of(tiny(RESIDENT), tight(problems(4, 3, options=Options()))), st.data())
def test_it_finds_and_proves_the_cheapest_plan(problem, data):
    assume(problem.device_count**problem.unit_count <= 81)
    price = np.array([data.draw(PRICES) for _ in problem.device_names])
    best = least_cost(problem, price)
    work = Priced(problem, price, len(TURNS), Budget())
    if data.draw(st.booleans()):
        work.start = first_incumbent(problem, 0, None, Budget())[0]
    started = work.start
    work.do()
    if math.isinf(best):
        assert work.found is None and work.low == math.inf
        return
    assert work.low <= best * (1 + 1e-9) + 1e-12
    assert work.low == pytest.approx(best, rel=1e-5, abs=1e-6)
    found = work.found or started
    assert not overfull(problem, found.placement)
    assert work.cost(found) == pytest.approx(best, rel=1e-5, abs=1e-6)
    again = timed(problem, found.placement)
    kept = np.bincount(again.placement.device, problem.op_memory, problem.device_count)
    assert work.cost(found) == pytest.approx(again.value + price @ kept)


@settings(max_examples=20, deadline=None)
@given(tiny(RESIDENT), st.data())
def test_one_that_is_stopped_has_a_bound(problem, data):
    assume(problem.device_count**problem.unit_count <= 81)
    price = np.array([data.draw(PRICES) for _ in problem.device_names])
    work = Priced(problem, price, len(TURNS), Budget())
    work.stop()
    work.do()
    assert work.found is None
    assert work.low <= least_cost(problem, price) * (1 + 1e-9) + 1e-12
