"""A problem in a file reads back to the bit, however much of it is written once for many."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.errors import GraphError
from placewright.formats import routes as route_files
from placewright.formats.problems import problem_document, read_problem
from placewright.formats.schema import ProblemEntry
from placewright.planning import make_problem
from placewright.problem import Problem
from tests.builders import small
from tests.strategies import problems

FIGURES = st.sampled_from([0.0, -0.0, 0.1, 0.5])


def reread(document: object) -> Problem:
    text = json.dumps(document, allow_nan=False)
    return read_problem(ProblemEntry.model_validate_json(text))


def assert_same_bits(one: Problem, two: Problem) -> None:
    for field in fields(Problem):
        a, b = getattr(one, field.name), getattr(two, field.name)
        if isinstance(a, np.ndarray):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), field.name
            assert a.tobytes() == b.tobytes(), field.name
        else:
            assert a == b, field.name


def hosts(
    count: int, devices: int, kinds: tuple[str, ...] = ("T4",), mesh: bool = False
) -> Cluster:
    """Hosts on one network, their devices behind a switch or, with `mesh`, linked to each other."""
    made, links = [], []
    for host in range(count):
        names = [f"host{host}-device{number}" for number in range(devices)]
        made += [Device(name, kinds[host % len(kinds)], host=f"host{host}") for name in names]
        links += [Link(name, f"switch{host}", bandwidth=16e9, latency=5e-6) for name in names]
        if mesh:
            links += [
                Link(a, b, bandwidth=50e9, latency=1e-6) for a in names for b in names if a < b
            ]
        links.append(Link(f"switch{host}", "network", bandwidth=12.5e9, latency=1e-5))
    switches = (*(f"switch{host}" for host in range(count)), "network")
    return Cluster("hosts", tuple(made), tuple(links), switches)


def problem_on(cluster: Cluster) -> Problem:
    return make_problem("zoo:googlenet", cluster)[0]


# -- every problem -------------------------------------------------------------------------------


@st.composite
def crowds(draw):
    """A problem of up to 24 devices, most of them copies, some not quite."""
    base = draw(problems(max_ops=6, max_devices=3))
    count = draw(st.sampled_from([1, 3, 8, 16, 20, 24]))
    copy = np.array(draw(st.lists(st.integers(0, base.device_count - 1), min_size=count,
                                  max_size=count)))  # fmt: skip
    column = np.array(draw(st.lists(st.integers(0, base.device_count - 1), min_size=count,
                                    max_size=count)))  # fmt: skip
    time = base.op_time[:, column].copy()
    for _ in range(draw(st.integers(0, 2))):
        time[draw(st.integers(0, base.op_count - 1)), draw(st.integers(0, count - 1))] = draw(
            FIGURES
        )
    latency = base.link_latency[np.ix_(copy, copy)]
    per_byte = base.link_seconds_per_byte[np.ix_(copy, copy)]
    latency[copy[:, None] == copy] = draw(FIGURES)
    np.fill_diagonal(latency, 0.0)
    for _ in range(draw(st.sampled_from([0, 0, 2]))):
        a, b = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        latency[a, b] = draw(FIGURES)
    offsets, channels, names = draw(crowded_channels(copy))
    return replace(
        base,
        op_time=time,
        device_names=tuple(f"device{each}" for each in range(count)),
        device_kinds=("kind",) * count,
        device_memory=base.device_memory[copy],
        is_cpu=np.zeros(count, dtype=bool),
        host_latency=np.zeros((2, count)),
        host_seconds_per_byte=np.zeros((2, count)),
        link_latency=latency,
        link_seconds_per_byte=per_byte,
        channel_offsets=offsets,
        channels=channels,
        channel_names=names,
        batch_time=np.zeros((base.op_count, count, 0)),
    )


@st.composite
def crowded_channels(draw, group):
    """Channels of a tree of two levels, of random numbers; some pairs have others.

    Perhaps devices of a group are linked to each other as well.
    """
    count = len(group)
    number = draw(st.permutations(range(2 * count + 2 * (max(group) + 1) + 2)))
    up, down = number[:count], number[count : 2 * count]
    out, into = number[2 * count :: 2], number[2 * count + 1 :: 2]
    odd = draw(st.sets(st.integers(0, count**2 - 1), max_size=draw(st.sampled_from([0, 3]))))
    mesh = draw(st.booleans())
    lists = []
    for a in range(count):
        for b in range(count):
            used = {up[a], down[b]} if a != b else set()
            if group[a] != group[b]:
                used |= {out[group[a]], into[group[b]]}
            elif mesh and a != b:
                used = {len(number) + a * count + b}
            if a * count + b in odd:
                used ^= {number[-1], down[b]}
            lists.append(sorted(used))
    if draw(st.sampled_from([False, False, True])) and lists[-2:-1]:
        lists[-2].reverse()
    return (
        np.cumsum([0, *map(len, lists)]),
        [each for used in lists for each in used],
        tuple(f"channel{each}" for each in range(len(number) + count**2)),
    )


@given(crowds())
@settings(max_examples=150)
def test_a_crowd_of_devices_reads_back_to_the_bit(problem):
    assert_same_bits(reread(problem_document(problem)), problem)


@given(problems())
def test_a_few_devices_read_back_to_the_bit(problem):
    assert_same_bits(reread(problem_document(problem)), problem)


@given(problems(), st.integers(1, 9))
def test_batch_times_share_the_columns_of_the_times(problem, copies):
    devices = np.tile(np.arange(problem.device_count), copies)
    problem = small(
        op_time=np.ones((4, len(devices))),
        batch_sizes=[1, 2],
        batch_time=np.stack([problem.op_time[[0] * 4][:, devices]] * 2, axis=2),
        device_names=tuple(f"d{each}" for each in range(len(devices))),
        device_kinds=("k",) * len(devices),
        device_memory=np.full(len(devices), np.inf),
        link_latency=np.zeros((len(devices),) * 2),
        link_seconds_per_byte=np.zeros((len(devices),) * 2),
        channel_offsets=np.zeros(len(devices) ** 2 + 1),
        channels=[],
    )
    assert_same_bits(reread(problem_document(problem)), problem)


# -- large clusters ------------------------------------------------------------------------------

LARGE = {
    "one kind": hosts(12, 4),
    "two kinds": hosts(12, 4, ("T4", "V100-32GB")),
    "a mesh in each host": hosts(12, 4, mesh=True),
    "one device a host": hosts(40, 1),
    "one host": hosts(1, 40),
}


@pytest.fixture(params=LARGE.values(), ids=LARGE.keys())
def large(request: pytest.FixtureRequest) -> Problem:
    return problem_on(request.param)


def test_a_large_cluster_is_written_once_for_all_alike(large, monkeypatch):
    document = problem_document(large)
    assert "ways" in document["routes"]
    assert len(document["ops"]["time"][0]) == len(set(large.device_kinds))
    assert_same_bits(reread(document), large)
    monkeypatch.setattr(route_files, "WORTH", large.device_count**3)
    monkeypatch.setattr("placewright.formats.problems.WORTH", large.device_count**3)
    plain = problem_document(large)
    assert plain["routes"].keys() == {"latency", "seconds_per_byte", "channels", "channel_names"}
    assert len(json.dumps(plain)) > 4 * len(json.dumps(document))


def test_plain_tables_of_a_large_cluster_are_read(large, monkeypatch):
    monkeypatch.setattr(route_files, "WORTH", large.device_count**3)
    monkeypatch.setattr("placewright.formats.problems.WORTH", large.device_count**3)
    document = problem_document(large)
    assert "time_column" not in document["devices"]
    assert_same_bits(reread(document), large)


def test_ways_mean_what_the_format_says(large):
    """Read in plain Python, with the words of `formats.Ways` alone."""
    document = problem_document(large)
    ways, count = document["routes"]["ways"], large.device_count
    group = ways["group"]
    left = [iter(own) for own in ways["between"]]
    for a in range(count):
        for b in range(count):
            if a == b:
                assert large.link_latency[a, b] == large.link_seconds_per_byte[a, b] == 0
                continue
            way = ways["way"][group[a]][group[b]]
            channels = {*ways["leaving"][a][way], *ways["arriving"][b][way]}
            if ways["between"][way]:
                channels |= set(next(left[way]))
            first = large.channel_offsets[a * count + b]
            last = large.channel_offsets[a * count + b + 1]
            assert sorted(channels) == large.channels[first:last].tolist()
            assert ways["latency"][way] == large.link_latency[a, b]
            assert ways["seconds_per_byte"][way] == large.link_seconds_per_byte[a, b]
    column = document["devices"]["time_column"]
    for op, times in enumerate(document["ops"]["time"]):
        assert [times[each] for each in column] == large.op_time[op].tolist()


def test_groups_are_the_hosts():
    ways = problem_document(problem_on(hosts(12, 4)))["routes"]["ways"]
    assert ways["group"] == np.repeat(np.arange(12), 4).tolist()
    assert {ways["way"][g][g] for g in range(12)} == {0}
    assert {ways["way"][g][h] for g in range(12) for h in range(12) if g != h} == {1}


def test_what_ways_cannot_say_stays_in_matrices():
    problem = problem_on(hosts(12, 4))
    latency = problem.link_latency.copy()
    latency[3, 3] = 1e-6
    channels = problem.channels.copy()
    channels[:2] = channels[1::-1]
    for odd in (
        replace(problem, link_latency=latency),
        replace(problem, link_latency=np.where(np.eye(48), -0.0, problem.link_latency)),
        replace(problem, channels=channels),
    ):
        document = problem_document(odd)
        assert "ways" not in document["routes"]
        assert_same_bits(reread(document), odd)


def test_routes_that_all_differ_stay_in_matrices():
    problem = problem_on(hosts(12, 4))
    latency = np.random.default_rng(0).random((48, 48))
    np.fill_diagonal(latency, 0)
    odd = replace(problem, link_latency=latency)
    assert "ways" not in problem_document(odd)["routes"]


def test_a_few_devices_keep_their_tables():
    document = problem_document(problem_on(hosts(1, 3)))
    assert "time_column" not in document["devices"]
    assert "ways" not in document["routes"]


def test_zeros_of_both_signs_are_two_columns():
    time = np.zeros((4, 8))
    time[2, 5] = -0.0
    problem = problem_on(hosts(2, 4))
    ops = problem.op_count
    problem = replace(problem, op_time=np.resize(time, (ops, 8)))
    document = problem_document(problem)
    assert document["devices"]["time_column"] == [0, 0, 0, 0, 0, 1, 0, 0]
    assert_same_bits(reread(document), problem)


# -- files that do not hold ----------------------------------------------------------------------


def refused(document: object, match: str) -> None:
    with pytest.raises(GraphError, match=match):
        reread(document)


def test_more_devices_than_can_be_held_are_refused_before_anything_is_made():
    document = problem_document(problem_on(hosts(1, 40)))
    count = 200_000
    document["devices"] |= {
        "name": [str(each) for each in range(count)],
        "kind": [""] * count,
        "memory": [None] * count,
        "time_column": [0] * count,
    }
    document["routes"]["ways"]["group"] = [0] * count
    refused(document, "needs tables of 320,000,000,000 entries, more than the 1,073,741,824")


def test_more_channels_than_can_be_held_are_refused(monkeypatch):
    document = problem_document(problem_on(hosts(1, 40)))
    monkeypatch.setattr(route_files, "MAX_ENTRIES", 8 * 40**2)
    document["routes"]["ways"]["leaving"][7][0] *= 50
    refused(document, "needs tables of 27,768 entries, more than the 12,800 that")
