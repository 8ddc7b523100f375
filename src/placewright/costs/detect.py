"""The machine placewright runs on, as a cluster: ``this-machine``.

What the machine tells of itself (`placewright.costs.machine`) becomes devices and links here.
Every figure that had to be assumed is named in the description of the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Literal

from placewright.cluster import Cluster, CpuRun, CudaRun, Device, Link
from placewright.costs.catalog import THIS_MACHINE, complete, defaults, find_kind
from placewright.costs.machine import Gpu, Machine, Processor, examine, measure_bandwidth
from placewright.errors import OptionError

PCIE_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}  # B/s each way
PCIE_SHARE = 0.8  # of a PCIe link's rate that copies reach
PCIE_ASSUMED = (3, 16)
NVLINK_SHARE = 0.9  # of an NVLink's rate that copies reach
NVLINK_RATE = {"P100": 20e9, "P100 PCIe": 20e9, "RTX 3090": 14.06e9}  # B/s each way, else 25e9
NVLINKS = {"P100": 4, "V100": 6, "A100": 12}  # links a GPU has, by the kind's first word, else 18
COPY_LATENCY = 10e-6  # a copy over PCIe, launch included
NVLINK_LATENCY = 8e-6

CONTEXT_BYTES = 512 * 2**20  # what the CUDA context and libraries keep of a GPU's memory
UNIFIED_GPU_SHARE = 0.75  # Metal lets a GPU use about this much of unified memory
ASSUMED_CLOCK = 2e9
APPLE_CLOCK = 3.2e9  # of an M1's fast cores, the slowest; Apple does not report clocks
ASSUMED_BANDWIDTH = 20e9  # one channel of DDR4
# Ops reach 0.6 of a CPU's nominal memory bandwidth and a plain copy about 0.8.
MEASURED_EFFICIENCY = 0.75

HOST_MEMORY = "host memory"  # the channel of copies between CPU devices; the switch they meet in


def detect(split_cpu: int | None = None, *, link_cpus: bool = True) -> Cluster:
    """The CPU and GPUs of this machine (NVIDIA, AMD, Apple), with every figure filled in.

    With `split_cpu` the CPU is that many devices, each with cores of its own and its share of
    memory, peaks and bandwidth; the links between them are left out without `link_cpus`, for who
    measures them. Takes about half a second, most of it to measure memory bandwidth.
    ClusterError where the operating system does not tell how much memory there is; OptionError
    for more parts than cores.
    """
    machine = examine()
    _check_split(machine, split_cpu)
    bandwidth = measure_bandwidth(machine.processor.cores, machine.memory)
    return cluster_of(replace(machine, bandwidth=bandwidth), split_cpu, link_cpus=link_cpus)


# -- from facts to a cluster -----------------------------------------------------------------


def cluster_of(
    machine: Machine, split_cpu: int | None = None, *, link_cpus: bool = True
) -> Cluster:
    """`machine` as a cluster: CPU and GPUs joined through host memory and by NVLink."""
    _check_split(machine, split_cpu)
    notes: list[str] = []
    machine = _beside_gpus(_with_known_gpus(machine, notes), notes)
    cpu = _cpu_device(machine, notes)
    cpus = _split(cpu, split_cpu, notes)
    copies = _copies(machine, cpus, notes) if link_cpus else ()
    apple = find_kind(machine.processor.model) if "apple" in machine.processor.features else None
    if apple is not None:
        share = UNIFIED_GPU_SHARE
        cpus = tuple(replace(each, memory=(1 - share) * (each.memory or 0.0)) for each in cpus)
        gpu = Device("gpu", apple.name, machine.host, memory=share * machine.memory)
        notes.append(f"the GPU may use {share:.0%} of the memory it shares with the CPU")
        shared = tuple(Link("gpu", each.name, math.inf, latency=COPY_LATENCY) for each in cpus)
        return _finish(machine, (gpu, *cpus), (*shared, *copies), (), notes)
    if "apple" in machine.processor.features:
        notes.append(f"the catalog does not know the GPU of an {machine.processor.model}")
    gpus = tuple(_gpu_device(gpu, machine.host) for gpu in machine.gpus)
    nvlinks, switches = _nvlinks(machine)
    home = cpus[0].name
    if gpus and len(cpus) > 1:
        # A GPU copies to the memory of every CPU device over its own PCIe link alone.
        home, switches = HOST_MEMORY, (HOST_MEMORY, *switches)
        copies = (*copies, *(Link(each.name, HOST_MEMORY, math.inf) for each in cpus))
    pcie = tuple(_pcie_link(gpu, home, notes) for gpu in machine.gpus)
    return _finish(machine, (*gpus, *cpus), (*pcie, *nvlinks, *copies), switches, notes)


def _finish(
    machine: Machine,
    devices: tuple[Device, ...],
    links: tuple[Link, ...],
    switches: tuple[str, ...],
    notes: Sequence[str],
) -> Cluster:
    description = f"{machine.host}, as detected: {'; '.join(notes)}."
    # CPU devices copy over their own link, and not by way of a memory that a GPU shares.
    split = any(link.channel == HOST_MEMORY for link in links)
    routing: Literal["widest", "direct"] = "direct" if split else "widest"
    return complete(
        Cluster(THIS_MACHINE, devices, links, switches, routing, description=description)
    )


# -- the CPU, whole or in parts --------------------------------------------------------------


def _check_split(machine: Machine, parts: int | None) -> None:
    cores = _computing_cores(machine)
    if parts is not None and parts < 1:
        raise OptionError(f"split_cpu is {parts}; it must be at least 1")
    if parts is not None and parts > cores:
        raise OptionError(
            f"the CPU cannot be split into {parts} devices: there "
            f"{'is 1 core' if cores == 1 else f'are {cores} cores'} to run on; "
            f"give at most {cores}"
        )


def _computing_cores(machine: Machine) -> int:
    """Its cores but for one for each GPU, where it has that many.

    A thread gives a GPU its ops, one after the other. On a core that computes too it would make
    all others wait for that one: an op of a CPU is done when its slowest core is.
    """
    cores, gpus = machine.processor.cores, len(_known_gpus(machine))
    return cores - gpus if gpus < cores else cores


def _known_gpus(machine: Machine) -> tuple[Gpu, ...]:
    """Those that the catalog knows or that can be measured here, as CUDA's can.

    Most others are the graphics of a processor.
    """
    return tuple(gpu for gpu in machine.gpus if gpu.cuda or find_kind(gpu.name))


def _with_known_gpus(machine: Machine, notes: list[str]) -> Machine:
    known = _known_gpus(machine)
    others = (gpu.name for gpu in machine.gpus if gpu not in known)
    notes.extend(f"{name} left out, for the catalog does not know it" for name in others)
    return replace(machine, gpus=known)


def _beside_gpus(machine: Machine, notes: list[str]) -> Machine:
    """The machine with the cores that compute alone."""
    processor, left = machine.processor, _computing_cores(machine)
    if left == processor.cores:
        return machine
    number = processor.cores - left
    cores = "a core" if number == 1 else f"{number} cores"
    notes.append(f"{cores} of {processor.cores} left to the threads that give GPUs their ops")
    return replace(machine, processor=replace(processor, cores=left, cpus=processor.cpus[:left]))


def _split(cpu: Device, parts: int | None, notes: list[str]) -> tuple[Device, ...]:
    """`cpu` as `parts` devices of as equal numbers of cores as can be."""
    if parts is None:
        return (cpu,)
    assert isinstance(cpu.run, CpuRun)
    cores = cpu.run.cores
    devices = []
    for part in range(parts):
        mine = cores[part * len(cores) // parts : (part + 1) * len(cores) // parts]
        devices.append(_share(cpu, f"cpu{part}", mine, len(mine) / len(cores)))
    if parts > 1:
        notes.append(f"memory and its bandwidth shared out over {parts} CPU devices by their cores")
    return tuple(devices)


def _copies(machine: Machine, cpus: Sequence[Device], notes: list[str]) -> tuple[Link, ...]:
    """The links of each two CPU devices: copies in memory, which share its bandwidth."""
    if len(cpus) == 1:
        return ()
    rate = (machine.bandwidth or ASSUMED_BANDWIDTH) / 2
    notes.append(
        f"copies between them assumed to take turns at {rate / 1e9:.1f} GB/s, half of the memory "
        f"bandwidth since they read and write, and {COPY_LATENCY * 1e6:g} µs"
    )
    return tuple(
        Link(a.name, b.name, rate, latency=COPY_LATENCY, duplex="half", channel=HOST_MEMORY)
        for a, b in combinations(cpus, 2)
    )


def _share(cpu: Device, name: str, cores: tuple[int, ...], share: float) -> Device:
    def of(figure: float | None) -> float | None:
        return None if figure is None else figure * share

    peaks = {dtype: peak * share for dtype, peak in (cpu.peak_flops or {}).items()}
    return replace(
        cpu,
        name=name,
        memory=of(cpu.memory),
        peak_flops=peaks,
        memory_bandwidth=of(cpu.memory_bandwidth),
        run=CpuRun(cores),
    )


def _cpu_device(machine: Machine, notes: list[str]) -> Device:
    processor = machine.processor
    usual = defaults("cpu")
    clock = processor.clock
    if clock is None:
        clock = APPLE_CLOCK if "apple" in processor.features else ASSUMED_CLOCK
    assumed = " (assumed)" if processor.clock is None else ""
    notes.append(
        f"CPU peaks from {processor.cores} cores at {clock / 1e9:g} GHz{assumed} "
        "and their vector width"
    )
    if machine.bandwidth is None:
        notes.append(f"memory bandwidth of {ASSUMED_BANDWIDTH / 1e9:g} GB/s assumed")
    else:
        notes.append(f"memory bandwidth of {machine.bandwidth / 1e9:.1f} GB/s measured by copying")
    return Device(
        "cpu",
        cpu_kind(processor),
        machine.host,
        memory=machine.memory,
        peak_flops=cpu_peaks(replace(processor, clock=clock)),
        memory_bandwidth=machine.bandwidth or ASSUMED_BANDWIDTH,
        launch_overhead=usual.launch_overhead,
        compute_efficiency=usual.compute_efficiency,
        memory_efficiency=MEASURED_EFFICIENCY if machine.bandwidth else usual.memory_efficiency,
        run=CpuRun(processor.cpus or tuple(range(processor.cores))),
    )


def cpu_kind(processor: Processor) -> str:
    kind = find_kind(processor.model)
    if kind is not None and kind.family == "cpu":
        return kind.name
    # An Apple chip's name is that of its GPU in the catalog.
    return f"{processor.model} CPU" if kind is not None else processor.model


def cpu_peaks(processor: Processor) -> dict[str, float]:
    """FLOP/s per dtype: cores · clock · operations per cycle, which the features tell."""
    features = processor.features
    fp32 = fp32_per_cycle(processor)
    per_cycle = {"fp64": fp32 / 2, "fp32": float(fp32)}
    if "amx_bf16" in features:
        per_cycle["bf16"] = 1024.0
    elif features & {"avx512_bf16", "bf16"}:
        per_cycle["bf16"] = 2.0 * fp32
    if features & {"avx512_fp16", "asimdhp", "apple"}:
        per_cycle["fp16"] = 2.0 * fp32
    if "amx_int8" in features:
        per_cycle["int8"] = 2048.0
    elif features & {"avx512_vnni", "avx_vnni", "asimddp"}:
        per_cycle["int8"] = 4.0 * fp32
    rate = processor.cores * (processor.clock or ASSUMED_CLOCK)
    return {dtype: rate * count for dtype, count in per_cycle.items()}


def fp32_per_cycle(processor: Processor) -> int:
    """fp32 operations a core does in a cycle: vector lanes · 2 (multiply and add) · units."""
    features = processor.features
    if "avx512f" in features:
        # Zen 4 (family 25) runs 512 bits in two halves; Zen 5 and Intel servers have two units.
        halves = processor.vendor == "AuthenticAMD" and processor.family <= 25
        return 16 * 2 * (1 if halves else 2)
    if {"avx2", "fma"} <= features:
        return 8 * 2 * 2
    if "apple" in features:
        return 4 * 2 * 4
    if "asimd" in features:
        return 4 * 2 * 2
    return 8 * 2 if "avx" in features else 4 * 2


def _gpu_device(gpu: Gpu, host: str) -> Device:
    memory = None if gpu.memory is None else max(gpu.memory - CONTEXT_BYTES, 0.0)
    kind = gpu_kind(gpu.name)
    run = CudaRun(gpu.index) if gpu.cuda else None
    return Device(f"gpu{gpu.index}", kind, host, memory=memory, run=run)


def gpu_kind(name: str) -> str:
    """The kind of a GPU that calls itself by this `name`: the catalog's, or else its own."""
    kind = find_kind(name)
    return name if kind is None else kind.name


def _pcie_link(gpu: Gpu, home: str, notes: list[str]) -> Link:
    """The link to `home`, which is or leads to the CPU."""
    generation, lanes = gpu.pcie or PCIE_ASSUMED
    if gpu.pcie is None:
        notes.append(f"PCIe {generation}.0 x{lanes} assumed for gpu{gpu.index}")
    lane = PCIE_LANE[min(generation, max(PCIE_LANE))]
    return Link(f"gpu{gpu.index}", home, PCIE_SHARE * lane * lanes, latency=COPY_LATENCY)


def _nvlinks(machine: Machine) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """Links between GPUs, and the switch they meet in where they are more than a GPU has.

    On NVSwitch every pair of GPUs is reported with all the links of one, which they share.
    """
    kinds = {gpu.index: find_kind(gpu.name) for gpu in machine.gpus}
    names = {index: kind.name if kind else "" for index, kind in kinds.items()}

    def rate(index: int, count: int) -> float:
        return NVLINK_SHARE * count * NVLINK_RATE.get(names[index], 25e9)

    switched: dict[int, int] = {}
    for index, name in names.items():
        counts = [count for pair, count in machine.nvlinks.items() if index in pair]
        if sum(counts) > NVLINKS.get(name.split(" ")[0], 18):
            switched[index] = max(counts)
    links = [
        Link(f"gpu{index}", "nvswitch", rate(index, count), latency=NVLINK_LATENCY / 2)
        for index, count in switched.items()
    ]
    links += [
        Link(f"gpu{a}", f"gpu{b}", min(rate(a, n), rate(b, n)), latency=NVLINK_LATENCY)
        for (a, b), n in machine.nvlinks.items()
        if not {a, b} <= switched.keys()
    ]
    return tuple(links), ("nvswitch",) if switched else ()
