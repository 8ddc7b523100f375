"""The kernels behind bounds by regions against their naive twins."""

import math

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from placewright.bounds.latency.relaxation.network import network_of
from placewright.bounds.latency.relaxation.regions import Regions
from placewright.errors import InfeasibleError
from placewright.kernels.latency.bound_chain import cheapest_chain, pair_values
from placewright.kernels.latency.bound_paths import (
    arrivals,
    mark_arcs,
    mark_between,
    measure_regions,
    meeting_points,
    remainders,
)
from placewright.kernels.latency.dual_ascent import add_loads, pair_prices, region_bound, sweep
from tests import naive
from tests.naive import relaxation as naive_relaxation
from tests.strategies import problems

EXACT = 1e-9


def edges_of(network):
    return list(zip(network.net.tail.tolist(), network.net.head.tolist(), strict=True))


def prices_of(draw, size):
    return np.array(draw(st.lists(st.floats(0.0, 1.0), min_size=size, max_size=size)))


@settings(max_examples=30)
@given(problem=problems(max_ops=5, max_devices=2), data=st.data())
def test_sweeps_never_price_placements_too_high_and_rise(problem, data):
    network = network_of(problem)
    part, routes = network.part(np.arange(network.count)), network.routes
    devices, edges = network.device_count, len(part.tail)
    unary = part.time * prices_of(data.draw, devices) + part.closed
    flow = prices_of(data.draw, edges)
    price, channel_price = np.empty((devices, devices)), prices_of(data.draw, routes.channel_count)
    pair_prices(routes, channel_price, price)
    assert np.allclose(price, naive_relaxation.pair_prices(routes, channel_price))
    cheapest = naive_relaxation.cheapest_placement(part, routes, unary, flow, price)
    back, ahead = np.zeros((2, edges, devices))
    label = np.empty(network.count, dtype=np.int64)
    last = -math.inf
    for _ in range(4):
        bound = sweep(part, routes, unary, flow, price, back, ahead, np.empty_like(unary), label)
        assert last - EXACT <= bound <= cheapest + EXACT
        last = bound


@settings(max_examples=25)
@given(problem=problems(max_ops=8, max_devices=3), data=st.data())
def test_loads_are_those_of_the_twin(problem, data):
    network = network_of(problem)
    part, routes = network.part(np.arange(network.count)), network.routes
    devices = network.device_count
    one = st.integers(0, devices - 1)
    label = np.array(data.draw(st.lists(one, min_size=network.count, max_size=network.count)))
    load, used = np.zeros(devices), np.zeros(devices)
    busy = np.zeros(routes.channel_count)
    add_loads(part, routes, label, load, busy, used)
    for got, expected in zip(
        (load, busy, used), naive_relaxation.loads(part, routes, label), strict=True
    ):
        assert np.allclose(got, expected)


@settings(max_examples=25)
@given(problem=problems(max_ops=5, max_devices=2))
def test_the_bound_of_a_region_is_below_the_optimum_of_the_whole(problem):
    try:
        problem.check_feasible()
    except InfeasibleError:
        reject()
    network = network_of(problem)
    part = network.part(np.arange(network.count))
    bound, _ = region_bound(part, network.routes, -1, -1, 40, 0.0)
    assert bound <= naive.shortest_makespan(problem) * (1 + EXACT)


@settings(max_examples=25)
@given(data=st.data(), steps=st.integers(1, 4), devices=st.integers(1, 3))
def test_the_cheapest_chain_is_that_of_the_twin(data, steps, devices):
    costs = st.sampled_from([0.0, 0.5, 1.0, 2.0, math.inf])
    size = steps * devices * devices
    cost = np.array(data.draw(st.lists(costs, min_size=size, max_size=size)))
    cost = cost.reshape(steps, devices, devices)
    label = np.empty(steps + 1, dtype=np.int64)
    value = cheapest_chain(cost, label)
    assert value == naive_relaxation.cheapest_chain(cost)
    if math.isfinite(value):
        assert value == sum(cost[k, label[k], label[k + 1]] for k in range(steps))


@settings(max_examples=20)
@given(problem=problems(max_ops=4, max_devices=2), data=st.data())
def test_values_of_pairs_are_below_those_of_placements_with_both_ends_there(problem, data):
    network = network_of(problem)
    part, routes = network.part(np.arange(network.count)), network.routes
    devices, edges = network.device_count, len(part.tail)
    unary = part.time * prices_of(data.draw, devices) + part.closed
    price = np.empty((devices, devices))
    pair_prices(routes, prices_of(data.draw, routes.channel_count), price)
    back, ahead = np.zeros((2, devices, devices, edges, devices))
    least = np.zeros((devices, devices))
    pair_values(
        part, routes, unary, price, np.ones((devices, devices), dtype=bool),
        back, ahead, least, np.zeros((devices, devices, network.count), dtype=np.int64),
    )  # fmt: skip
    for a in range(devices):
        for b in range(devices):
            pinned = unary.copy()
            pinned[0, np.arange(devices) != a] = math.inf
            pinned[-1, np.arange(devices) != b] = math.inf
            twin = naive_relaxation.cheapest_placement(part, routes, pinned, np.zeros(edges), price)
            assert least[a, b] <= twin + EXACT


@settings(max_examples=30)
@given(problem=problems(max_ops=9, max_devices=1))
def test_paths_meet_where_the_twin_says(problem):
    network = network_of(problem)
    points = meeting_points(network.count, network.net.out_offsets, network.net.head)
    edges = edges_of(network)
    for op in range(network.count - 1):
        assert points[op] == naive_relaxation.meeting_point(edges, network.count, op)


@settings(max_examples=30)
@given(problem=problems(max_ops=9, max_devices=1), data=st.data())
def test_what_lies_between_two_ops_is_on_a_path_from_one_to_the_other(problem, data):
    network = network_of(problem)
    first = data.draw(st.integers(0, network.count - 2))
    last = data.draw(st.integers(first + 1, network.count - 1))
    mark = np.empty(last - first + 1, dtype=np.uint8)
    count = mark_between(first, last, network.net.out_offsets, network.net.head, mark)
    expected = naive_relaxation.between(edges_of(network), first, last)
    assert set((first + np.flatnonzero(mark)).tolist()) == expected
    assert count == len(expected)


@settings(max_examples=25)
@given(problem=problems(max_ops=7, max_devices=3), data=st.data())
def test_what_lies_between_two_ops_takes_as_long_as_on_the_best_single_device(problem, data):
    network = network_of(problem)
    last_op = network.count - 1
    ends = st.tuples(st.integers(0, last_op), st.integers(0, last_op)).filter(lambda e: e[0] < e[1])
    first, last = np.array(data.draw(st.lists(ends, min_size=1, max_size=4))).T
    edges, time = edges_of(network), network.net.time
    count, seconds = measure_regions(
        first, last, network.net.out_offsets, network.net.head, time, network.closed,
        network.share, 10.0,
    )  # fmt: skip
    for k, region in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        assert count[k] == len(naive_relaxation.between(edges, *region))
        expected = naive_relaxation.seconds_alone(
            edges, time.tolist(), network.closed.tolist(), network.share.tolist(), 10.0, *region
        )
        assert seconds[k] == pytest.approx(expected)


@settings(max_examples=25)
@given(problem=problems(max_ops=7, max_devices=3), data=st.data())
def test_ends_and_rests_over_arcs_are_those_of_the_twins(problem, data):
    network = network_of(problem)
    net, routes, closed = network.net, network.routes, network.closed
    regions = Regions.of(network)
    costs = st.lists(
        st.sampled_from([0.0, 1.0, 3.0]), min_size=regions.cost.size, max_size=regions.cost.size
    )
    cost = np.array(data.draw(costs)).reshape(regions.cost.shape)
    arcs = list(zip(regions.first.tolist(), regions.last.tolist(), cost, strict=True))
    ends, via, _ = arrivals(net, routes, closed, regions.offsets, regions.first, cost)
    assert np.allclose(ends, naive_relaxation.earliest_ends(net, routes, closed, arcs))
    used = np.zeros(len(arcs), dtype=np.bool_)
    mark_arcs(via, closed, net.tail, regions.first, used)
    below = naive_relaxation.arcs_below(via, closed, net.tail, regions.first)
    assert set(np.flatnonzero(used).tolist()) == below
    by_first = np.argsort(regions.first, kind="stable")
    offsets = np.searchsorted(regions.first[by_first], np.arange(network.count + 1))
    rest = remainders(net, routes, closed, offsets, by_first, regions.last, cost)
    assert np.allclose(rest, naive_relaxation.least_rest(net, routes, closed, arcs))
