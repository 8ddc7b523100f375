"""Regions that repeat, are large, or begin with a tensor for many: bounds against brute force."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.bounds.latency.relaxation import lagrangian, prove, slots, warm_up_bounds
from placewright.bounds.latency.relaxation.candidates import candidates
from placewright.bounds.latency.relaxation.fan_out import (
    bound_by_arrivals,
    bound_by_copies,
    fan_out_of,
)
from placewright.bounds.latency.relaxation.isomorphic import by_first
from placewright.bounds.latency.relaxation.lagrangian import Chain, Prices, Pricing
from placewright.bounds.latency.relaxation.network import network_of
from placewright.bounds.latency.relaxation.paths import settle
from placewright.bounds.latency.relaxation.regions import BOUNDED, Regions, _pairs_like
from placewright.budget import Budget
from placewright.kernels.latency.bound_fan_out import case_bound, heads_and_tails
from placewright.kernels.latency.bound_paths import mark_cuts
from tests import naive
from tests.bounds.latency.relaxation.test_relaxation import (
    EXACT,
    SOLVED,
    assert_nothing_proved_is_above_the_optimum,
    optimum_of,
    problem_of,
    regions_of,
    value_when_solved,
)
from tests.naive import copies as naive_copies
from tests.strategies import problems

ENDLESS = Budget()
FAN_OUT = "placewright.bounds.latency.relaxation.fan_out"
SOLVING = "placewright.bounds.latency.relaxation.solving"
TIMES = st.sampled_from([0.0, 0.5, 1.0, 2.0])


@st.composite
def repeated_blocks(draw):
    """Two or three equal blocks in a row, each one op, what it feeds, and what reads all that."""
    branches, blocks = draw(st.sampled_from([(2, 2), (3, 2), (2, 3)]))
    length = branches + 1
    n = blocks * length + 1
    one_tensor = draw(st.booleans())
    joined = draw(st.booleans())  # an edge between two branches
    edges = {}
    for block in range(blocks):
        fan_out = block * length
        inner = list(range(fan_out + 1, fan_out + length))
        edges[fan_out] = [inner] if one_tensor else [[op] for op in inner]
        for op in inner:
            edges[op] = [[fan_out + length]]
        if joined:
            edges[inner[0]] = [[inner[1], fan_out + length]]
    problem = problem_of(draw, edges, n, memory=draw(st.booleans()))
    like = [0, *((op - 1) % length + 1 for op in range(1, n))]
    size = [float(problem.tensor_bytes[0])] * len(problem.tensor_bytes)
    return replace(problem, op_time=problem.op_time[like], tensor_bytes=np.array(size))


@st.composite
def fan_out_problems(draw):
    """An op that feeds all others with one tensor, some of which feed each other, and an end.

    The end may read that tensor too.
    """
    middle = draw(st.integers(2, 4))
    edges = {0: [list(range(1, middle + 1))]}
    for op in range(1, middle + 1):
        further = draw(st.booleans()) and op < middle
        edges[op] = [[op + 1, middle + 1] if further else [middle + 1]]
    if draw(st.booleans()):
        edges[0] = [list(range(1, middle))]
        edges[1] = [sorted({*edges[1][0], middle})]
    if draw(st.booleans()):
        edges[0][0].append(middle + 1)
    devices = draw(st.integers(2, 3 if middle < 4 else 2))
    return problem_of(draw, edges, middle + 2, devices, memory=draw(st.booleans()))


def of_equal_devices(problem):
    """The same with all devices and all routes alike."""
    devices = problem.device_count
    per_byte = problem.link_seconds_per_byte[0, 1] * (1.0 - np.eye(devices))
    time = np.repeat(problem.op_time[:, :1], devices, axis=1)
    return replace(problem, op_time=time, link_seconds_per_byte=per_byte)


def looking_closely():
    """All that is for large regions is done to small ones."""
    names = (
        "regions.LARGE",
        "solving.MOST_SEARCHED",
        "paths.MOST_SEARCHED",
        "fan_out.FEWEST_READERS",
    )
    values = (2, 0, 0, 2)
    return [
        mock.patch(f"placewright.bounds.latency.relaxation.{name}", value)
        for name, value in zip(names, values, strict=True)
    ]


@settings(max_examples=20)
@given(problem=repeated_blocks())
def test_nothing_proved_of_equal_blocks_is_above_the_optimum(problem):
    assert_nothing_proved_is_above_the_optimum(problem)


@settings(max_examples=25)
@given(
    problem=st.one_of(
        repeated_blocks(),
        fan_out_problems(),
        fan_out_problems().map(of_equal_devices),
        problems(6, 3),
        repeated_blocks().map(of_equal_devices),
    ),
    searched=st.booleans(),
)
def test_nothing_proved_of_large_regions_is_above_the_optimum(problem, searched):
    """With or without a search of what was bounded closer."""
    first, second, third, fourth = looking_closely()
    most = 70 if searched else 0
    fifth = mock.patch.multiple(SOLVING, MOST_SEARCHED=most, MOST_PLACES=0)
    with first, second, third, fourth, fifth:
        assert_nothing_proved_is_above_the_optimum(problem)


@settings(max_examples=20)
@given(problem=repeated_blocks())
def test_what_is_found_of_one_region_is_valid_for_its_twins(problem):
    optimum = optimum_of(problem)
    assert value_when_solved(problem, 4) <= optimum * (1 + SOLVED)


@settings(max_examples=20)
@given(problem=repeated_blocks(), data=st.data())
def test_prices_of_equal_regions_are_those_of_each_by_itself(problem, data):
    network, regions = regions_of(problem)
    steps = settle(network, regions, ENDLESS).steps()
    size = 1 + network.device_count + network.routes.channel_count
    weights = st.lists(st.floats(0.001, 1.0), min_size=size, max_size=size)
    weight = np.array(data.draw(weights))
    prices = Prices(weight / weight.sum(), np.zeros(network.device_count))
    together = Chain(network, regions, steps)
    with mock.patch.object(lagrangian, "digest_of", lambda part: id(part)):
        apart = Chain(network, regions, steps)
    assert sum(len(at) for at, _ in together.inside) == len(apart.inside)
    found = [Pricing(chain, chain.durations(), {}).value(prices) for chain in (together, apart)]
    for one, other in zip(*found, strict=True):
        assert np.allclose(one, other)


def fan_outs():
    """Devices of all sorts, or all alike."""
    return st.one_of(fan_out_problems(), fan_out_problems().map(of_equal_devices))


@settings(max_examples=30)
@given(problem=fan_out_problems(), data=st.data())
def test_a_case_is_no_longer_than_the_best_schedule_with_these_copies(problem, data):
    problem, first, last, network, ops, fan_out = between_two_ends(problem, data)
    if fan_out is None:
        return
    said = st.sampled_from([-1, 0, 1])
    copy = np.array([data.draw(said) for _ in range(problem.device_count)])
    copy[first] = -1
    routes = network.routes
    send = routes.latency[first] + fan_out.size * routes.per_byte[first]
    send[first] = 0.0
    weight = np.full(1 + 3 * problem.device_count + 2 * routes.channel_count, 0.1)
    reader = fan_out.readers(first, last)
    bound = case_bound(
        fan_out.part, routes, first, last, reader, send, copy, weight, 60, np.inf, 0.0
    )
    readers = (network.order[ops[reader]]).tolist()
    optimum = naive_copies.shortest_with_copies(problem, readers, copy)
    assert bound <= optimum * (1 + EXACT)


def between_two_ends(problem, data):
    """The region from the first op to the last, both on a device, in no time.

    The problem with these ends, their devices, its network, the region's ops and what fans out.
    """
    device = st.integers(0, problem.device_count - 1)
    first, last = data.draw(device), data.draw(device)
    problem = naive_copies.timeless_ends(problem, first, last)
    network = network_of(problem)
    ops = np.arange(1, network.count - 1)
    part = network.part(ops, (1, network.count - 2))
    part.closed[[0, -1]] = 0.0
    with mock.patch(f"{FAN_OUT}.FEWEST_READERS", 2):
        return problem, first, last, network, ops, fan_out_of(network, ops, part)


@settings(max_examples=40)
@given(problem=fan_outs(), data=st.data())
def test_all_cases_together_bound_the_region_between_its_ends(problem, data):
    problem, first, last, network, _, fan_out = between_two_ends(problem, data)
    if fan_out is None:
        return
    best = naive.shortest_makespan(problem) * (1 + EXACT)
    bound = bound_by_copies(fan_out, network, first, last, 0.0, ENDLESS)
    assert bound <= best
    assert bound_by_arrivals(fan_out, network, first, last, bound, ENDLESS) <= best


@settings(max_examples=25)
@given(problem=problems(max_ops=6, max_devices=3), data=st.data())
def test_heads_and_tails_are_those_of_the_twin(problem, data):
    network = network_of(problem)
    part = network.part(np.arange(network.count))
    first = data.draw(st.integers(0, problem.device_count - 1))
    last = data.draw(st.integers(-1, problem.device_count - 1))
    head, tail = heads_and_tails(part, network.routes, first, last, part.closed > 0)
    twins = naive_copies.heads_and_tails(part, network.routes, first, last, part.closed > 0)
    assert np.allclose(head, twins[0])
    assert np.allclose(tail, twins[1])


@settings(max_examples=30)
@given(problem=problems(max_ops=9, max_devices=1), data=st.data())
def test_a_region_is_cut_where_the_twin_says(problem, data):
    network = network_of(problem)
    net, n = network.net, network.count
    first = data.draw(st.integers(0, n - 2))
    last = data.draw(st.integers(first + 1, n - 1))
    mark = np.empty(last - first + 1, dtype=np.uint8)
    mark_cuts(first, last, net.out_offsets, net.head, mark)
    edges = list(zip(net.tail.tolist(), net.head.tolist(), strict=True))
    found = set((first + np.flatnonzero(mark == 2)).tolist())
    assert found == naive_copies.cuts(edges, n, first, last)


@settings(max_examples=20)
@given(problem=problems(max_ops=9, max_devices=3))
def test_candidates_are_pieces_and_what_no_device_has_room_for(problem):
    network = network_of(problem)
    net = network.net
    first, last, made = candidates(network)
    assert (0, network.count - 1) in zip(first.tolist(), last.tolist(), strict=True)
    for u, v, is_made in zip(first.tolist(), last.tolist(), made.tolist(), strict=True):
        mark = np.empty(v - u + 1, dtype=np.uint8)
        mark_cuts(u, v, net.out_offsets, net.head, mark)
        used = network.share[u : v + 1][mark > 0].sum(axis=0)
        whole = (u, v) == (0, network.count - 1)
        assert is_made == (whole or bool((mark == 2).any()))
        assert whole or not is_made or used.min() > 1.0


def test_names_are_numbered_as_they_come():
    assert by_first(np.array([7, 3, 7, 5])).tolist() == [0, 1, 0, 2]


def model(layers, name="gpt3-330m"):
    from placewright.planning import make_problem

    source = f"zoo:{name}?layers={layers}"
    return make_problem(source, "moirai-inter-server", {"contention": "port"})[0]


@settings(max_examples=20)
@given(problem=fan_out_problems())
def test_pairs_of_equal_devices_are_bounded_once(problem):
    network, regions = regions_of(of_equal_devices(problem))
    assert not network.like.any()
    settle(network, regions, ENDLESS)
    for (_, is_anywhere), table in regions._tables.items():
        known = table[np.isfinite(table)]
        assert is_anywhere or len(np.unique(known)) <= 2


def test_devices_are_like_each_other_where_times_links_and_channels_are():
    network = network_of(model(1))
    assert network.like.tolist() == list(range(network.device_count))
    like = np.array([0, 0, 2])
    assert _pairs_like(like, 0, 0).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert _pairs_like(like, 1, 2).tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, 0]]
    assert _pairs_like(like, -1, 2).tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, 1]]


def test_equal_layers_are_bounded_once():
    counted = []
    for layers in (3, 6):
        network, regions = regions_of(model(layers))
        settle(network, regions, ENDLESS, 512)
        assert (regions.level == BOUNDED).sum() >= layers
        counted.append(len(regions._tables))
    assert counted[1] <= counted[0] + 2


def test_each_layer_adds_as_much_to_the_bound():
    with mock.patch.object(slots, "MOST_WORK", 10_000_000):
        values = [prove(model(layers), Budget(30.0)).value for layers in (2, 4, 8)]
    assert values[2] - values[1] == pytest.approx(2 * (values[1] - values[0]), rel=0.02)


def test_a_rehearsal_runs_every_kernel(monkeypatch):
    ran = []
    monkeypatch.setattr(f"{FAN_OUT}.case_bound", lambda *_: ran.append("case") or 1.0)
    monkeypatch.setattr(slots, "slots_bound", lambda *_: ran.append("slots") or (0.0, 1))
    monkeypatch.setattr(lagrangian, "pair_values", lambda *_: ran.append("values"))
    warm_up_bounds(model(1))
    assert set(ran) == {"case", "slots", "values"}


def test_copies_that_take_long_keep_a_layer_on_one_device():
    """Where a copy takes longer than all heads do in a row, heads in parallel are of no use."""
    problem = model(1)
    slow = replace(problem, link_seconds_per_byte=problem.link_seconds_per_byte * 100.0)
    network = network_of(slow)
    regions = Regions.of(network)
    for region in np.argsort(-regions.count).tolist():
        ops = regions.ops(region)
        fan_out = fan_out_of(network, ops, regions.part(ops))
        if fan_out is not None:
            break
    alone = float(regions.alone[region])
    fastest = int(network.net.time[ops].sum(axis=0).argmin())
    assert bound_by_copies(fan_out, network, fastest, fastest, 0.0, ENDLESS) > 0.9 * alone
