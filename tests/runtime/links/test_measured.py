"""Measured times become links of the cluster, and say how well they describe them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from placewright.cluster import Cluster, CpuRun, CudaRun, Device, Link, LinkMeasurement
from placewright.costs import detect as detection
from placewright.costs.detect import HOST_MEMORY, cluster_of
from placewright.costs.links import routes
from placewright.costs.machine import Gpu, Machine, Processor
from placewright.errors import ClusterError, ExecutionError, FormatError, MissingExtraError
from placewright.runtime.links import measure_links, measured
from placewright.runtime.links.measured import measurable, with_links
from placewright.runtime.links.pace import SIZES, Times, measured_times
from tests.costs.profiles.machines import Machine as FakeMachine
from tests.costs.profiles.machines import always_steady

MACHINE = Machine("box", Processor("EPYC 7763", 4, 2e9, cpus=(0, 1, 2, 3)), 64e9, 40e9)


def times(latency: float, bandwidth: float) -> Times:
    return Times(SIZES, tuple(latency + size / bandwidth for size in SIZES))


def linked(cluster: Cluster, found: dict[tuple[int, int], Times]) -> Cluster:
    return with_links(
        cluster, measurable(cluster), found, "gloo", lambda a, b: (HOST_MEMORY, "half")
    )


def test_every_pair_gets_the_link_it_was_measured_to_have() -> None:
    cluster = cluster_of(MACHINE, 3, link_cpus=False)
    found = {(0, 1): times(4e-5, 1e9), (0, 2): times(5e-5, 2e9), (1, 2): times(6e-5, 3e9)}
    paths = routes(linked(cluster, found))
    for a, b in found:
        assert paths.link_latency[a, b] == pytest.approx(4e-5 + 1e-5 * (a + b - 1), rel=0.02)
        assert paths.link_seconds_per_byte[b, a] == pytest.approx(1e-9 / (a + b), rel=0.02)


def test_a_pair_keeps_its_own_link_where_a_way_round_is_wider() -> None:
    cluster = cluster_of(MACHINE, 3, link_cpus=False)
    found = {(0, 1): times(4e-5, 1e9), (0, 2): times(4e-5, 9e9), (1, 2): times(4e-5, 9e9)}
    assert routes(linked(cluster, found)).link_seconds_per_byte[0, 1] == pytest.approx(1e-9, 0.02)


def test_gpus_keep_the_links_they_were_detected_with_and_that_is_said() -> None:
    gpus = (Gpu(0, "NVIDIA A100-SXM4-40GB", 40e9, (4, 16)),)
    cluster = cluster_of(replace(MACHINE, gpus=gpus), 2, link_cpus=False)
    found = linked(cluster, {(0, 1): times(4e-5, 1e9)})
    assert [link for link in found.links if link.measured is None] == list(cluster.links)
    assert "as those of other devices are not" in found.description
    gpu, one, two = (found.device_names.index(name) for name in ("gpu0", "cpu0", "cpu1"))
    paths = routes(found)
    assert paths.link_seconds_per_byte[one, two] == pytest.approx(1e-9, rel=0.02)
    assert paths.link_seconds_per_byte[gpu, one] < 1e-10


def test_what_is_assumed_of_copies_is_not_said_of_measured_links() -> None:
    assert "copies between them assumed" in cluster_of(MACHINE, 2).description
    found = linked(cluster_of(MACHINE, 2, link_cpus=False), {(0, 1): times(4e-5, 1e9)})
    assert "copies between them assumed" not in found.description
    assert "are measured over gloo" in found.description


def test_times_that_no_line_describes_name_their_devices() -> None:
    flat = Times(SIZES, (1e-4,) * len(SIZES))
    with pytest.raises(ExecutionError, match=r"^cpu0 – cpu1: transfers of .* took no longer"):
        linked(cluster_of(MACHINE, 2, link_cpus=False), {(0, 1): flat})


def test_a_machine_without_two_cpu_devices_has_no_link_to_measure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    gpu = Device("gpu", "A100 40GB", run=CudaRun(0))
    for cpus in (0, 1):
        found = Cluster("c", (gpu, *[Device("cpu", "x", run=CpuRun((0,)))][:cpus]))
        monkeypatch.setattr(measured, "detect", lambda *_, found=found, **__: found)
        with pytest.raises(ClusterError, match=r"only links between CPU devices .* --split-cpu 2"):
            measure_links()


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(measured, "detect", lambda *_, **__: pytest.fail("it worked"))
    with pytest.raises(MissingExtraError, match=r"measuring links needs the extra 'torch'"):
        measure_links(2)


def test_detection_leaves_the_links_of_cpus_out_where_they_are_to_be_measured() -> None:
    assert detection.detect(1, link_cpus=False).links == ()
    assert cluster_of(MACHINE, 4, link_cpus=False).links == ()


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_cluster_file_keeps_how_links_were_measured(tmp_path: Path, suffix: str) -> None:
    cluster = linked(cluster_of(MACHINE, 2, link_cpus=False), {(0, 1): times(4e-5, 1e9)})
    cluster.save(tmp_path / f"mine.{suffix}")
    again = Cluster.load(tmp_path / f"mine.{suffix}")
    assert again == cluster
    assert [link.measured for link in again.links] == [link.measured for link in cluster.links]
    assert again.links[0].measured is not None


def test_a_file_that_says_nonsense_of_a_measurement_is_refused() -> None:
    document = Cluster(
        "c",
        (Device("a", "x"), Device("b", "x")),
        (Link("a", "b", 1e9, measured=LinkMeasurement("copy", 0.1, 0.2)),),
    ).to_document()
    for key, value in (("transport", "pigeon"), ("median_error", -1), ("largest_error", "much")):
        broken = dict(
            document["links"][0], measured=document["links"][0]["measured"] | {key: value}
        )
        with pytest.raises(FormatError, match=key):
            Cluster.from_document(document | {"links": [broken]})


# -- how often what is timed ---------------------------------------------------------------------


def test_times_are_medians_and_the_first_of_each_size_do_not_count() -> None:
    seen: dict[int, int] = {}

    def transfer(size: int, count: int) -> list[float]:
        seen[size] = seen.get(size, 0) + 1
        return [1.0 if seen[size] == 1 else 1e-3 * size] * count

    found = measured_times(transfer, always_steady(), (1, 2, 3), pair_seconds=0.0)
    assert found == Times((1, 2, 3), (1e-3, 2e-3, 3e-3))
    assert len(set(seen.values())) == 1 and seen[1] >= 6


def test_sizes_that_take_too_long_are_left_out() -> None:
    def transfer(size: int, count: int) -> list[float]:
        return [float(size)] * count

    found = measured_times(transfer, always_steady(), (1, 2, 4, 8), pair_seconds=0.0)
    assert found.sizes == (1, 2)


def test_times_while_the_machine_is_slow_do_not_count() -> None:
    machine = FakeMachine(lambda now: 0.5 if now > 0.2 and now % 1.0 < 0.6 else 1.0)

    def transfer(size: int, count: int) -> list[float]:
        return [machine.work(size * 1e-3) for _ in range(count)]

    found = measured_times(transfer, machine.watch(), (1, 2, 4), pair_seconds=1.0)
    assert found.seconds == (pytest.approx(1e-3), pytest.approx(2e-3), pytest.approx(4e-3))
