"""What the machine placewright runs on tells of itself.

Facts come from the operating system and ``nvidia-smi``; nothing needs a GPU library. The parsers
take text, so that they can be tried on output recorded elsewhere.
"""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from placewright.costs.amdgpu import amd_gpus
from placewright.errors import ClusterError
from placewright.system.kernel_files import text_of

GPU_QUERY = "index,name,memory.total,pcie.link.gen.max,pcie.link.width.max"


@dataclass(frozen=True)
class Processor:
    """`cores` physical cores to run on, `clock` Hz or None, and the names of vector features.

    `cpus`: a logical CPU on each of the cores, those of a socket together; empty if not known.
    """

    model: str
    cores: int
    clock: float | None = None
    features: frozenset[str] = frozenset()
    vendor: str = ""
    family: int = 0
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """What nvidia-smi or the driver tells of a GPU; None for what is not told.

    `memory` bytes; `pcie` generation and lanes. Those that are not `cuda` count on after the rest.
    """

    index: int
    name: str
    memory: float | None = None
    pcie: tuple[int, int] | None = None
    cuda: bool = True


@dataclass(frozen=True)
class Machine:
    """Everything found out; `bandwidth` B/s is measured; `nvlinks[a, b]` counts links, a < b."""

    host: str
    processor: Processor
    memory: float
    bandwidth: float | None = None
    gpus: tuple[Gpu, ...] = ()
    nvlinks: Mapping[tuple[int, int], int] = field(default_factory=dict)


# -- parsers ---------------------------------------------------------------------------------


def parse_cpuinfo(text: str, usable: frozenset[int] | None = None) -> Processor:
    """`/proc/cpuinfo` as a `Processor`; only logical CPUs of `usable` count, all if None."""
    blocks = [
        {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in block.splitlines())
        }
        for block in re.split(r"\n\s*\n", text)
    ]
    logical = [
        block
        for block in blocks
        if block.get("processor", "").isdigit()
        and (usable is None or int(block["processor"]) in usable)
    ]
    first = logical[0] if logical else {}
    # Hyper-threads share a core and its vector units, so physical cores are counted.
    cpus: dict[tuple[str, str], int] = {}  # (socket, core) → its first logical CPU
    for block in logical:
        core = block.get("physical id", ""), block.get("core id", f"cpu{block['processor']}")
        cpus[core] = min(int(block["processor"]), cpus.get(core, sys.maxsize))
    in_order = sorted((len(socket), socket, cpu) for (socket, _), cpu in cpus.items())
    model = first.get("model name") or _board(blocks) or platform.machine() or "CPU"
    megahertz = [float(block["cpu MHz"]) for block in logical if "cpu MHz" in block]
    return Processor(
        re.sub(r"\s+", " ", model),
        max(len(cpus), 1),
        _named_clock(model) or (max(megahertz) * 1e6 if megahertz else None),
        frozenset((first.get("flags") or first.get("Features") or "").split()),
        first.get("vendor_id", ""),
        int(first.get("cpu family", "0")),
        tuple(cpu for *_, cpu in in_order),
    )


def _board(blocks: Sequence[Mapping[str, str]]) -> str | None:
    """The name ARM boards give in a block of their own."""
    return next((block["Model"] for block in blocks if "Model" in block), None)


def _named_clock(model: str) -> float | None:
    """The base clock in a name such as ``Intel(R) Xeon(R) Gold 5220 CPU @ 2.20GHz``."""
    match = re.search(r"@\s*([0-9.]+)\s*GHz", model)
    return float(match[1]) * 1e9 if match else None


def parse_stat(text: str) -> dict[int, tuple[int, int]]:
    """`[logical CPU]` ticks at work and ticks in all since the start, from `/proc/stat`."""
    found = {}
    for match in re.finditer(r"^cpu(\d+) ([\d ]+)$", text, re.MULTILINE):
        user, nice, system, idle, wait, *others = (*map(int, match[2].split()), 0, 0, 0, 0, 0)
        worked = user + nice + system + sum(others[:3])  # interrupts, and other guests' share
        found[int(match[1])] = (worked, worked + idle + wait)
    return found


def parse_meminfo(text: str) -> float | None:
    """Bytes of memory from `/proc/meminfo`."""
    match = re.search(r"^MemTotal:\s*(\d+)\s*kB", text, re.MULTILINE)
    return float(match[1]) * 1024 if match else None


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """``nvidia-smi --query-gpu=… --format=csv,noheader,nounits`` with the fields `GPU_QUERY`."""
    gpus = []
    for line in text.splitlines():
        fields = [each.strip() for each in line.split(",")]
        if len(fields) != len(GPU_QUERY.split(",")) or not fields[0].isdigit():
            continue  # a warning among the lines, such as "Unable to determine the device handle"
        index, name, memory, generation, lanes = fields
        told = generation.isdigit() and lanes.isdigit() and int(generation) > 0 and int(lanes) > 0
        gpus.append(
            Gpu(
                int(index),
                name,
                float(memory) * 2**20 if memory.isdigit() else None,
                (int(generation), int(lanes)) if told else None,
            )
        )
    return tuple(gpus)


def parse_topology(text: str) -> dict[tuple[int, int], int]:
    """NVLinks between GPUs from ``nvidia-smi topo -m``: `(a, b)`, a < b, and how many."""
    lines = [line.split() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]
    header = next((line for line in lines if line[:1] == ["GPU0"] and "X" not in line), [])
    columns = [int(name[3:]) for name in header if re.fullmatch(r"GPU\d+", name)]
    found = {}
    for line in lines:
        if line is header or not line or not re.fullmatch(r"GPU\d+", line[0]):
            continue
        row = int(line[0][3:])
        for column, cell in zip(columns, line[1:], strict=False):
            match = re.fullmatch(r"NV(\d+)", cell)
            if match and row < column:
                found[row, column] = int(match[1])
    return found


def parse_sysctl(text: str) -> tuple[Processor, float | None]:
    """The processor and bytes of memory from ``sysctl hw machdep.cpu`` on macOS."""
    values = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    model = values.get("machdep.cpu.brand_string", "CPU")
    told = " ".join(
        values.get(f"machdep.cpu.{name}", "") for name in ("features", "leaf7_features")
    )
    features = set(told.lower().replace("avx1.0", "avx").split())
    if model.startswith("Apple"):
        features.add("apple")
    cores = values.get("hw.perflevel0.physicalcpu") or values.get("hw.physicalcpu") or "1"
    clock = _named_clock(model) or float(values.get("hw.cpufrequency", "0")) or None
    memory = values.get("hw.memsize")
    processor = Processor(model, int(cores), clock, frozenset(features))
    return processor, float(memory) if memory else None


def parse_quota(text: str) -> float | None:
    """CPUs that a control group grants, from its ``cpu.max``; None if it does not limit."""
    quota, _, period = text.strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


# -- asking the machine ----------------------------------------------------------------------


def examine() -> Machine:
    """All that this machine tells, bandwidth apart; ClusterError if not even its memory."""
    if platform.system() == "Darwin":
        return _darwin()
    return _linux() if Path("/proc/cpuinfo").exists() else _other()


def _linux() -> Machine:
    usable = frozenset(os.sched_getaffinity(0))
    processor = parse_cpuinfo(text_of("/proc/cpuinfo"), usable)
    quota = parse_quota(text_of("/sys/fs/cgroup/cpu.max"))
    if quota is not None:
        processor = replace(processor, cores=max(min(processor.cores, round(quota)), 1))
    cpus = processor.cpus or tuple(sorted(usable))
    processor = replace(processor, cpus=cpus[: processor.cores])
    if _named_clock(processor.model) is None:
        processor = replace(processor, clock=_linux_clock() or processor.clock)
    limits = [
        parse_meminfo(text_of("/proc/meminfo")),
        *(
            float(text)
            for name in ("memory.max", "memory/memory.limit_in_bytes")
            if (text := text_of(f"/sys/fs/cgroup/{name}").strip()).isdigit()
        ),
    ]
    memory = _required_memory([limit for limit in limits if limit is not None])
    gpus = parse_gpus(
        _run("nvidia-smi", f"--query-gpu={GPU_QUERY}", "--format=csv,noheader,nounits")
    )
    nvlinks = parse_topology(_run("nvidia-smi", "topo", "-m")) if len(gpus) > 1 else {}
    first = max((gpu.index + 1 for gpu in gpus), default=0)
    gpus += tuple(Gpu(k, *told, cuda=False) for k, told in enumerate(amd_gpus(), first))
    return Machine(_host(), processor, memory, gpus=gpus, nvlinks=nvlinks)


def _linux_clock() -> float | None:
    """The clock the kernel reports: the base clock where it knows it, else the highest."""
    for name in ("base_frequency", "cpuinfo_max_freq"):
        kilohertz = text_of(f"/sys/devices/system/cpu/cpu0/cpufreq/{name}").strip()
        if kilohertz.isdigit():
            return float(kilohertz) * 1e3
    return None


def _darwin() -> Machine:
    processor, memory = parse_sysctl(_run("sysctl", "hw", "machdep.cpu"))
    return Machine(_host(), processor, _required_memory([memory] if memory else []))


def _other() -> Machine:
    names = getattr(os, "sysconf_names", {})
    memory = []
    if {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= set(names):
        memory.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    processor = Processor(platform.processor() or platform.machine() or "CPU", os.cpu_count() or 1)
    return Machine(_host(), processor, _required_memory(memory))


def _required_memory(known: Sequence[float]) -> float:
    if not known:
        raise ClusterError(
            "this machine does not tell how much memory it has; write a cluster file with its "
            "devices and their memory"
        )
    return min(known)


def available_memory() -> float:
    """Bytes that can be had without swapping; all memory where the system does not tell."""
    match = re.search(r"^MemAvailable:\s*(\d+)\s*kB", text_of("/proc/meminfo"), re.MULTILINE)
    return float(match[1]) * 1024 if match else examine().memory


def busy_share(cores: Sequence[int], seconds: float = 0.2) -> float | None:
    """The share of the logical CPUs `cores` that is taken while this thread waits for `seconds`.

    None where the system does not tell.
    """
    before = parse_stat(text_of("/proc/stat"))
    time.sleep(seconds)
    after = parse_stat(text_of("/proc/stat"))
    both = [core for core in cores if core in before and core in after]
    busy = sum(after[core][0] - before[core][0] for core in both)
    total = sum(after[core][1] - before[core][1] for core in both)
    return min(max(busy / total, 0.0), 1.0) if total > 0 else None


def _host() -> str:
    return platform.node() or "host"


def _run(*command: str) -> str:
    """What a command prints, empty where it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def measure_bandwidth(cores: int, memory: float, seconds: float = 0.1) -> float | None:
    """B/s of memory traffic (read and written) of a copy on all cores, the best of several.

    The arrays are larger than most caches; None on a machine too small for them.
    """
    size = 64 * 2**20
    if memory < 16 * size:
        return None
    workers = min(cores, 16)
    source, target = np.empty(size // 8), np.empty(size // 8)
    pieces = list(
        zip(np.array_split(target, workers), np.array_split(source, workers), strict=True)
    )
    best = math.inf
    with ThreadPoolExecutor(workers) as pool:
        # The first writes are not timed: they make the system hand out the pages.
        list(pool.map(lambda piece: (piece[0].fill(0), piece[1].fill(1)), pieces))
        end = time.perf_counter() + seconds
        while best == math.inf or time.perf_counter() < end:
            start = time.perf_counter()
            list(pool.map(lambda piece: np.copyto(*piece), pieces))
            best = min(best, time.perf_counter() - start)
    return 2 * size / best
