"""A cluster is checked when it is made, and survives its file in YAML and JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from placewright.cluster import Cluster, CpuRun, CudaRun, Device, Link, LinkMeasurement
from placewright.costs.roofline import CostOptions, build_problem
from placewright.errors import ClusterError, FormatError
from placewright.graph import GraphBuilder
from placewright.options import Options

FULL = Cluster(
    "full",
    devices=(
        Device("gpu0", "T4", host="one", memory=16e9, peak_flops={"fp32": 8e12, "fp16": 65e12},
               memory_bandwidth=320e9, launch_overhead=5e-6, compute_efficiency=0.5,
               memory_efficiency=1.0, run=CudaRun(0)),
        Device("cpu", "Xeon", host="one", memory=math.inf, run=CpuRun((2, 0))),
        Device("gpu1", "mystery", host="two"),
    ),
    links=(
        Link("gpu0", "switch", bandwidth=16e9, reverse_bandwidth=12e9, latency=1e-6,
             duplex="half", channel="pcie"),
        Link("cpu", "switch", bandwidth=math.inf),
        Link("gpu1", "switch", bandwidth=1.25e9, reverse_bandwidth=math.inf),
    ),
    switches=("switch",),
    routing="direct",
    description="Every field of the format.",
)  # fmt: skip

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1)
positive = st.floats(1e-3, 1e15)


@st.composite
def clusters(draw):
    ends = draw(st.lists(names, min_size=2, max_size=6, unique=True))
    count = draw(st.integers(1, len(ends)))
    pairs = draw(
        st.lists(st.tuples(st.sampled_from(ends), st.sampled_from(ends)), max_size=6)
    )  # fmt: skip
    return Cluster(
        draw(names),
        devices=tuple(
            Device(
                name,
                draw(names),
                memory=draw(st.none() | st.just(math.inf) | st.floats(0, 1e15)),
                peak_flops=draw(st.none() | st.just({"bf16": 1e12})),
                memory_bandwidth=draw(st.none() | positive),
                launch_overhead=draw(st.none() | st.floats(0, 1)),
                compute_efficiency=draw(st.none() | st.floats(0.01, 1)),
                run=draw(st.sampled_from([None, CudaRun(k), CpuRun((k,)), CpuRun((k + 9, k))])),
            )
            for k, name in enumerate(ends[:count])
        ),
        links=tuple(
            Link(
                a,
                b,
                bandwidth=draw(positive | st.just(math.inf)),
                reverse_bandwidth=draw(st.none() | positive | st.just(math.inf)),
                latency=draw(st.floats(0, 1)),
                duplex=draw(st.sampled_from(["full", "half"])),
                channel=draw(st.none() | names),
            )
            for a, b in pairs
            if a != b
        ),
        switches=tuple(ends[count:]),
        routing=draw(st.sampled_from(["widest", "direct"])),
        description=draw(st.just("") | names),
    )


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["full.yaml", "full.yml", "full.json"])
def test_a_cluster_reads_back_equal_from_its_file(tmp_path, name):
    FULL.save(tmp_path / name)
    loaded = Cluster.load(tmp_path / name)
    assert (loaded, loaded.description) == (FULL, FULL.description)
    loaded.save(tmp_path / f"again-{name}")
    assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes()


@given(clusters())
def test_any_cluster_reads_back_equal_from_json(cluster):
    document = json.loads(json.dumps(cluster.to_document(), allow_nan=False))
    assert Cluster.from_document(document) == cluster


@given(clusters())
def test_any_cluster_reads_back_equal_from_yaml(cluster):
    text = yaml.safe_dump(cluster.to_document(), sort_keys=False, allow_unicode=True)
    assert Cluster.from_document(yaml.safe_load(text)) == cluster


def test_amounts_may_be_written_with_units(tmp_path):
    (tmp_path / "units.yaml").write_text(
        """
        format: placewright.cluster/1
        name: units
        devices:
          - {name: a, kind: T4, memory: 16 GiB, memory_bandwidth: 320 GB/s, launch_overhead: 5 us}
          - {name: b, kind: T4, memory: unlimited}
        links:
          - {between: [a, b], bandwidth: 100 Gbit/s, reverse_bandwidth: unlimited, latency: 2 ms}
        """
    )
    cluster = Cluster.load(tmp_path / "units.yaml")
    a, b = cluster.devices
    assert (a.memory, a.memory_bandwidth, a.launch_overhead) == (2.0**34, 320e9, 5e-6)
    assert b.memory == math.inf
    (link,) = cluster.links
    assert (link.bandwidth, link.reverse_bandwidth, link.latency) == (12.5e9, math.inf, 2e-3)


def test_units_may_be_written_as_people_do(tmp_path):
    (tmp_path / "units.yaml").write_text(
        """
        format: placewright.cluster/1
        name: units
        devices:
          - {name: a, kind: T4, memory: 24 gb, peak_flops: {fp16: 65 TFLOPS, int8: 130 TOPS}}
          - {name: b, kind: T4, memory: Unlimited}
        links:
          - {between: [a, b], bandwidth: 10 Gbps, reverse_bandwidth: UNLIMITED}
        """
    )
    cluster = Cluster.load(tmp_path / "units.yaml")
    a, b = cluster.devices
    assert (a.memory, a.peak_flops) == (24e9, {"fp16": 65e12, "int8": 130e12})
    assert b.memory == math.inf
    (link,) = cluster.links
    assert (link.bandwidth, link.reverse_bandwidth) == (1.25e9, math.inf)


@pytest.mark.parametrize("name", ["cluster", "cluster.txt"])
def test_a_cluster_in_yaml_may_have_any_name(tmp_path, name):
    FULL.save(tmp_path / "full.yaml")
    (tmp_path / "full.yaml").rename(tmp_path / name)
    assert Cluster.load(tmp_path / name) == FULL


def test_a_cluster_that_cannot_be_used_names_its_file(tmp_path):
    path = tmp_path / "apart.json"
    Cluster("apart", (A, B)).save(path)
    graph = GraphBuilder("one")
    graph.add_op("op", "op")
    for cluster, message in (
        (Cluster.load(path), f"{path}: cluster 'apart' is disconnected"),
        (Cluster("apart", (A, B)), "cluster 'apart' is disconnected"),
    ):
        with pytest.raises(ClusterError) as caught:
            build_problem(graph.build(), cluster, Options(), CostOptions(profiles=None))
        assert str(caught.value).startswith(message)


def test_amounts_may_be_written_as_numbers_however_yaml_takes_them(tmp_path):
    """PyYAML takes 12e9 and 5e-6, which have no point, for text."""
    (tmp_path / "numbers.yaml").write_text(
        """
        format: placewright.cluster/1
        name: numbers
        devices:
          - {name: a, kind: T4, memory: 16e9, memory_bandwidth: 320e9, launch_overhead: 5e-6}
          - {name: b, kind: T4, memory: 16000000000, peak_flops: {fp32: 8e12}}
        links:
          - {between: [a, b], bandwidth: 12e9, reverse_bandwidth: 1.0e+9, latency: 5e-6}
        """
    )
    cluster = Cluster.load(tmp_path / "numbers.yaml")
    a, b = cluster.devices
    assert (a.memory, a.memory_bandwidth, a.launch_overhead) == (16e9, 320e9, 5e-6)
    assert (b.memory, b.peak_flops) == (16e9, {"fp32": 8e12})
    (link,) = cluster.links
    assert (link.bandwidth, link.reverse_bandwidth, link.latency) == (12e9, 1e9, 5e-6)


def test_what_has_its_default_is_left_out_of_the_file():
    cluster = Cluster("two", (Device("a", "T4"), Device("b", "T4")), (Link("a", "b", 1e9),))
    assert cluster.to_document() == {
        "format": "placewright.cluster/1",
        "name": "two",
        "devices": [
            {"name": "a", "kind": "T4", "host": "host"},
            {"name": "b", "kind": "T4", "host": "host"},
        ],
        "links": [{"between": ["a", "b"], "bandwidth": 1e9}],
    }


def test_a_fault_in_a_file_names_the_file_and_the_field():
    document = FULL.to_document()
    document["devices"][1]["memory"] = "lots"
    with pytest.raises(FormatError, match=r"^c.yaml: field devices.1.memory: 'lots' is no amount"):
        Cluster.from_document(document, "c.yaml")
    document = FULL.to_document()
    document["links"][0]["between"] = ["gpu0", "moon"]
    with pytest.raises(ClusterError, match=r"^c.yaml: cluster 'full': a link names 'moon'"):
        Cluster.from_document(document, "c.yaml")


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({"type": "tpu", "index": 0}, "field devices.1.run: type 'tpu' is unknown; use cpu or c"),
        ({"cores": [0]}, "field devices.1.run: type is missing; use cpu or cuda"),
        ({"type": "cpu", "cores": []}, "field devices.1.run.cores: has too few entries"),
        ({"type": "cpu", "cores": [-1]}, "field devices.1.run.cores.0: must be at least 0"),
        ({"type": "cpu", "index": 0}, "field devices.1.run.cores: is missing"),
        ({"type": "cuda", "index": -1}, "field devices.1.run.index: must be at least 0"),
        ({"type": "cpu", "cores": [3, 3]}, "device 'cpu': run: core 3 is there twice"),
        ({"type": "cuda", "index": 0}, "cluster 'full': devices 'gpu0' and 'cpu' both run on G"),
    ],
)  # fmt: skip
def test_a_run_that_is_none_is_refused_by_file_and_field(run, message):
    document = FULL.to_document()
    document["devices"][1]["run"] = run
    with pytest.raises((FormatError, ClusterError)) as caught:
        Cluster.from_document(document, "c.yaml")
    assert str(caught.value).startswith(f"c.yaml: {message}")


def test_an_empty_name_is_refused_by_file_and_field():
    document = FULL.to_document()
    document["devices"][1]["name"] = ""
    with pytest.raises(FormatError, match=r"^c\.yaml: field devices\.1\.name: must not be empty"):
        Cluster.from_document(document, "c.yaml")


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"memory": -1.0}, "device 'd': memory is -1.0; it must be ≥ 0"),
        ({"memory": math.nan}, "device 'd': memory is nan"),
        ({"memory": "16 GiB"}, "device 'd': memory is '16 GiB'; give a number, without a unit"),
        ({"memory_bandwidth": 0.0}, "device 'd': memory_bandwidth is 0.0; it must be finite and"),
        ({"memory_bandwidth": math.inf}, "device 'd': memory_bandwidth is inf"),
        ({"peak_flops": {"fp32": -1.0}}, "device 'd': peak_flops.fp32 is -1.0"),
        ({"peak_flops": {"fp32": None}}, "device 'd': peak_flops.fp32 is None; give a number"),
        ({"peak_flops": {"fp99": 1.0}}, "device 'd': peak_flops has dtype 'fp99'; use one of"),
        ({"peak_flops": 5e12}, "device 'd': peak_flops is 5000000000000.0; give FLOP/s per dtype"),
        ({"compute_efficiency": 0.0}, "device 'd': compute_efficiency is 0.0"),
        ({"compute_efficiency": 1.5}, "device 'd': compute_efficiency is 1.5; it must be > 0 and"),
        ({"multiprocessors": 2.5}, "device 'd': multiprocessors is 2.5; it must be a whole"),
        ({"batch_sizes": 4}, "device 'd': batch_sizes is 4; give a tuple of whole numbers"),
        ({"batch_sizes": (1, "2")}, "device 'd': batch_sizes must be whole numbers of 1 or more"),
        ({"run": "cpu"}, "device 'd': run has 'cpu'; give CpuRun(...) or CudaRun(...)"),
        ({"host": 3}, "device 'd': host is 3; give text"),
        ({"memory_efficiency": math.nan}, "device 'd': memory_efficiency is nan"),
        ({"launch_overhead": -1e-6}, "device 'd': launch_overhead is -1e-06"),
        ({"launch_overhead": math.inf}, "device 'd': launch_overhead is inf"),
    ],
)
def test_an_impossible_device_is_refused(figures, message):
    with pytest.raises(ClusterError) as caught:
        Device("d", "kind", **figures)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Device(1, "T4"), "device 1: name is 1; give a text of one character or more"),
        (lambda: Device("d", ""), "device 'd': kind is ''; give a text of one character or more"),
        (lambda: Link(1, "b", 1.0), "link 1 – b: a is 1; give text"),
        (lambda: LinkMeasurement("x", 0.1, 0.1), "measured: transport is 'x'; choose shared, gl"),
        (lambda: CpuRun("01"), "run: cores is '01'; give a tuple of numbers of logical CPUs"),
        (lambda: CpuRun((0.5,)), "run: core 0.5 is no logical CPU"),
        (lambda: CudaRun("0"), "run: index '0' is no GPU"),
        (lambda: CpuRun(()), "run: cores is empty"),
        (lambda: CpuRun((0, -1)), "run: core -1 is no logical CPU"),
        (lambda: CpuRun((4, 0, 4)), "run: core 4 is there twice"),
        (lambda: CudaRun(-1), "run: index -1 is no GPU"),
    ],
)
def test_what_is_no_name_and_no_number_is_refused(make, message):
    with pytest.raises(ClusterError) as caught:
        make()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"bandwidth": 0.0}, "link a – b: bandwidth is 0.0; it must be > 0"),
        ({"bandwidth": math.nan}, "link a – b: bandwidth is nan"),
        ({"bandwidth": "12 GB/s"}, "link a – b: bandwidth is '12 GB/s'; give a number, without"),
        ({"bandwidth": None}, "link a – b: bandwidth is None; give a number"),
        ({"bandwidth": 1.0, "duplex": "x"}, "link a – b: duplex is 'x'; choose full, half"),
        ({"bandwidth": 1.0, "channel": 3}, "link a – b: channel is 3; give text"),
        ({"bandwidth": 1.0, "measured": 3}, "link a – b: measured has 3; give LinkMeasurement"),
        ({"bandwidth": 1.0, "reverse_bandwidth": -1.0}, "link a – b: reverse_bandwidth is -1.0"),
        ({"bandwidth": 1.0, "latency": -1.0}, "link a – b: latency is -1.0"),
        ({"bandwidth": 1.0, "latency": math.inf}, "link a – b: latency is inf"),
    ],
)
def test_an_impossible_link_is_refused(figures, message):
    with pytest.raises(ClusterError) as caught:
        Link("a", "b", **figures)
    assert str(caught.value).startswith(message)


A, B = Device("a", "T4"), Device("b", "T4")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"devices": ()}, "cluster 'c' has no devices"),
        ({"devices": A}, "cluster 'c': devices is Device(name='a', kind='T4', "),
        ({"devices": ("a", "b")}, "cluster 'c': devices has 'a'; give Device(...)"),
        ({"devices": (A, B), "links": (("a", "b"),)}, "links has ('a', 'b'); give Link(...)"),
        ({"devices": (A, B), "switches": "s"}, "switches is 's'; give a tuple of names"),
        ({"devices": (A, B), "routing": "x"}, "routing is 'x'; choose widest, direct"),
        ({"devices": (A, B), "host_memory": 3}, "host_memory is 3; give text"),
        ({"devices": (A, A)}, "cluster 'c': two devices or switches are named 'a'; rename"),
        ({"devices": (A, B), "switches": ("b",)}, "two devices or switches are named 'b'"),
        (
            {"devices": (replace(A, run=CpuRun((0, 1))), replace(B, run=CpuRun((2, 1))))},
            "cluster 'c': devices 'a' and 'b' both run on core 1; give each its own",
        ),
        (
            {"devices": (replace(A, run=CudaRun(1)), replace(B, run=CudaRun(1)))},
            "cluster 'c': devices 'a' and 'b' both run on GPU 1; give each its own",
        ),
        ({"devices": (A,), "switches": ("s", "s")}, "two devices or switches are named 's'"),
        ({"devices": (A, B), "links": (Link("a", "z", 1.0),)}, "or switch of it; it has a and b"),
        ({"devices": (A, B), "links": (Link("a", "a", 1.0),)}, "to itself; leave it out, or"),
    ],
)
def test_an_impossible_cluster_is_refused(parts, message):
    with pytest.raises(ClusterError) as caught:
        Cluster("c", **parts)
    assert message in str(caught.value)


def test_numbers_of_numpy_and_rows_of_any_kind_are_kept_as_a_file_can_hold_them(tmp_path):
    devices = (
        Device(
            name, "T4", memory=np.float32(16e9), multiprocessors=np.int64(40), batch_sizes=[2, 1]
        )
        for name in "ab"
    )
    made = Cluster("c", devices, [Link("a", "b", np.float64(1e9))], [])
    assert hash(made)
    made.save(tmp_path / "c.json")
    assert Cluster.load(tmp_path / "c.json") == replace(made, file=str(tmp_path / "c.json"))


def test_the_peaks_of_a_device_cannot_be_changed():
    peaks = {"fp32": 1e12}
    device = Device("d", "kind", peak_flops=peaks)
    peaks["fp32"] = 2e12
    assert device.peak_flops == {"fp32": 1e12}
    with pytest.raises(TypeError):
        device.peak_flops["fp32"] = 1.0  # type: ignore[index]


def test_devices_are_counted_and_named_without_switches():
    assert FULL.device_count == 3
    assert FULL.device_names == ("gpu0", "cpu", "gpu1")
