"""Regions in slots of time: the kernel against its twin, what it rules out against brute force."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.bounds.latency.relaxation import slots
from placewright.bounds.latency.relaxation.fan_out import (
    _receivers,
    bound_by_arrivals,
    bound_by_copies,
    fan_out_of,
)
from placewright.bounds.latency.relaxation.forest import forest_of
from placewright.bounds.latency.relaxation.network import network_of
from placewright.bounds.latency.relaxation.regions import Regions
from placewright.bounds.latency.relaxation.slots import bound_in_slots
from placewright.budget import Budget
from placewright.kernels.latency.bound_fan_out import heads_and_tails
from placewright.kernels.latency.bound_slots import SURE, Copies, slots_bound
from tests import naive
from tests.bounds.latency.relaxation.test_relaxation import EXACT
from tests.bounds.latency.relaxation.test_repeated_regions import (
    between_two_ends,
    fan_out_problems,
    fan_outs,
    model,
    repeated_blocks,
)
from tests.naive import copies as naive_copies
from tests.naive import slots as naive_slots

ENDLESS = Budget()


class Region:
    """A problem between its ends as a forest, with the copies that may be sent."""

    def __init__(self, problem, data):
        self.problem, self.first, self.last, self.network, self.ops, self.fan_out = (
            between_two_ends(problem, data)
        )
        if self.fan_out is None:
            return
        self.routes = self.network.routes
        part, self.reader = self.fan_out.part, self.fan_out.readers(self.first, self.last)
        head, tail = heads_and_tails(part, self.routes, self.first, self.last, part.closed > 0)
        self.forest = forest_of(part, self.reader, head, tail)
        self.send = self.routes.latency[self.first] + (
            self.fan_out.size * self.routes.per_byte[self.first]
        )
        self.send[self.first] = 0.0
        said = st.sampled_from([-1, 0, 1])
        self.copy = np.array([data.draw(said) for _ in range(problem.device_count)])
        self.copy[self.first] = -1
        if self.reader[-1]:
            self.copy[self.last] = 1

    def value(self, copies, horizon, each, weight, memory, steps):
        return slots_bound(
            self.forest, self.routes, self.first, self.last, copies, horizon, each, weight,
            memory, steps,
        )[0]  # fmt: skip


def prices(data, region, intervals):
    devices = region.problem.device_count
    rows = devices + region.routes.channel_count
    number = st.sampled_from([0.0, 0.25, 1.0, 3.0])
    weight = np.array([[data.draw(number) for _ in range(intervals)] for _ in range(rows)]) + 1e-3
    memory = np.array([data.draw(number) for _ in range(devices)])
    total = weight.sum() + memory.sum()
    return weight / total, memory / total


@settings(max_examples=30)
@given(problem=st.one_of(fan_out_problems(), repeated_blocks()), data=st.data())
def test_a_value_is_that_of_the_twin(problem, data):
    region = Region(problem, data)
    if region.fan_out is None:
        return
    intervals, each = data.draw(st.sampled_from([(1, 1), (1, 2), (2, 2), (3, 1)]))
    weight, memory = prices(data, region, intervals)
    horizon = data.draw(st.sampled_from([1.0, 2.5, 6.0])) * max(float(region.send.max()), 0.5)
    low = region.send * data.draw(st.sampled_from([1.0, 1.5]))
    high = np.where(np.arange(len(low)) % 2 == 0, np.inf, low + 0.5 * horizon)
    copies = Copies(region.send, region.copy, low, high)
    twin = naive_slots.value(
        region.forest, region.routes, region.first, region.last, copies, horizon, each, weight,
        memory,
    )  # fmt: skip
    found = region.value(copies, horizon, each, weight, memory, 1)
    assert found == pytest.approx(twin, rel=1e-9, abs=1e-12)


@settings(max_examples=40)
@given(problem=fan_out_problems(), data=st.data())
def test_nothing_is_ruled_out_that_has_a_schedule(problem, data):
    region = Region(problem, data)
    if region.fan_out is None:
        return
    readers = region.network.order[region.ops[region.reader]].tolist()
    optimum = naive_copies.shortest_with_copies(region.problem, readers, region.copy)
    if not 0.0 < optimum < np.inf:
        return
    intervals, each = data.draw(st.sampled_from([(1, 1), (4, 1), (3, 5), (8, 4)]))
    weight, memory = prices(data, region, intervals)
    copies = Copies(region.send, region.copy, region.send, np.full(len(region.send), np.inf))
    horizon = optimum * data.draw(st.sampled_from([1.0001, 1.1, 1.5]))
    assert region.value(copies, horizon, each, weight, memory, 60) <= SURE


@settings(max_examples=40)
@given(problem=fan_outs(), data=st.data())
def test_all_cases_of_copies_and_times_bound_the_region(problem, data):
    region = Region(problem, data)
    if region.fan_out is None:
        return
    optimum = naive.shortest_makespan(region.problem)
    known = data.draw(st.sampled_from([0.2, 0.7, 1.0])) * optimum
    receivers = _receivers(region.fan_out, region.network, region.first, region.last)
    with mock.patch.object(slots, "MOST_WORK", 3_000_000):
        bound = bound_in_slots(
            region.fan_out.part, region.reader, receivers, region.routes,
            (region.first, region.last), known, ENDLESS,
        )  # fmt: skip
    assert known <= bound <= optimum * (1 + EXACT)


def attention(name="gpt3-330m"):
    network = network_of(model(1, name))
    regions = Regions.of(network)
    for region in np.argsort(-regions.count).tolist():
        ops = regions.ops(region)
        fan_out = fan_out_of(network, ops, regions.part(ops))
        if fan_out is not None:
            return network, fan_out
    raise AssertionError("no region begins with a tensor that many read")


def test_equal_heads_are_one_tree():
    network, fan_out = attention()
    shut = fan_out.part.closed > 0
    head, tail = heads_and_tails(fan_out.part, network.routes, 0, 0, shut)
    forest = forest_of(fan_out.part, fan_out.reader, head, tail)
    assert (forest.parent < 0).sum() == 1
    assert forest.times.sum() == len(fan_out.part.time) - 2
    assert len(forest.time) * forest.times[0] == len(fan_out.part.time) - 2
    behind = forest.parent > np.arange(len(forest.parent))
    assert behind[:-1].all()


def test_heads_that_wait_for_copies_take_longer_than_all_devices_share_them():
    network, fan_out = attention()
    by_devices = bound_by_copies(fan_out, network, 0, 0, 0.0, ENDLESS)
    with mock.patch.object(slots, "MOST_WORK", 40_000_000):
        in_slots = bound_by_arrivals(fan_out, network, 0, 0, by_devices, ENDLESS)
    assert in_slots > 1.1 * by_devices


def test_a_part_that_takes_no_time_is_left_as_it_is():
    network, fan_out = attention()
    receivers = _receivers(fan_out, network, 0, 0)
    found = bound_in_slots(
        fan_out.part, fan_out.reader, receivers, network.routes, (0, 0), 0.0, ENDLESS
    )
    assert found == 0.0
