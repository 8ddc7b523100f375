"""Detection: parsers on recorded output, and the clusters that come of it."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from placewright.cluster import Cluster, CpuRun, CudaRun, Link
from placewright.costs import detect as detection
from placewright.costs import machine as facts
from placewright.costs.catalog import kinds
from placewright.costs.clusters import load_cluster
from placewright.costs.detect import cluster_of, cpu_peaks, detect, fp32_per_cycle
from placewright.costs.links import routes
from placewright.costs.machine import (
    Gpu,
    Machine,
    Processor,
    measure_bandwidth,
    parse_cpuinfo,
    parse_gpus,
    parse_meminfo,
    parse_quota,
    parse_stat,
    parse_sysctl,
    parse_topology,
)
from placewright.errors import ClusterError, OptionError
from placewright.system.pinning import pinned


def cpuinfo(cores: int, threads: int, sockets: int = 1, **more: str) -> str:
    """`/proc/cpuinfo` as the kernel prints it: one block per hardware thread."""
    blocks = []
    for number in range(cores * threads * sockets):
        core = number % (cores * sockets)
        fields = {
            "processor": str(number),
            "vendor_id": "GenuineIntel",
            "cpu family": "6",
            "model name": "Intel(R) Xeon(R) Gold 5220 CPU @ 2.20GHz",
            "cpu MHz": f"{1000 + number}.500",
            "physical id": str(core // cores),
            "core id": str(core % cores),
            "flags": "fpu sse2 avx avx2 fma avx512f avx512_vnni",
            "power management": "",
            **more,
        }
        blocks.append("".join(f"{key}\t: {value}\n" for key, value in fields.items() if value))
    return "\n".join(blocks) + "\n"


ARM = """processor\t: 0
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm aes crc32 cpuid
CPU implementer\t: 0x41

processor\t: 1
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm aes crc32 cpuid
CPU implementer\t: 0x41

Revision\t: c03114
Model\t\t: Raspberry Pi 4 Model B Rev 1.4
"""

SYSCTL_M1 = """hw.ncpu: 10
hw.physicalcpu: 10
hw.perflevel0.physicalcpu: 8
hw.perflevel1.physicalcpu: 2
hw.memsize: 34359738368
hw.optional.neon: 1
machdep.cpu.brand_string: Apple M1 Max
machdep.cpu.core_count: 10
"""

SYSCTL_INTEL = """hw.physicalcpu: 8
hw.memsize: 17179869184
hw.cpufrequency: 2300000000
machdep.cpu.features: FPU SSE4.2 FMA AVX1.0 RDRAND
machdep.cpu.leaf7_features: AVX2 BMI1
machdep.cpu.brand_string: Intel(R) Core(TM) i9-9880H CPU @ 2.30GHz
"""

TOPOLOGY_SWITCHED = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tNV12\tNV12\tPXB\t0-31\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tNV12\tNV12\tPXB\t0-31\t0\t\tN/A\n"
    "GPU2\tNV12\tNV12\t X \tNV12\tSYS\t32-63\t1\t\tN/A\n"
    "GPU3\tNV12\tNV12\tNV12\t X \tSYS\t32-63\t1\t\tN/A\n"
    "NIC0\tPXB\tPXB\tSYS\tSYS\t X \t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
)

TOPOLOGY_BRIDGED = """\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tSYS\t0-31\t0
GPU1\tNV4\t X \tSYS\t0-31\t0
GPU2\tSYS\tSYS\t X \t32-63\t1
"""

# -- parsers ---------------------------------------------------------------------------------


def test_hyper_threads_are_not_counted_as_cores() -> None:
    assert parse_cpuinfo(cpuinfo(cores=18, threads=2, sockets=2)).cores == 36


def test_only_the_cpus_a_process_may_use_are_counted() -> None:
    text = cpuinfo(cores=4, threads=2)
    assert parse_cpuinfo(text, frozenset({0, 4})).cores == 1  # two threads of one core
    assert parse_cpuinfo(text, frozenset({0, 1, 2})).cores == 3


def test_each_core_is_known_by_its_first_usable_cpu_sockets_apart() -> None:
    text = cpuinfo(cores=2, threads=2, sockets=2)  # sockets 0 0 1 1 0 0 1 1, cores 0 1 0 1 …
    assert parse_cpuinfo(text).cpus == (0, 1, 2, 3)
    assert parse_cpuinfo(text, frozenset({3, 4, 6})).cpus == (4, 3, 6)
    odd = cpuinfo(1, 1).replace("physical id\t: 0", "physical id\t: 1")
    other = cpuinfo(1, 1).replace("processor\t: 0", "processor\t: 1")
    assert parse_cpuinfo(f"{odd}\n{other}").cpus == (1, 0)
    assert parse_cpuinfo(ARM).cpus == (0, 1)
    assert parse_cpuinfo("").cpus == ()


def test_the_clock_in_the_name_is_preferred_to_the_one_of_the_moment() -> None:
    assert parse_cpuinfo(cpuinfo(2, 1)).clock == 2.2e9
    nameless = cpuinfo(2, 1, **{"model name": "AMD EPYC"})
    assert parse_cpuinfo(nameless).clock == 1001.5e6


def test_an_arm_board_without_clock_or_core_numbers_is_read() -> None:
    processor = parse_cpuinfo(ARM)
    assert processor.model == "Raspberry Pi 4 Model B Rev 1.4"
    assert (processor.cores, processor.clock) == (2, None)
    assert fp32_per_cycle(processor) == 16


def test_an_empty_cpuinfo_is_one_core_of_an_unknown_kind() -> None:
    processor = parse_cpuinfo("")
    assert processor.cores == 1 and processor.clock is None and processor.model


def test_memory_is_read_in_kibibytes() -> None:
    text = "MemTotal:       24684084 kB\nMemFree:        22915512 kB\n"
    assert parse_meminfo(text) == 24684084 * 1024
    assert parse_meminfo("nothing of the sort") is None


def test_the_ticks_of_each_logical_cpu_are_told_at_work_and_in_all() -> None:
    text = "cpu  9 9 9 9\ncpu0 4 1 3 80 12 0 2 6 5 0\ncpu11 1 0 0 9\nintr 526226 0 0\n"
    assert parse_stat(text) == {0: (16, 108), 11: (1, 10)}
    assert parse_stat("") == {}


def test_gpus_are_read_with_their_memory_and_pcie_link() -> None:
    text = "0, NVIDIA GeForce RTX 4090, 24564, 4, 16\n1, Tesla T4, 15360, 3, 8\n"
    assert parse_gpus(text) == (
        Gpu(0, "NVIDIA GeForce RTX 4090", 24564 * 2**20, (4, 16)),
        Gpu(1, "Tesla T4", 15360 * 2**20, (3, 8)),
    )


def test_what_nvidia_smi_does_not_tell_stays_unknown() -> None:
    assert parse_gpus("0, Orin, [N/A], [N/A], [N/A]\n") == (Gpu(0, "Orin"),)
    assert parse_gpus("0, NVIDIA A100-SXM4-40GB, 40960, 0, 0") == (
        Gpu(0, "NVIDIA A100-SXM4-40GB", 40960 * 2**20, None),
    )


def test_warnings_among_the_gpus_are_passed_over() -> None:
    text = "Unable to determine the device handle for GPU0000:0A:00.0: Unknown Error\n"
    assert parse_gpus(text) == ()
    assert parse_gpus("") == ()


def test_nvlinks_are_read_from_a_matrix_with_escapes_and_network_cards() -> None:
    pairs = {(a, b) for a in range(4) for b in range(a + 1, 4)}
    assert parse_topology(TOPOLOGY_SWITCHED) == dict.fromkeys(pairs, 12)


def test_pairs_without_nvlink_are_left_out() -> None:
    assert parse_topology(TOPOLOGY_BRIDGED) == {(0, 1): 4}
    assert parse_topology("") == {}
    assert parse_topology("\tGPU0\tCPU Affinity\nGPU0\t X \t0-15\n") == {}


def test_macs_are_read_from_sysctl() -> None:
    apple, memory = parse_sysctl(SYSCTL_M1)
    assert (apple.model, apple.cores, apple.clock, memory) == ("Apple M1 Max", 8, None, 2.0**35)
    intel, _ = parse_sysctl(SYSCTL_INTEL)
    assert (intel.cores, intel.clock, fp32_per_cycle(intel)) == (8, 2.3e9, 32)


def test_a_quota_of_a_control_group_is_read_in_cpus() -> None:
    assert parse_quota("150000 100000\n") == 1.5
    assert parse_quota("max 100000\n") is None
    assert parse_quota("") is None


# -- peaks of a CPU --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "vendor", "family", "operations"),
    [
        ("sse2", "GenuineIntel", 6, 8),
        ("sse2 avx", "GenuineIntel", 6, 16),
        ("sse2 avx avx2 fma", "GenuineIntel", 6, 32),
        ("avx avx2 fma avx512f", "GenuineIntel", 6, 64),
        ("avx avx2 fma avx512f", "AuthenticAMD", 25, 32),  # Zen 4
        ("avx avx2 fma avx512f", "AuthenticAMD", 26, 64),  # Zen 5
        ("fp asimd", "", 0, 16),
        ("apple", "", 0, 32),
    ],
)
def test_operations_per_cycle_follow_the_vector_units(
    features: str, vendor: str, family: int, operations: int
) -> None:
    processor = Processor("x", 1, 1e9, frozenset(features.split()), vendor, family)
    assert fp32_per_cycle(processor) == operations


def test_the_estimate_agrees_with_the_catalog_for_a_whole_socket() -> None:
    epyc = Processor(
        "AMD EPYC 9654 96-Core Processor",
        96,
        2.4e9,
        frozenset({"avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni"}),
        "AuthenticAMD",
        25,
    )
    estimate, datasheet = cpu_peaks(epyc), kinds()["EPYC 9654"].peak_flops
    for dtype in ("fp64", "fp32", "bf16", "int8"):
        assert estimate[dtype] == pytest.approx(datasheet[dtype], rel=0.01)


def test_matrix_units_raise_the_peaks_of_narrow_dtypes_only() -> None:
    features = frozenset(["avx2", "fma", "avx512f", "avx512_fp16", "amx_bf16", "amx_int8"])
    peaks = cpu_peaks(Processor("Sapphire Rapids", 1, 1e9, features, "GenuineIntel", 6))
    assert peaks == {"fp64": 32e9, "fp32": 64e9, "bf16": 1024e9, "fp16": 128e9, "int8": 2048e9}


# -- clusters --------------------------------------------------------------------------------

XEON = parse_cpuinfo(cpuinfo(18, 2))


def bandwidth(cluster: Cluster, a: str, b: str) -> float:
    found, names = routes(cluster), cluster.device_names
    return 1 / found.link_seconds_per_byte[names.index(a), names.index(b)]


def test_a_machine_without_gpus_is_one_cpu() -> None:
    cluster = cluster_of(Machine("box", XEON, 64e9, bandwidth=50e9))
    (cpu,) = cluster.devices
    assert (cpu.name, cpu.kind, cpu.host, cpu.memory) == ("cpu", "Xeon Gold 5220", "box", 64e9)
    assert cpu.memory_bandwidth == 50e9 and cpu.launch_overhead == pytest.approx(1e-6)
    assert cluster.links == () and "measured" in cluster.description
    assert cpu.run == CpuRun(tuple(range(18)))


def test_gpus_hang_on_the_cpu_by_their_own_pcie_link() -> None:
    gpus = parse_gpus("0, NVIDIA GeForce RTX 4090, 24564, 4, 16\n1, Tesla T4, 15360, 3, 16\n")
    cluster = cluster_of(Machine("box", XEON, 64e9, gpus=gpus))
    assert [device.kind for device in cluster.devices] == ["RTX 4090", "T4", "Xeon Gold 5220"]
    assert bandwidth(cluster, "gpu0", "cpu") == pytest.approx(0.8 * 31.5e9, rel=0.01)
    assert bandwidth(cluster, "gpu0", "gpu1") == pytest.approx(0.8 * 15.76e9, rel=0.01)
    assert cluster.devices[0].memory == 24564 * 2**20 - 2**29
    assert [device.run for device in cluster.devices[:2]] == [CudaRun(0), CudaRun(1)]
    assert cluster.devices[0].memory_bandwidth == 1008e9
    assert "assumed" in cluster.description  # the CPU's bandwidth was not measured here


def test_an_nvlink_bridge_is_a_link_between_two_gpus() -> None:
    gpus = tuple(Gpu(index, "NVIDIA GeForce RTX 3090", 2.4e10, (4, 16)) for index in range(3))
    cluster = cluster_of(
        Machine("box", XEON, 64e9, gpus=gpus, nvlinks=parse_topology(TOPOLOGY_BRIDGED))
    )
    assert cluster.switches == ()
    assert bandwidth(cluster, "gpu0", "gpu1") == pytest.approx(0.9 * 56.24e9)
    assert bandwidth(cluster, "gpu0", "gpu2") < 26e9


def test_more_nvlinks_than_a_gpu_has_mean_a_switch_that_they_share() -> None:
    gpus = tuple(Gpu(index, "NVIDIA A100-SXM4-40GB", 4e10, (4, 16)) for index in range(4))
    cluster = cluster_of(
        Machine("dgx", XEON, 64e9, gpus=gpus, nvlinks=parse_topology(TOPOLOGY_SWITCHED))
    )
    assert cluster.switches == ("nvswitch",)
    assert bandwidth(cluster, "gpu0", "gpu3") == pytest.approx(0.9 * 300e9)
    found = routes(cluster)
    shared = set(found.channels_of(0, 1)) & set(found.channels_of(0, 2))
    assert [found.channel_names[channel] for channel in shared] == ["gpu0 → nvswitch"]


def test_directly_joined_gpus_keep_their_own_links() -> None:
    gpus = tuple(Gpu(index, "Tesla V100-SXM2-16GB", 1.6e10, (3, 16)) for index in range(4))
    pairs = {(a, b): 2 for a in range(4) for b in range(a + 1, 4)}
    cluster = cluster_of(Machine("box", XEON, 64e9, gpus=gpus, nvlinks=pairs))
    assert cluster.switches == ()
    assert bandwidth(cluster, "gpu1", "gpu2") == pytest.approx(0.9 * 50e9)


def test_an_unknown_gpu_keeps_its_name_and_memory_and_must_be_measured() -> None:
    cluster = cluster_of(Machine("box", XEON, 64e9, gpus=(Gpu(0, "NVIDIA B999", 9e9),)))
    gpu = cluster.devices[0]
    assert (gpu.kind, gpu.peak_flops) == ("NVIDIA B999", None)
    assert "PCIe 3.0 x16 assumed for gpu0" in cluster.description


def test_a_gpu_that_tells_neither_kind_nor_memory_is_refused() -> None:
    with pytest.raises(ClusterError, match="device 'gpu0' gives no memory"):
        cluster_of(Machine("box", XEON, 64e9, gpus=(Gpu(0, "Orin"),)))


def test_an_apple_chip_is_a_gpu_and_a_cpu_that_share_one_memory() -> None:
    processor, memory = parse_sysctl(SYSCTL_M1)
    assert memory is not None
    cluster = cluster_of(Machine("mac", processor, memory, bandwidth=200e9))
    gpu, cpu = cluster.devices
    assert (gpu.kind, cpu.kind) == ("M1 Max", "Apple M1 Max CPU")
    assert gpu.memory is not None and cpu.memory is not None
    assert gpu.memory + cpu.memory == memory and gpu.memory == 0.75 * memory
    assert cluster.links == (Link("gpu", "cpu", math.inf, latency=1e-5),)
    assert cpu.peak_flops is not None and cpu.peak_flops["fp32"] == 8 * 3.2e9 * 32
    assert (gpu.run, cpu.run) == (None, CpuRun(tuple(range(8))))


def test_an_apple_chip_of_an_unknown_kind_is_a_cpu_and_says_so() -> None:
    processor = replace(parse_sysctl(SYSCTL_M1)[0], model="Apple M99")
    cluster = cluster_of(Machine("mac", processor, 32e9))
    assert cluster.device_names == ("cpu",)
    assert "does not know the GPU of an Apple M99" in cluster.description


# -- a CPU in parts --------------------------------------------------------------------------


def test_a_split_cpu_is_devices_of_disjoint_cores_with_their_share_of_everything() -> None:
    machine = Machine("box", XEON, 36e9, bandwidth=90e9)
    (whole,), parts = cluster_of(machine).devices, cluster_of(machine, 4).devices
    assert [part.name for part in parts] == ["cpu0", "cpu1", "cpu2", "cpu3"]
    runs = [part.run for part in parts]
    assert [core for run in runs if isinstance(run, CpuRun) for core in run.cores] == [*range(18)]
    assert [part.memory for part in parts] == [8e9, 10e9, 8e9, 10e9]
    assert [part.memory_bandwidth for part in parts] == [20e9, 25e9, 20e9, 25e9]
    assert whole.peak_flops is not None
    for dtype, peak in whole.peak_flops.items():
        shares = [(part.peak_flops or {})[dtype] for part in parts]
        assert shares == pytest.approx([peak * cores / 18 for cores in (4, 5, 4, 5)])
    for figure in ("kind", "host", "launch_overhead", "compute_efficiency", "memory_efficiency"):
        assert {getattr(part, figure) for part in parts} == {getattr(whole, figure)}


def test_parts_of_a_cpu_copy_through_host_memory_one_at_a_time() -> None:
    cluster = cluster_of(Machine("box", XEON, 36e9, bandwidth=90e9), 3)
    found = routes(cluster)
    for a, b in ((0, 1), (1, 0), (2, 1)):
        assert found.link_seconds_per_byte[a, b] == pytest.approx(1 / 45e9)
        names = [found.channel_names[channel] for channel in found.channels_of(a, b)]
        assert names == ["host memory"]
    assert "take turns at 45.0 GB/s, half of the memory bandwidth" in cluster.description
    assert bandwidth(cluster_of(Machine("box", XEON, 36e9), 2), "cpu0", "cpu1") == 10e9


def test_one_part_is_the_whole_cpu_by_another_name() -> None:
    gpus = (Gpu(0, "Tesla T4", 1.6e10, (3, 16)),)
    machine = Machine("box", XEON, 64e9, gpus=gpus)
    whole, one = cluster_of(machine), cluster_of(machine, 1)
    assert one.devices == (whole.devices[0], replace(whole.devices[1], name="cpu0"))
    assert one.links == (replace(whole.links[0], b="cpu0"),)
    assert (one.switches, one.routing) == ((), "widest")


@pytest.mark.parametrize("measured", [4e9, 400e9])  # copies slower and faster than PCIe
@pytest.mark.parametrize("topology", ["", TOPOLOGY_BRIDGED, TOPOLOGY_SWITCHED])
def test_gpus_reach_each_other_and_every_part_as_they_reached_the_whole(
    topology: str, measured: float
) -> None:
    gpus = tuple(Gpu(index, "NVIDIA A100-SXM4-40GB", 4e10, (4, 16)) for index in range(4))
    if topology == TOPOLOGY_BRIDGED:
        gpus = gpus[:3]
    machine = Machine(
        "box", XEON, 64e9, bandwidth=measured, gpus=gpus, nvlinks=parse_topology(topology)
    )
    whole, parts = routes(cluster_of(machine)), routes(cluster_of(machine, 2))
    count = len(gpus)
    of_whole = [*range(count), count, count]  # both parts stand where the CPU was
    for column in ("link_latency", "link_seconds_per_byte"):
        old = getattr(whole, column)[of_whole][:, of_whole]
        new = getattr(parts, column).copy()
        new[count:, count:] = old[count:, count:] = 0.0
        assert new == pytest.approx(old)
    assert parts.link_seconds_per_byte[count, count + 1] == pytest.approx(2 / measured)
    at_once = set(parts.channels_of(0, count)) & set(parts.channels_of(1, count + 1))
    assert at_once == set()  # each GPU has a PCIe link of its own


def test_parts_of_an_apple_chip_share_the_memory_of_its_gpu() -> None:
    processor, memory = parse_sysctl(SYSCTL_M1)
    assert memory is not None
    cluster = cluster_of(Machine("mac", processor, memory, bandwidth=200e9), 2)
    assert cluster.device_names == ("gpu", "cpu0", "cpu1")
    assert sum(device.memory or 0.0 for device in cluster.devices) == memory
    found = routes(cluster)
    assert found.link_seconds_per_byte[0].tolist() == [0.0, 0.0, 0.0]
    assert found.link_seconds_per_byte[1, 2] == pytest.approx(1 / 100e9)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (19, "cannot be split into 19 devices: there are 18 cores to run on; give at most 18"),
        (0, "split_cpu is 0; it must be at least 1"),
    ],
)
def test_more_parts_than_cores_are_refused(parts: int, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        cluster_of(Machine("box", XEON, 64e9), parts)


# -- this machine ----------------------------------------------------------------------------


def test_this_machine_is_detected_with_every_figure_of_its_cpu() -> None:
    start = time.perf_counter()
    cluster = load_cluster("this-machine")
    assert time.perf_counter() - start < 100
    cpu = cluster.devices[-1]
    assert cluster.name == "this-machine" and cpu.name == "cpu"
    assert cpu.memory is not None and cpu.memory > 1e8
    assert cpu.peak_flops is not None and 1e9 < cpu.peak_flops["fp32"] < 1e14
    assert cpu.memory_bandwidth is not None and 1e8 < cpu.memory_bandwidth < 1e13
    assert routes(cluster).link_latency.shape == (len(cluster.devices),) * 2
    assert isinstance(cpu.run, CpuRun)
    with pinned(cpu.run.cores):
        pass


def test_this_machine_cannot_be_split_into_more_parts_than_it_has_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(detection, "measure_bandwidth", lambda *_: pytest.fail("it measured"))
    with pytest.raises(OptionError, match="cannot be split into 1000000 devices"):
        detect(split_cpu=1_000_000)


def test_a_machine_with_two_gpus_is_asked_through_nvidia_smi(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(*command: str) -> str:
        if command[1] == "topo":
            return TOPOLOGY_BRIDGED
        return "0, NVIDIA GeForce RTX 3090, 24576, 4, 8\n1, NVIDIA GeForce RTX 3090, 24576, 4, 8\n"

    monkeypatch.setattr(facts, "_run", answer)
    files = {
        "/proc/cpuinfo": cpuinfo(4, 2),
        "/proc/meminfo": "MemTotal:  65536000 kB\n",
        "/sys/fs/cgroup/memory.max": "8589934592\n",
        "/sys/fs/cgroup/cpu.max": "100000 100000\n",
    }
    monkeypatch.setattr(facts, "text_of", lambda path: files.get(path, ""))
    monkeypatch.setattr(facts.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    machine = facts._linux()
    assert machine.processor.cores == 1 and machine.memory == 2**33
    assert machine.processor.cpus == (0,)  # the control group grants one of the four
    assert len(machine.gpus) == 2 and machine.nvlinks == {(0, 1): 4}


def test_a_missing_or_failing_command_prints_nothing() -> None:
    assert facts._run("no-such-command-anywhere") == ""
    assert facts._run("false") == ""
    assert facts.text_of("/no/such/file") == ""


def test_a_machine_that_hides_its_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(facts, "_run", lambda *command: "")
    with pytest.raises(ClusterError, match="does not tell how much memory it has; write a cluster"):
        detect()


def test_measuring_bandwidth_is_quick_and_skipped_where_memory_is_short() -> None:
    start = time.perf_counter()
    measured = measure_bandwidth(cores=2, memory=64e9)
    assert time.perf_counter() - start < 30  # 0.3 s on an idle machine
    assert measured is not None and measured > 1e8
    assert measure_bandwidth(cores=2, memory=5e8) is None
    assert detection.MEASURED_EFFICIENCY < 1


@pytest.mark.parametrize(("gpus", "cores"), [(0, 2), (1, 1), (2, 2), (3, 2)])
def test_a_core_is_left_to_the_thread_of_each_gpu_where_there_are_more(
    gpus: int, cores: int
) -> None:
    processor = replace(XEON, cores=2, cpus=(3, 5))
    machine = Machine(
        "box", processor, 64e9, gpus=tuple(Gpu(n, "Tesla T4", 1.6e10, (3, 16)) for n in range(gpus))
    )
    cluster = cluster_of(machine)
    cpu = next(device for device in cluster.devices if device.name == "cpu")
    assert cpu.run == CpuRun((3, 5)[:cores])
    assert ("left to the threads that give GPUs" in cluster.description) == (cores < 2)
    if cores < 2:
        with pytest.raises(OptionError, match="split into 2 devices: there is 1 core"):
            cluster_of(machine, 2)
