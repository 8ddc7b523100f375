"""Variants of a cluster: counts of devices, bandwidths, and how a person writes them."""

from __future__ import annotations

import numpy as np
import pytest

from placewright.cluster import Cluster, CudaRun, Device, Link
from placewright.costs.clusters import load_cluster
from placewright.costs.links import routes
from placewright.errors import OptionError
from placewright.whatif.variants import (
    MOST_VARIANTS,
    check_distinct,
    parse_bandwidths,
    parse_batches,
    parse_count,
    same_kind,
    told_apart,
    variants,
    with_bandwidth,
    with_count,
)

STAR = Cluster(
    "star",
    devices=(Device("g0", "fast", memory=8.0), Device("g1", "fast", memory=8.0),
             Device("cpu", "slow", memory=64.0)),
    links=(
        Link("g0", "cpu", 10.0, latency=1.0, channel="bus"),
        Link("g1", "cpu", 20.0, reverse_bandwidth=10.0, channel="bus"),
        Link("g0", "g1", 40.0, channel="bridge"),
    ),
)  # fmt: skip


def linked(cluster: Cluster) -> dict[tuple[str, str], float]:
    return {(link.a, link.b): link.bandwidth for link in cluster.links}


# -- counts --------------------------------------------------------------------------------------


def test_fewer_devices_are_the_first_ones_and_their_links():
    fewer = with_count(STAR, "fast", 1)
    assert fewer.device_names == ("g0", "cpu")
    assert linked(fewer) == {("g0", "cpu"): 10.0}


def test_none_of_a_kind_may_be_left():
    assert with_count(STAR, "fast", 0).device_names == ("cpu",)


def test_a_copy_is_nothing_of_this_machine():
    one = Cluster("one", (Device("g0", "fast", run=CudaRun(0)),))
    assert [each.run for each in with_count(one, "fast", 2).devices] == [CudaRun(0), None]


def test_as_many_devices_as_there_are_changes_nothing():
    assert with_count(STAR, "fast", 2) == STAR


def test_more_devices_are_copies_of_the_last_linked_as_it_is_and_with_it():
    more = with_count(STAR, "fast", 3)
    assert more.device_names == ("g0", "g1", "g2", "cpu")
    assert more.devices[2] == Device("g2", "fast", memory=8.0)
    assert linked(more) == {
        **linked(STAR), ("g2", "cpu"): 20.0, ("g0", "g2"): 40.0, ("g1", "g2"): 40.0,
    }  # fmt: skip


def test_a_full_mesh_stays_one():
    devices = tuple(Device(f"g{k}", "k", memory=1.0) for k in range(3))
    mesh = tuple(Link(f"g{a}", f"g{b}", 1.0) for a in range(3) for b in range(a + 1, 3))
    more = with_count(Cluster("mesh", devices, mesh), "K", 5)
    pairs = {frozenset((link.a, link.b)) for link in more.links}
    assert len(more.links) == len(pairs) == 10
    assert (routes(more).link_seconds_per_byte + np.eye(5) == 1.0).all()


def test_devices_on_a_switch_all_reach_each_other():
    more = with_count(load_cluster("8xA100"), "A100 80GB", 12)
    assert more.device_names[-1] == "gpu11"
    assert len(more.links) == 12
    assert (routes(more).link_seconds_per_byte[0, 1:] == 1 / 270e9).all()


def test_a_bus_is_shared_by_copies_and_an_own_network_card_is_not():
    cluster = Cluster(
        "two",
        devices=(Device("a", "k", memory=1.0), Device("b", "k", memory=1.0)),
        links=(Link("a", "net", 1.0, channel="bus"), Link("b", "net", 1.0, channel="nic b"),
               Link("b", "hub", 1.0, channel="bus")),
        switches=("net", "hub"),
    )  # fmt: skip
    copied = with_count(cluster, "k", 3).links[3:]
    assert [(link.a, link.b, link.channel) for link in copied] == [
        ("b2", "net", "nic b of b2"), ("b2", "hub", "bus"),
    ]  # fmt: skip


def test_a_copy_gets_a_name_that_is_free():
    names = with_count(load_cluster("a100+2xt4+cpu"), "T4", 4).device_names
    assert names == ("a100", "t4-0", "t4-1", "t4-2", "t4-3", "cpu")


def test_a_kind_that_the_cluster_lacks_is_named():
    with pytest.raises(OptionError, match=r"no device of kind 'T4' \(it has fast, slow\)"):
        with_count(STAR, "T4", 1)


def test_no_devices_at_all_are_refused():
    with pytest.raises(OptionError, match="has no devices left"):
        with_count(load_cluster("2x3090"), "RTX 3090", 0)


def test_kinds_are_the_same_in_every_spelling_that_the_catalog_knows():
    assert same_kind("Tesla T4", "t4")
    assert same_kind("Mine", "mine")
    assert not same_kind("mine", "yours")
    assert not same_kind("T4", "P4")


# -- bandwidths ----------------------------------------------------------------------------------


def test_a_bandwidth_is_set_on_every_link_and_directions_keep_their_ratio():
    changed = with_bandwidth(STAR, "*", "4")
    assert [link.bandwidth for link in changed.links] == [4.0, 4.0, 4.0]
    assert [link.reverse_bandwidth for link in changed.links] == [None, 2.0, None]


def test_a_factor_scales_links_by_channel_end_or_pair():
    def scaled(pattern):
        return [link.bandwidth for link in with_bandwidth(STAR, pattern, "x2").links]

    assert scaled("*") == [20.0, 40.0, 80.0]
    assert scaled("bus") == [20.0, 40.0, 40.0]
    assert scaled("g0") == [20.0, 20.0, 80.0]
    assert scaled("g1-g0") == [10.0, 20.0, 80.0]
    assert scaled("b*") == [20.0, 40.0, 80.0]


def test_one_memory_stays_one_memory():
    both = Cluster("one", STAR.devices, (*STAR.links[:2], Link("g0", "g1", float("inf"))))
    assert with_bandwidth(both, "*", "1").links[2].bandwidth == float("inf")
    with pytest.raises(OptionError, match="no link 'g0-g1' with a bandwidth"):
        with_bandwidth(both, "g0-g1", "1")


def test_a_link_of_devices_that_a_count_leaves_out_may_be_named():
    found = variants([STAR], [parse_count("fast=1,2")], [parse_bandwidths("g1-cpu=x1,x2")])
    bandwidths = [linked(each.cluster).get(("g1", "cpu")) for each in found]
    assert bandwidths == [None, None, 20.0, 40.0]
    with pytest.raises(OptionError, match="no link 'g7-cpu'"):
        variants([STAR], [parse_count("fast=1,2")], [parse_bandwidths("g7-cpu=x1,x2")])


def test_a_single_device_needs_no_link():
    duo = Cluster("duo", STAR.devices[:2], STAR.links[2:])
    found = variants([duo], [parse_count("fast=1,2")], [parse_bandwidths("x1,x2")])
    assert [linked(each.cluster) for each in found] == [
        {}, {}, {("g0", "g1"): 40.0}, {("g0", "g1"): 80.0},
    ]  # fmt: skip


# -- all combinations ----------------------------------------------------------------------------


def test_every_combination_of_what_is_varied_is_a_variant():
    found = variants(
        [STAR], [parse_count("fast=1,2")], [parse_bandwidths("bus=x1,x2")], parse_batches("1,4")
    )
    assert [each.name for each in found][:3] == [
        "1 × fast, bus x1, batch 1", "1 × fast, bus x1, batch 4", "1 × fast, bus x2, batch 1",
    ]  # fmt: skip
    assert len(found) == 8
    assert found[1].options == {"batch": 4}
    assert found[-1].cluster.links[0].bandwidth == 20.0


def test_clusters_are_named_where_there_are_several_or_nothing_else():
    other = load_cluster("2x3090")
    assert [each.name for each in variants([STAR, other])] == ["star", "2x3090"]
    assert [each.name for each in variants([STAR])] == ["star"]
    assert variants([STAR, other], [], [], [2])[1].name == "2x3090, batch 2"


def test_clusters_of_one_name_get_the_stem_of_their_file_or_all_of_it():
    def named(*files: str) -> list[str]:
        return [each.name for each in told_apart(files, [STAR] * len(files))]

    assert named("a.yaml") == ["star"]
    assert named("my/a.yaml", "b.json") == ["star (a)", "star (b)"]
    assert named("x/a.yaml", "y/a.yaml", "star") == ["star (x/a.yaml)", "star (y/a.yaml)", "star"]


def test_one_file_is_there_once_however_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_distinct(["2x3090", "./2x3090", "2x3090.yaml", "a/b.yaml", "b.yaml"])
    for twice in (["2x3090", "2X3090"], ["a.yaml", "b/../a.yaml"], ["This-Machine"] * 2):
        with pytest.raises(OptionError, match="twice; name each preset or file once"):
            check_distinct(twice)


def test_too_many_variants_are_refused_before_any_is_made():
    axes = [parse_count("fast=1..100"), parse_count("slow=1..100")]
    with pytest.raises(OptionError, match=f"10000 variants.*{MOST_VARIANTS}"):
        variants([STAR], axes)


def test_one_kind_has_one_count():
    with pytest.raises(OptionError, match="twice for one kind"):
        variants([STAR], [parse_count("fast=1"), parse_count("fast=2")])
    with pytest.raises(OptionError, match="twice for one kind"):  # in another spelling
        variants([load_cluster("2x3090")], [parse_count("RTX 3090=1,2"), parse_count("rtx3090=2")])


# -- writing -------------------------------------------------------------------------------------


def test_counts_are_ranges_or_lists():
    assert parse_count("T4=1..3").counts == (1, 2, 3)
    assert parse_count("V100 32GB= 1, 4 ,4").counts == (1, 4)
    assert parse_count("V100 32GB=2").kind == "V100 32GB"
    assert parse_count("T4=0..0").counts == (0,)


@pytest.mark.parametrize(
    "text", ["T4", "=1", "T4=", "T4=a", "T4=1..", "T4=3..1", "T4=-1", "T4=1.5", "T4=1..9999999",
             "T4=5000", "T4=1..99999", "T4=1,,2"],
)  # fmt: skip
def test_a_count_written_wrongly_is_refused(text):
    with pytest.raises(OptionError, match="--count"):
        parse_count(text)


def test_bandwidths_are_amounts_or_factors_for_all_or_named_links():
    assert parse_bandwidths("10GB/s,x2") == parse_bandwidths("*=10GB/s, x2")
    assert parse_bandwidths("nic*=1 Gbit/s").pattern == "nic*"
    assert parse_bandwidths("x1, x2,x1").amounts == ("x1", "x2")


@pytest.mark.parametrize("text", ["", "fast", "0", "x0", "x-1", "xnan", "xinf", "x", "1,,2", "a=b"])
def test_a_bandwidth_written_wrongly_is_refused(text):
    with pytest.raises(OptionError, match="--bandwidth"):
        parse_bandwidths(text)


@pytest.mark.parametrize("text", ["", "0", "a", "1,0", "1.5", "-1", "1,,2", "9" * 20])
def test_batches_written_wrongly_are_refused(text):
    with pytest.raises(OptionError, match="--batches"):
        parse_batches(text)
