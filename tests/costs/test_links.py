"""Routes: widest paths against an enumeration of all simple paths, and what they occupy."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.costs.links import Routes, routes
from placewright.errors import ClusterError

# -- the slow, obvious twin ------------------------------------------------------------------

Step = tuple[Link, bool]  # a link, and whether it is crossed from a to b


def simple_paths(cluster: Cluster, start: str, end: str) -> Iterator[list[Step]]:
    """Every path that visits no endpoint twice, by depth-first search."""

    def extend(at: str, seen: set[str], path: list[Step]) -> Iterator[list[Step]]:
        if at == end:
            yield list(path)
            return
        for link in cluster.links:
            for tail, head, forward in ((link.a, link.b, True), (link.b, link.a, False)):
                if tail == at and head not in seen:
                    yield from extend(head, seen | {head}, [*path, (link, forward)])

    return extend(start, {start}, [])


def bandwidth_of(step: Step) -> float:
    link, forward = step
    if forward or link.reverse_bandwidth is None:
        return link.bandwidth
    return link.reverse_bandwidth


def preference(cluster: Cluster, path: list[Step]) -> tuple[Any, ...]:
    """Smaller is better: the documented order, with exact decimal latencies."""
    names = [*cluster.device_names, *cluster.switches]
    visited = [names.index(link.b if forward else link.a) for link, forward in path]
    by_link = [
        (Fraction(repr(step[0].latency)), -bandwidth_of(step), cluster.links.index(step[0]))
        for step in path
    ]
    width = min(bandwidth_of(step) for step in path)
    latency = sum(Fraction(repr(link.latency)) for link, _ in path)
    return -width, latency, len(path), visited, by_link


def expected_path(cluster: Cluster, a: str, b: str) -> list[Step]:
    paths = list(simple_paths(cluster, a, b))
    own = [path for path in paths if len(path) == 1]
    if cluster.routing == "direct" and own:
        return min(own, key=lambda path: preference(cluster, path))
    return min(paths, key=lambda path: preference(cluster, path))


def occupied(cluster: Cluster, path: list[Step]) -> set[object]:
    """What identifies each channel of a path: the link itself, or the name it shares."""
    channels: set[object] = set()
    for link, forward in path:
        if math.isinf(bandwidth_of((link, forward))):
            continue
        if link.channel is None:
            one_way = link.duplex == "full"
            key: object = cluster.links.index(link)
        else:
            sharing = [other for other in cluster.links if other.channel == link.channel]
            one_way = all(other.duplex == "full" for other in sharing)
            key = link.channel
        channels.add((key, forward) if one_way else key)
    return channels


# -- clusters to try -------------------------------------------------------------------------

LATENCIES = (0.0, 1e-6, 2e-6, 3e-6, 1e-5, 3.3e-7)
BANDWIDTHS = (1e9, 2e9, 3e9, math.inf)


@st.composite
def clusters(draw: st.DrawFn, tied: bool = True) -> Cluster:
    """Connected clusters of up to 6 endpoints; `tied` ones have few different figures."""
    devices = draw(st.integers(1, 5))
    switches = draw(st.integers(0, 6 - devices))
    names = [f"d{i}" for i in range(devices)] + [f"s{i}" for i in range(switches)]
    names = draw(st.permutations(names))
    latency = st.sampled_from(LATENCIES) if tied else st.floats(0, 1e-3)
    bandwidth = st.sampled_from(BANDWIDTHS) if tied else st.floats(1e3, 1e12)
    tree = [(names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, len(names))]
    pairs = st.tuples(st.sampled_from(names), st.sampled_from(names))
    more = draw(st.lists(pairs.filter(lambda pair: pair[0] != pair[1]), max_size=6))
    links = tuple(
        Link(
            *ends,
            bandwidth=draw(bandwidth),
            reverse_bandwidth=draw(st.none() | bandwidth),
            latency=draw(latency),
            duplex=draw(st.sampled_from(("full", "full", "half"))),
            channel=draw(st.sampled_from((None, None, f"bus{index}", "p", "q"))),
        )
        for index, ends in enumerate([*tree, *(more if len(names) > 1 else [])])
    )
    return Cluster(
        "c",
        tuple(Device(f"d{i}", "T4") for i in range(devices)),
        links,
        tuple(f"s{i}" for i in range(switches)),
        draw(st.sampled_from(("widest", "direct"))),
    )


def pair_channels(found: Routes, a: int, b: int) -> list[int]:
    return [int(channel) for channel in found.channels_of(a, b)]


@given(clusters())
@settings(max_examples=300, deadline=None)
def test_routes_are_the_best_of_all_simple_paths(cluster: Cluster) -> None:
    found = routes(cluster)
    identity: dict[int, object] = {}
    for a, start in enumerate(cluster.device_names):
        for b, end in enumerate(cluster.device_names):
            if a == b:
                continue
            path = expected_path(cluster, start, end)
            latency = sum(Fraction(repr(link.latency)) for link, _ in path)
            width = min(bandwidth_of(step) for step in path)
            assert found.link_latency[a, b] == pytest.approx(float(latency), rel=1e-12)
            assert found.link_seconds_per_byte[a, b] == 1 / width
            assert len(pair_channels(found, a, b)) == len(occupied(cluster, path))
            # Two channels are one if and only if the twin says so: find a consistent naming.
            fits = [
                (channel, key)
                for channel in pair_channels(found, a, b)
                for key in occupied(cluster, path)
                if names_key(cluster, found.channel_names[channel], key)
            ]
            assert len(fits) >= len(occupied(cluster, path))
            if len(path) == 1 and fits:
                assert identity.setdefault(*fits[0]) == fits[0][1]


def names_key(cluster: Cluster, name: str, key: object) -> bool:
    """Whether a channel's name speaks of the link or shared channel `key`."""
    owner, forward = key if isinstance(key, tuple) else (key, None)
    if isinstance(owner, str):
        suffix = {True: " (forward)", False: " (backward)", None: ""}[forward]
        return name == owner + suffix
    link = cluster.links[owner]
    start, end = (link.a, link.b) if forward or forward is None else (link.b, link.a)
    return name.startswith(f"{start} – {end}" if forward is None else f"{start} → {end}")


@given(clusters(tied=False))
@settings(max_examples=100, deadline=None)
def test_routes_with_any_figures_are_as_wide_and_as_quick_as_the_best_path(
    cluster: Cluster,
) -> None:
    found = routes(cluster)
    slack = 1e-11 * max((link.latency for link in cluster.links), default=0)
    for a, start in enumerate(cluster.device_names):
        for b, end in enumerate(cluster.device_names):
            if a != b:
                path = expected_path(cluster, start, end)
                latency = math.fsum(link.latency for link, _ in path)
                assert found.link_seconds_per_byte[a, b] == 1 / min(map(bandwidth_of, path))
                assert abs(found.link_latency[a, b] - latency) <= slack


@given(clusters())
@settings(max_examples=100, deadline=None)
def test_routes_are_well_formed(cluster: Cluster) -> None:
    found, count = routes(cluster), cluster.device_count
    assert found.link_latency.shape == found.link_seconds_per_byte.shape == (count, count)
    assert not found.link_latency.diagonal().any()
    assert not found.link_seconds_per_byte.diagonal().any()
    assert found.channel_offsets.dtype == np.int64 and found.channels.dtype == np.int32
    assert found.channel_offsets[0] == 0 and found.channel_offsets[-1] == len(found.channels)
    assert len(set(found.channel_names)) == len(found.channel_names)
    for pair in range(count * count):
        part = found.channels[found.channel_offsets[pair] : found.channel_offsets[pair + 1]]
        assert (np.diff(part) > 0).all()
        if pair % (count + 1) == 0:
            assert part.size == 0
    if found.channels.size:
        assert found.channels.min() >= 0 and found.channels.max() < len(found.channel_names)


# -- one sentence each -----------------------------------------------------------------------


def devices(*names: str) -> tuple[Device, ...]:
    return tuple(Device(name, "T4") for name in names)


def names_of(found: Routes, a: int, b: int) -> list[str]:
    return [found.channel_names[channel] for channel in found.channels_of(a, b)]


def test_a_wide_detour_beats_a_narrow_link() -> None:
    links = (Link("a", "b", 1e9), Link("a", "c", 5e9, latency=1e-6), Link("c", "b", 4e9))
    found = routes(Cluster("c", devices("a", "b", "c"), links))
    assert found.link_seconds_per_byte[0, 1] == 1 / 4e9
    assert found.link_latency[0, 1] == 1e-6


def test_direct_routing_keeps_the_narrow_link() -> None:
    links = (Link("a", "b", 1e9), Link("a", "c", 5e9), Link("c", "b", 4e9))
    found = routes(Cluster("c", devices("a", "b", "c"), links, routing="direct"))
    assert found.link_seconds_per_byte[0, 1] == 1 / 1e9
    assert names_of(found, 0, 1) == ["a → b"]


def test_direct_routing_falls_back_to_the_widest_path_where_there_is_no_link() -> None:
    links = (Link("a", "b", 2e9), Link("b", "c", 3e9))
    found = routes(Cluster("c", devices("a", "b", "c"), links, routing="direct"))
    assert found.link_seconds_per_byte[0, 2] == 1 / 2e9
    assert names_of(found, 0, 2) == ["a → b", "b → c"]


def test_each_direction_has_its_own_bandwidth() -> None:
    found = routes(Cluster("c", devices("a", "b"), (Link("a", "b", 2e9, 1e9),)))
    assert found.link_seconds_per_byte.tolist() == [[0, 1 / 2e9], [1 / 1e9, 0]]


def test_a_path_may_go_out_and_back_by_different_ways() -> None:
    links = (Link("a", "b", 9e9, 1e9), Link("b", "c", 9e9, 1e9), Link("c", "a", 9e9, 1e9))
    found = routes(Cluster("ring", devices("a", "b", "c"), links))
    assert names_of(found, 0, 1) == ["a → b"]
    assert names_of(found, 1, 0) == ["b → c", "c → a"]


def test_equal_decimal_latencies_tie_although_their_floats_do_not() -> None:
    # 0.1 + 0.2 > 0.3 in binary; as written they are equal, and the fewer links decide.
    links = (
        Link("a", "b", 1e9, latency=0.1),
        Link("b", "c", 1e9, latency=0.2),
        Link("a", "c", 1e9, latency=0.3),
    )
    found = routes(Cluster("c", devices("a", "b", "c"), links))
    assert names_of(found, 0, 2) == ["a → c"]


def test_a_full_duplex_link_is_two_channels_and_a_half_duplex_link_one() -> None:
    full = routes(Cluster("c", devices("a", "b"), (Link("a", "b", 1e9),)))
    half = routes(Cluster("c", devices("a", "b"), (Link("a", "b", 1e9, duplex="half"),)))
    assert names_of(full, 0, 1) == ["a → b"] and names_of(full, 1, 0) == ["b → a"]
    assert names_of(half, 0, 1) == names_of(half, 1, 0) == ["a – b"]


def test_a_shared_channel_of_full_duplex_links_has_a_forward_and_a_backward_side() -> None:
    links = tuple(Link(name, "s", 1e9, channel="nic") for name in "abc")
    found = routes(Cluster("c", devices("a", "b", "c"), links, ("s",)))
    assert names_of(found, 0, 1) == ["nic (forward)", "nic (backward)"]
    assert found.channels_of(0, 1).tolist() == found.channels_of(2, 0).tolist()


def test_one_half_duplex_link_makes_the_whole_shared_channel_one_resource() -> None:
    links = (
        Link("a", "s", 1e9, channel="bus"),
        Link("b", "s", 1e9, channel="bus", duplex="half"),
    )
    found = routes(Cluster("c", devices("a", "b"), links, ("s",)))
    assert names_of(found, 0, 1) == names_of(found, 1, 0) == ["bus"]


def test_an_unlimited_link_takes_no_time_per_byte_and_occupies_nothing() -> None:
    links = (Link("cpu", "gpu", math.inf, latency=1e-6),)
    found = routes(Cluster("soc", devices("cpu", "gpu"), links))
    assert found.link_seconds_per_byte[0, 1] == 0
    assert found.link_latency[0, 1] == 1e-6
    assert found.channels.size == 0 and found.channel_names == ()


def test_of_parallel_links_the_quickest_that_is_wide_enough_is_used() -> None:
    links = (
        Link("a", "b", 9e9, latency=5e-6),
        Link("a", "b", 4e9, latency=1e-6),
        Link("b", "c", 4e9),
    )
    found = routes(Cluster("c", devices("a", "b", "c"), links))
    assert names_of(found, 0, 1) == ["a → b"]
    assert sorted(names_of(found, 0, 2)) == ["a → b #2", "b → c"]


def test_one_device_needs_no_link() -> None:
    found = routes(Cluster("alone", devices("a")))
    assert found.link_latency.tolist() == [[0.0]]
    assert found.channel_offsets.tolist() == [0, 0]


def test_a_disconnected_cluster_names_two_devices_without_a_route() -> None:
    cluster = Cluster("split", devices("a", "b", "c"), (Link("a", "c", 1e9),))
    with pytest.raises(ClusterError, match="'split' is disconnected: no route from 'a' to 'b'"):
        routes(cluster)


def test_a_switch_that_nothing_needs_may_hang_loose() -> None:
    found = routes(Cluster("c", devices("a", "b"), (Link("a", "b", 1e9),), ("spare",)))
    assert found.link_seconds_per_byte[0, 1] == 1e-9


def test_latencies_of_any_size_are_added_without_overflow() -> None:
    links = (Link("a", "b", 1e9, latency=1e300), Link("b", "c", 1e9, latency=1e-300))
    found = routes(Cluster("c", devices("a", "b", "c"), links))
    assert found.link_latency[0].tolist() == [0.0, 1e300, 1e300]


def test_the_arrays_cannot_be_written() -> None:
    found = routes(Cluster("c", devices("a", "b"), (Link("a", "b", 1e9),)))
    for array in (found.link_latency, found.link_seconds_per_byte, found.channels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_full_mesh_of_64_devices_with_4032_bandwidths_takes_well_under_a_second() -> None:
    random = np.random.default_rng(0)
    names = [f"d{i}" for i in range(64)]
    links = tuple(
        Link(a, b, *random.uniform(1e9, 9e9, 2).tolist(), latency=random.uniform(1e-6, 9e-6))
        for i, a in enumerate(names)
        for b in names[:i]
    )
    cluster = Cluster("mesh", devices(*names), links)
    start = time.process_time()
    found = routes(cluster)
    assert time.process_time() - start < 2.0  # 0.2 s on a slow core; the rest is for a busy one
    assert (found.link_seconds_per_byte <= 1 / 1e9).all()


def racks(hosts: int, gpus: int, cores: int) -> Cluster:
    """Hosts with a switch and a GPU mesh each, joined by `cores` equal switches."""
    links: list[Link] = []
    for host in range(hosts):
        for gpu in range(gpus):
            links.append(Link(f"h{host}g{gpu}", f"h{host}", 16e9, latency=5e-6))
            links.extend(
                Link(f"h{host}g{gpu}", f"h{host}g{other}", 50e9, latency=8e-6)
                for other in range(gpu)
            )
        links.extend(Link(f"h{host}", f"core{core}", 12.5e9, latency=2e-6) for core in range(cores))
    return Cluster(
        "racks",
        devices(*(f"h{host}g{gpu}" for host in range(hosts) for gpu in range(gpus))),
        tuple(links),
        (*(f"h{host}" for host in range(hosts)), *(f"core{core}" for core in range(cores))),
    )


@pytest.mark.parametrize(
    ("hosts", "limit"), [(20, 1.0), pytest.param(200, 10.0, marks=pytest.mark.slow)]
)
def test_a_thousand_devices_in_racks_are_routed_in_seconds(hosts: int, limit: float) -> None:
    cluster = racks(hosts, gpus=5, cores=4)
    start = time.process_time()
    found = routes(cluster)
    assert time.process_time() - start < limit
    assert found.link_seconds_per_byte[0, 1] == 1 / 50e9
    assert names_of(found, 0, 1) == ["h0g1 → h0g0"] or names_of(found, 0, 1) == ["h0g0 → h0g1"]
    assert found.link_latency[0, 5] == pytest.approx(14e-6)
    assert sorted(names_of(found, 0, 5)) == ["core0 → h1", "h0 → core0", "h0g0 → h0", "h1 → h1g0"]
