"""The catalog: datasheet figures, ready-made clusters, and filling in what a cluster leaves out."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from placewright.cluster import Cluster, CudaRun, Device, Link
from placewright.costs.catalog import (
    THIS_MACHINE,
    WIDER,
    complete,
    defaults,
    find_kind,
    kinds,
    peak_flops,
)
from placewright.costs.clusters import load_cluster, presets
from placewright.costs.links import routes
from placewright.errors import ClusterError, FormatError
from placewright.graph import DTYPES

READY_MADE = (
    "moirai-inter-server",
    "moirai-intra-server",
    "diviml",
    "diviml-six-nodes",
    "celeritas",
    "tarnawski",
    "2x3090",
    "4090+3060",
    "8xA100",
    "8xH100",
    "8xH200",
    "8xB200",
    "8xMI300X",
    "a100+2xt4+cpu",
    "4060+cpu",
    "4090+cpu",
    "7900xtx+cpu",
    "3090+2x3060",
    "4x3090+cpu",
    "mac+pc",
    "three-hosts",
)

# -- kinds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rtx 2080 ti", "RTX 2080 Ti"),
        ("NVIDIA GeForce RTX 3060 Ti", "RTX 3060 Ti"),
        ("NVIDIA GeForce RTX 3060", "RTX 3060"),
        ("rtx4060", "RTX 4060"),
        ("Tesla T4", "T4"),
        ("Tesla P4", "P4"),
        ("Tesla P100-PCIE-16GB", "P100 PCIe"),
        ("Tesla P100-SXM2-16GB", "P100"),
        ("Tesla V100-SXM2-16GB", "V100 16GB"),
        ("Tesla V100-SXM2-32GB", "V100 32GB"),
        ("Tesla V100-PCIE-32GB", "V100 PCIe 32GB"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Intel(R) Xeon(R) Gold 5220 CPU @ 2.20GHz", "Xeon Gold 5220"),
        ("Intel(R) Xeon(R) CPU @ 2.00GHz", "Xeon Skylake 2.0 GHz"),
        ("AMD EPYC 7763 64-Core Processor", "EPYC 7763"),
        ("AMD EPYC 9654 96-Core Processor", "EPYC 9654"),
        ("Apple M1 Max", "M1 Max"),
        ("Apple M3 Ultra", "M3 Ultra"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA B200", "B200"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI250X", "MI250X GCD"),
        ("AMD Radeon RX 7900 XTX", "RX 7900 XTX"),
        ("AMD Radeon PRO W7900", "Radeon PRO W7900"),
        ("Apple M4 Max", "M4 Max"),
    ],
)
def test_a_kind_is_found_by_the_names_that_drivers_and_people_use(name: str, kind: str) -> None:
    found = find_kind(name)
    assert found is not None and found.name == kind


def test_a_kind_is_not_found_by_a_part_of_its_name() -> None:
    assert find_kind("RTX 30") is None
    assert find_kind("RTX 3090 Super") is None
    assert find_kind("") is None


def test_every_kind_is_found_by_its_name_and_its_aliases() -> None:
    for kind in kinds().values():
        for name in (kind.name, *kind.aliases, kind.name.upper()):
            assert find_kind(name) is kind


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("RTX 2080 Ti", "fp16", 53.8),  # GeForce: half of the 107.6 with fp16 accumulation
        ("RTX 3090", "fp16", 71),
        ("RTX 3090", "tf32", 35.6),
        ("RTX 4090", "bf16", 165.2),
        ("RTX 4090", "fp8", 330.3),
        ("T4", "fp16", 65),  # data-centre card of the same generation as the 2080 Ti: full rate
        ("V100 32GB", "fp16", 125),
        ("P100", "fp16", 21.2),
        ("A100 40GB", "tf32", 156),
        ("A100 80GB", "bf16", 312),  # 624 is with sparsity
        ("H100 SXM", "bf16", 989.4),
        ("H100 PCIe", "fp8", 1513),
        ("H200", "fp8", 1979),
        ("L4", "fp16", 121),
        ("RTX 3080", "fp16", 59.5),
        ("RTX 5090", "fp16", 209.8),
        ("RTX A6000", "fp16", 154.8),  # a professional card: full rate
        ("L40", "fp16", 181),  # half the rate of an L40S
        ("B200", "bf16", 2250),
        ("MI300X", "fp8", 2614.9),
        ("MI210", "fp16", 181),
        ("RX 9070 XT", "fp16", 195),
    ],
)
def test_peaks_are_the_dense_ones_with_wide_accumulation(
    name: str, dtype: str, tflops: float
) -> None:
    assert kinds()[name].peak_flops[dtype] == pytest.approx(tflops * 1e12)


@pytest.mark.parametrize(
    ("name", "cores", "gigahertz"),
    [
        ("RTX 2080 Ti", 4352, 1.545),
        ("RTX 3060", 3584, 1.777),
        ("RTX 3060 Ti", 4864, 1.665),
        ("RTX 3090", 10496, 1.695),
        ("RTX 4060", 3072, 2.46),
        ("RTX 4090", 16384, 2.52),
        ("P4", 2560, 1.075),
        ("P100", 3584, 1.48),
        ("V100 16GB", 5120, 1.53),
        ("T4", 2560, 1.59),
        ("A100 40GB", 6912, 1.41),
        ("L4", 7424, 2.04),
        ("L40S", 18176, 2.52),
        ("H100 SXM", 16896, 1.98),
        ("M1 Max", 4096, 1.278),
        ("M3 Max", 5120, 1.398),
        ("RTX 3070 Ti", 6144, 1.77),
        ("RTX 4080 SUPER", 10240, 2.55),
        ("RTX 5090", 21760, 2.407),
        ("A40", 10752, 1.74),
        ("RTX 6000 Ada", 18176, 2.505),
        ("RX 7900 XTX", 2 * 6144, 2.5),  # each lane issues two at once
        ("MI300X", 2 * 19456, 2.1),
        ("M4 Max", 5120, 1.578),
    ],
)
def test_fp32_peaks_are_what_cores_and_boost_clock_give(
    name: str, cores: int, gigahertz: float
) -> None:
    assert kinds()[name].peak_flops["fp32"] == pytest.approx(2 * cores * gigahertz * 1e9, rel=0.02)


def test_narrower_dtypes_are_never_slower_than_wider_ones() -> None:
    for kind in kinds().values():
        device = Device("d", kind.name, peak_flops=kind.peak_flops)
        for narrow, wide in WIDER.items():
            if wide != "fp64" or "fp64" in kind.peak_flops:
                assert peak_flops(device, narrow) >= peak_flops(device, wide), (kind.name, narrow)


def test_every_kind_says_where_its_figures_are_from_and_has_sane_ones() -> None:
    for kind in kinds().values():
        assert len(kind.source) > 10
        assert set(kind.peak_flops) <= set(DTYPES) and "fp32" in kind.peak_flops
        assert 50e9 < kind.memory_bandwidth < 1e13
        assert 1e11 < kind.peak_flops["fp32"] < 2e14
        assert kind.memory is None or 8e9 <= kind.memory <= 256e9
        assert kind.launch_overhead == defaults(kind.family).launch_overhead


def test_a_kind_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        kinds()["T4"].peak_flops["fp32"] = 1.0  # type: ignore[index]
    with pytest.raises(TypeError):
        kinds()["T4"] = kinds()["P4"]  # type: ignore[index]


# -- peaks of a dtype ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "dtype", "runs_as"),
    [
        ("T4", "bf16", "fp32"),
        ("T4", "fp8", "fp16"),
        ("T4", "tf32", "fp32"),
        ("P4", "fp16", "fp32"),
        ("P4", "int4", "int8"),
        ("P100", "int8", "fp16"),
        ("V100 16GB", "int4", "fp16"),
        ("Xeon Skylake 2.0 GHz", "int8", "fp32"),
        ("H100 SXM", "int4", "int8"),
        ("A100 40GB", "fp16", "fp16"),
    ],
)
def test_a_dtype_without_a_peak_runs_at_that_of_the_next_wider_one(
    kind: str, dtype: str, runs_as: str
) -> None:
    device = Device("d", kind, peak_flops=kinds()[kind].peak_flops)
    assert peak_flops(device, dtype) == kinds()[kind].peak_flops[runs_as]


def test_every_dtype_widens_to_fp64() -> None:
    device = Device("d", "mine", peak_flops={"fp64": 1e12})
    assert {peak_flops(device, dtype) for dtype in DTYPES} == {1e12}


def test_a_dtype_wider_than_all_peaks_is_refused() -> None:
    device = Device("d", "M1", peak_flops={"fp32": 1e12})
    with pytest.raises(ClusterError, match=r"no peak for fp64 or a wider dtype; add peak_flops"):
        peak_flops(device, "fp64")


def test_a_device_without_peaks_and_an_unknown_dtype_are_refused() -> None:
    with pytest.raises(ClusterError, match=r"'d' \(kind 'mine'\) has no peak_flops"):
        peak_flops(Device("d", "mine"), "fp32")
    with pytest.raises(ClusterError, match="dtype 'fp12' is unknown; use one of fp64"):
        peak_flops(Device("d", "mine", peak_flops={"fp32": 1.0}), "fp12")


# -- filling in ------------------------------------------------------------------------------


def only(device: Device) -> Device:
    return complete(Cluster("c", (device,))).devices[0]


def test_a_known_kind_fills_in_every_figure() -> None:
    device, kind = only(Device("d", "rtx 3090")), kinds()["RTX 3090"]
    assert device.memory == 24e9
    assert device.peak_flops == kind.peak_flops
    assert device.memory_bandwidth == 936e9
    assert device.launch_overhead == pytest.approx(5e-6)
    assert (device.compute_efficiency, device.memory_efficiency) == (0.6, 0.8)
    assert device.kind == "rtx 3090"  # measured times may be named so


def test_what_a_cluster_says_is_kept() -> None:
    device = only(
        Device(
            "d", "T4", memory=1e9, peak_flops={"fp32": 1.0}, launch_overhead=0.0, host="h",
            run=CudaRun(3),
        )
    )  # fmt: skip
    assert device.run == CudaRun(3)
    assert (device.memory, device.launch_overhead, device.host) == (1e9, 0.0, "h")
    assert device.peak_flops == {"fp32": 1.0}
    assert device.memory_bandwidth == 320e9


def test_an_unknown_kind_without_memory_is_refused_with_the_closest_kinds() -> None:
    with pytest.raises(ClusterError) as caught:
        only(Device("gpu0", "RTX 3095"))
    message = str(caught.value)
    assert message.startswith("cluster 'c': device 'gpu0' gives no memory")
    assert "'RTX 3095'" in message and "RTX 3090" in message and "\n" not in message


def test_a_cpu_must_say_its_memory() -> None:
    with pytest.raises(ClusterError, match=r"device 'cpu' gives no memory, .*EPYC 7763.* add its"):
        only(Device("cpu", "EPYC 7763"))
    assert only(Device("cpu", "EPYC 7763", memory=math.inf)).memory == math.inf


def test_an_unknown_kind_without_peaks_stays_as_it_is() -> None:
    device = Device("d", "abacus", memory=1e9)
    assert only(device) == device


def test_an_unknown_kind_with_peaks_gets_default_overhead_and_efficiencies() -> None:
    device = only(Device("d", "npu", memory=1e9, peak_flops={"fp32": 1e12}, memory_bandwidth=1e11))
    assert device.launch_overhead == pytest.approx(5e-6)
    assert (device.compute_efficiency, device.memory_efficiency) == (0.6, 0.8)


def test_completing_twice_changes_nothing() -> None:
    cluster = load_cluster("diviml")
    assert complete(cluster) == cluster


# -- clusters --------------------------------------------------------------------------------


def test_the_presets_are_those_that_are_named() -> None:
    assert {entry.name for entry in presets()} == {*READY_MADE, THIS_MACHINE}
    for entry in presets():
        assert len(entry.description) > 20 and entry.devices


@pytest.mark.parametrize("name", READY_MADE)
def test_a_preset_is_complete_connected_and_named_as_asked(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.name == name
    for device in cluster.devices:
        assert find_kind(device.kind) is not None
        assert None not in (device.memory, device.peak_flops, device.launch_overhead)
    latency = routes(cluster).link_latency
    assert latency.max() < 1e-4 and (latency > 0).sum() == len(latency) * (len(latency) - 1)


@pytest.mark.parametrize("name", READY_MADE)
def test_a_preset_can_be_written_and_read_back(name: str, tmp_path: Path) -> None:
    cluster = load_cluster(name)
    for suffix in ("yaml", "json"):
        cluster.save(tmp_path / f"c.{suffix}")
        assert load_cluster(str(tmp_path / f"c.{suffix}")) == cluster


def test_device_summaries_count_equal_kinds() -> None:
    summary = {entry.name: entry.devices for entry in presets()}
    assert summary["moirai-intra-server"] == "2 × V100 32GB, 2 × P100"
    assert summary["8xA100"] == "8 × A100 80GB"
    assert summary["diviml"] == "Xeon Skylake 2.0 GHz, T4, A100 40GB"


MOIRAI = {  # Table III: Gbit/s from the row's device to the column's
    "moirai-inter-server": [
        [0, 44.26, 32.92, 44.28],
        [42.39, 0, 35.32, 44.51],
        [33.2, 35.31, 0, 32.95],
        [42.08, 43.22, 33.28, 0],
    ],
    "moirai-intra-server": [
        [0, 1170.04, 626.10, 610.56],
        [1148.16, 0, 618.98, 581.09],
        [630.43, 609.82, 0, 571.96],
        [622.67, 575.08, 581.35, 0],
    ],
}


@pytest.mark.parametrize("name", MOIRAI)
def test_moirai_clusters_have_the_bandwidths_of_table_3(name: str) -> None:
    found = routes(load_cluster(name))
    for a, row in enumerate(MOIRAI[name]):
        for b, gigabits in enumerate(row):
            if a != b:
                bandwidth = gigabits * 1e9 / 8
                assert found.link_seconds_per_byte[a, b] == pytest.approx(1 / bandwidth, rel=1e-12)


def test_moirai_clusters_have_the_memory_and_hosts_of_table_3() -> None:
    inter, intra = (load_cluster(name) for name in MOIRAI)
    assert [device.memory for device in inter.devices] == [11e9, 16e9, 8e9, 8e9]
    assert [device.memory for device in intra.devices] == [32e9, 32e9, 16e9, 16e9]
    assert len({device.host for device in inter.devices}) == 4
    assert len({device.host for device in intra.devices}) == 1


def test_six_nodes_have_the_symmetry_of_the_paper() -> None:
    cluster = load_cluster("diviml-six-nodes")
    symmetry = math.factorial(6)
    for host in {device.host for device in cluster.devices}:
        here = [device.kind for device in cluster.devices if device.host == host]
        for kind in set(here):
            symmetry *= math.factorial(here.count(kind))
    assert symmetry == 4**6 * math.factorial(6)


def test_tarnawski_copies_through_the_cpu_which_has_no_limit() -> None:
    cluster = load_cluster("tarnawski")
    found = routes(cluster)
    assert cluster.devices[-1].memory == math.inf
    assert [found.channel_names[each] for each in found.channels_of(0, 1)] == [
        "acc0 → cpu",
        "cpu → acc1",
    ]


def test_preset_names_may_be_written_in_any_case() -> None:
    assert load_cluster("8xa100") == load_cluster("8xA100")


def test_a_cluster_file_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    Cluster("mine", (Device("a", "T4"), Device("b", "L4")), (Link("a", "b", 1e9),)).save(path)
    assert [device.memory for device in load_cluster(path).devices] == [16e9, 24e9]


def test_an_unknown_cluster_is_refused_with_what_was_meant_or_what_there_is() -> None:
    with pytest.raises(ClusterError, match=r"'moirai-inter'; did you mean .*'moirai-inter-server'"):
        load_cluster("moirai-inter")
    with pytest.raises(ClusterError) as caught:
        load_cluster("/no/such/file.yaml")
    assert all(name in str(caught.value) for name in (*READY_MADE, THIS_MACHINE))
    for odd in ("", "x" * 5000, "a\0b"):
        with pytest.raises((ClusterError, FormatError), match=r"."):
            load_cluster(odd)


def test_a_faulty_cluster_file_is_told_by_its_name_and_field(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    device = {"name": "a", "kind": "T4", "memory": "much"}
    document = {"format": "placewright.cluster/1", "name": "c", "devices": [device]}
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=r"bad.json: field devices.0.memory"):
        load_cluster(path)


def test_importing_the_catalog_does_not_import_pydantic_or_yaml() -> None:
    code = (
        "import sys, placewright.costs.catalog, placewright.costs.links, placewright.costs.detect;"
        "print([name for name in ('pydantic', 'yaml', 'torch', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
