"""Links of GPUs: measured as copies between threads, by a stand-in here and by a GPU itself."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from placewright.cluster import Cluster, CpuRun, CudaRun, Device, Link, Transport  # noqa: E402
from placewright.errors import ClusterError  # noqa: E402
from placewright.runtime.links import gpus, measured, threads  # noqa: E402
from placewright.runtime.links.ends import End  # noqa: E402
from placewright.runtime.links.gpus import copied, with_gpu_links  # noqa: E402
from placewright.runtime.links.measured import gpu_pairs, measure_links  # noqa: E402
from placewright.runtime.links.threads import Receiver  # noqa: E402
from placewright.system.accelerators import cuda  # noqa: E402
from placewright.system.accelerators.places import CudaPlace, gpu_place  # noqa: E402
from tests.costs.profiles.machines import always_steady  # noqa: E402
from tests.system.accelerators.standin import StandIn  # noqa: E402

SIZES = (2**10, 2**14, 2**18)
CLUSTER = Cluster(
    "here",
    (
        Device("gpu0", "T4", memory=1e9, run=CudaRun(0)),
        Device("gpu1", "T4", memory=1e9, run=CudaRun(1)),
        Device("cpu", "cpu", memory=1e9, run=CpuRun((0,))),
        Device("far", "T4", memory=1e9),
    ),
    (Link("gpu0", "cpu", 1e10), Link("cpu", "gpu1", 1e10), Link("far", "cpu", 1e9)),
)


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = StandIn(gpus=2)
    monkeypatch.setattr(cuda, "driver", lambda: made)
    for module in (gpus, threads):
        monkeypatch.setattr(module, "torch_watch", lambda place: always_steady())
    yield made
    assert made.faults == []


def test_each_two_devices_of_this_machine_with_a_gpu_are_measured() -> None:
    names = [(a.name, b.name) for a, b in gpu_pairs(CLUSTER)]
    assert names == [("gpu0", "gpu1"), ("gpu0", "cpu"), ("gpu1", "cpu")]


@pytest.mark.parametrize("pair", [(None, 0), (0, None), (0, 1)])
def test_every_transfer_has_a_time_from_one_device_to_the_other(
    standin: StandIn, pair: tuple[int | None, int | None]
) -> None:
    source, target = (End(None if gpu is None else gpu_place(gpu, "gpu"), (0,)) for gpu in pair)
    standin.log.clear()
    seconds = copied(source, target, 4096, 3)
    assert len(seconds) == 3 and min(seconds) > 0
    assert [each[0] for each in standin.log].count("copy") == 3


@pytest.mark.parametrize("pair", [(None, 0), (0, None), (0, 1), (None, None)])
def test_a_thread_hands_tensors_to_another_as_in_a_run(
    standin: StandIn, pair: tuple[int | None, int | None]
) -> None:
    source, target = (End(None if gpu is None else gpu_place(gpu, "gpu"), (0,)) for gpu in pair)
    standin.log.clear()
    with source.entered(), Receiver(source, target) as receiver:
        for size in (1, 4096):
            seconds = receiver.transfers(size, 3)
            assert len(seconds) == 3 and min(seconds) > 0
    copies = [each[0] for each in standin.log].count("copy")
    assert copies == (0 if pair == (None, None) else 6)


@pytest.mark.parametrize("transport", ["thread", "copy"])
def test_links_are_measured_by_the_transport_that_is_asked_for(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch, transport: Transport
) -> None:
    asked: list[str] = []
    times = gpus.Times(SIZES, tuple(1e-5 + size / 1e9 for size in SIZES))
    for name in ("handed_times", "copied_times"):
        monkeypatch.setattr(gpus, name, lambda *_, name=name: asked.append(name) or times)
    found = with_gpu_links(CLUSTER, gpu_pairs(CLUSTER)[:1], transport, sizes=SIZES)
    assert asked == [{"thread": "handed_times", "copy": "copied_times"}[transport]] * 2
    assert {each.measured.transport for each in found.links if each.measured} == {transport}


def test_measured_links_take_the_place_of_assumed_ones(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "measured_times", timed)
    found = with_gpu_links(CLUSTER, gpu_pairs(CLUSTER), "thread", sizes=SIZES)
    between = {frozenset((link.a, link.b)): link for link in found.links}
    assert len(between) == len(found.links) == 4 and found.routing == "direct"
    for link in found.links:
        assert (link.measured is None) == ("far" in (link.a, link.b))
    link = between[frozenset(("gpu0", "cpu"))]
    assert link.bandwidth == pytest.approx(1e9) and link.latency == pytest.approx(1e-5)
    assert "Links of GPUs are measured as threads of one process hand tensors" in found.description


def timed(transfer: Any, watch: Any, sizes: Any) -> gpus.Times:
    assert transfer(sizes[0], 1)[0] > 0
    return gpus.Times(tuple(sizes), tuple(1e-5 + size / 1e9 for size in sizes))


def test_one_cpu_and_a_gpu_can_be_measured_but_not_over_gloo(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "detect", lambda split, link_cpus: CLUSTER)
    monkeypatch.setattr(gpus, "measured_times", timed)
    assert sum(link.measured is not None for link in measure_links(None, "copy").links) == 3
    with pytest.raises(ClusterError, match="--transport thread for those of GPUs"):
        measure_links(None, "gloo")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU here")
def test_a_gpu_itself_takes_longer_for_more_bytes() -> None:
    gpu, cpu = End(gpu_place(0, "gpu")), End(None, (0,))
    assert isinstance(gpu.place, CudaPlace)
    for source, target in ((gpu, cpu), (cpu, gpu)):
        small, large = (min(copied(source, target, size, 10)) for size in (2**10, 2**28))
        assert 0 < small < large
        with source.entered(), Receiver(source, target) as receiver:
            handed = [min(receiver.transfers(size, 10)) for size in (2**10, 2**28)]
        assert 0 < handed[0] < handed[1]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads are pinned on Linux")
def test_the_thread_of_a_gpu_is_not_on_the_cores_of_the_other_end(standin: StandIn) -> None:
    everywhere = os.sched_getaffinity(0)
    one = min(everywhere)
    found: list[set[int]] = []

    def thread() -> None:
        with End(gpu_place(0, "gpu")).joined(everywhere):
            found.append(os.sched_getaffinity(0))
        with End(None, (one,)).joined(everywhere):
            found.append(os.sched_getaffinity(0))

    with End(None, (one,)).entered():
        made = threading.Thread(target=thread)
        made.start()
        made.join()
    assert found == [everywhere, {one}]
    assert os.sched_getaffinity(0) == everywhere
