"""`Cluster`: devices with memory, and the links that join them.

>>> cluster = Cluster(
...     "pair",
...     devices=(Device("gpu0", "T4", memory=16e9), Device("gpu1", "T4", memory=16e9)),
...     links=(Link("gpu0", "gpu1", bandwidth=12e9, latency=1e-5),),
... )
>>> cluster.device_names
('gpu0', 'gpu1')
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from placewright.errors import ClusterError
from placewright.stored import Stored
from placewright.units import listed


@dataclass(frozen=True)
class CpuRun:
    """A device that is these logical CPUs, of the machine at hand or of the `host` named."""

    cores: tuple[int, ...]
    host: str = ""

    def __post_init__(self) -> None:
        cores = tuple(self.cores)
        object.__setattr__(self, "cores", cores)
        if not cores:
            raise ClusterError("run: cores is empty; name at least one logical CPU")
        for core in cores:
            if core < 0:
                raise ClusterError(f"run: core {core} is no logical CPU; they count from 0")
        if len(set(cores)) < len(cores):
            twice = next(core for core in cores if cores.count(core) > 1)
            raise ClusterError(f"run: core {twice} is there twice; leave one of them")

    def __str__(self) -> str:
        return f"cpu {', '.join(map(str, self.cores))}{_of(self.host)}"


@dataclass(frozen=True)
class CudaRun:
    """A device that is the NVIDIA GPU of this number, as ``nvidia-smi`` counts them.

    Of the machine at hand, or of the `host` named.
    """

    index: int
    host: str = ""

    def __post_init__(self) -> None:
        if self.index < 0:
            raise ClusterError(f"run: index {self.index} is no GPU; they count from 0")

    def __str__(self) -> str:
        return f"cuda {self.index}{_of(self.host)}"


def _of(host: str) -> str:
    return f" of {host}" if host else ""


Run = CpuRun | CudaRun


def used_twice(names: Sequence[str], runs: Sequence[Run | None]) -> str:
    """Which two devices are the same core or GPU, as a sentence; empty where none are.

    >>> used_twice(("a", "b"), (CpuRun((0, 1)), CpuRun((1,))))
    "devices 'a' and 'b' both run on core 1; give each its own"
    """
    users: dict[tuple[str, str], str] = {}
    for name, run in zip(names, runs, strict=True):
        parts = [f"core {core}" for core in run.cores] if isinstance(run, CpuRun) else []
        if isinstance(run, CudaRun):
            parts = [f"GPU {run.index}"]
        for part in parts:
            assert run is not None
            first = users.setdefault((run.host, part), name)
            if first != name:
                where = part + _of(run.host)
                return f"devices '{first}' and '{name}' both run on {where}; give each its own"
    return ""


@dataclass(frozen=True)
class Device:
    """One device; `kind` names a catalog entry or a column of measured times.

    `memory` bytes (`inf` = unlimited); `peak_flops` FLOP/s per dtype; `memory_bandwidth` B/s;
    `launch_overhead` seconds added to every op that does work; the efficiencies are the shares
    of the two peaks that real ops reach; `multiprocessors` are the SMs of a GPU. None means: not
    given here, look in the catalog.
    `batch_sizes`: how many inputs it may take at once (objective ``batch-throughput``; None:
    quarters of the batch, see `costs.batches`). `run`: what the device is on the machine at hand,
    where it is part of it.
    """

    name: str
    kind: str
    host: str = "host"
    memory: float | None = None
    peak_flops: Mapping[str, float] | None = None
    memory_bandwidth: float | None = None
    launch_overhead: float | None = None
    compute_efficiency: float | None = None
    memory_efficiency: float | None = None
    multiprocessors: int | None = None
    batch_sizes: tuple[int, ...] | None = None
    run: Run | None = None

    def __post_init__(self) -> None:
        if self.batch_sizes is not None:
            sizes = tuple(sorted(set(self.batch_sizes)))
            object.__setattr__(self, "batch_sizes", sizes)
            if not sizes or sizes[0] < 1:
                raise ClusterError(f"device '{self.name}': batch_sizes must be 1 or more")
        if self.peak_flops is not None:
            object.__setattr__(self, "peak_flops", MappingProxyType(dict(self.peak_flops)))
        positive = {
            "memory_bandwidth": self.memory_bandwidth,
            "compute_efficiency": self.compute_efficiency,
            "memory_efficiency": self.memory_efficiency,
            "multiprocessors": self.multiprocessors,
            **{f"peak_flops.{dtype}": peak for dtype, peak in (self.peak_flops or {}).items()},
        }
        for what, value in positive.items():
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ClusterError(f"device '{self.name}': {what} is {value}; it must be > 0")
        if self.memory is not None and not self.memory >= 0:
            raise ClusterError(f"device '{self.name}': memory is {self.memory}; it must be ≥ 0")
        overhead = self.launch_overhead
        if overhead is not None and not (math.isfinite(overhead) and overhead >= 0):
            raise ClusterError(
                f"device '{self.name}': launch_overhead is {overhead}; it must be finite and ≥ 0"
            )


Transport = Literal["shared", "gloo", "thread", "copy"]
"""Between processes (shared memory, or gloo), between threads of one, or copied within one."""


@dataclass(frozen=True)
class LinkMeasurement:
    """How a link's latency and bandwidth were measured, and how well they describe the times.

    The errors are |latency + bytes / bandwidth - measured| / measured, the median and the largest
    over sizes from 1 KiB to 64 MiB.
    """

    transport: Transport
    median_error: float
    largest_error: float

    def __post_init__(self) -> None:
        for what in ("median_error", "largest_error"):
            value = getattr(self, what)
            if not (math.isfinite(value) and value >= 0):
                raise ClusterError(f"measured: {what} is {value}; it must be finite and ≥ 0")


@dataclass(frozen=True)
class Link:
    """A link between `a` and `b` (devices or switches).

    `bandwidth` B/s from a to b, `reverse_bandwidth` from b to a (the same if None), `inf` where
    the two share one memory. A `full` duplex link carries both directions at once; links that
    name the same `channel` share it (one PCIe switch, one NIC), each direction apart when full.
    `measured`: how latency and bandwidth were measured, None where they were not.
    """

    a: str
    b: str
    bandwidth: float
    reverse_bandwidth: float | None = None
    latency: float = 0.0
    duplex: Literal["full", "half"] = "full"
    channel: str | None = None
    measured: LinkMeasurement | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for what in ("bandwidth", "reverse_bandwidth"):
            value = getattr(self, what)
            if value is not None and not value > 0:
                raise ClusterError(f"link {self.a} – {self.b}: {what} is {value}; it must be > 0")
        if not (math.isfinite(self.latency) and self.latency >= 0):
            raise ClusterError(
                f"link {self.a} – {self.b}: latency is {self.latency}; it must be finite and ≥ 0"
            )


@dataclass(frozen=True)
class Cluster(Stored):
    """Devices, optional switches (endpoints that compute nothing), and links between them.

    `routing` says how two devices reach each other: ``widest`` takes the path with the largest
    minimum bandwidth (Moirai §III), ``direct`` takes their own link where they have one, for
    bandwidths that were measured end to end. `host_memory` names the device or switch that is
    host memory, where tensors are staged through it on their way between devices (objectives
    ``throughput`` and ``invocation-latency``); else devices send to each other directly. `file` is
    what it was read from, for messages.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    switches: tuple[str, ...] = ()
    routing: Literal["widest", "direct"] = "widest"
    host_memory: str = ""
    description: str = field(default="", compare=False)
    file: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        where = f"cluster '{self.name}'"
        if not self.devices:
            raise ClusterError(f"{where} has no devices")
        names = [*(device.name for device in self.devices), *self.switches]
        for name in names:
            if names.count(name) > 1:
                raise ClusterError(
                    f"{where}: two devices or switches are named '{name}'; rename one"
                )
        known = set(names)
        if self.host_memory and self.host_memory not in known:
            raise ClusterError(
                f"{where}: host_memory is '{self.host_memory}', which is no device or switch of it"
            )
        for link in self.links:
            for end in (link.a, link.b):
                if end not in known:
                    raise ClusterError(
                        f"{where}: a link names '{end}', which is no device or switch of it; "
                        f"it has {listed(names, 8)}"
                    )
            if link.a == link.b:
                raise ClusterError(
                    f"{where}: a link joins '{link.a}' to itself; leave it out, or name another end"
                )
        if shared := used_twice(self.device_names, [device.run for device in self.devices]):
            raise ClusterError(f"{where}: {shared}")

    @property
    def device_names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.devices)

    @property
    def device_count(self) -> int:
        return len(self.devices)


@contextmanager
def naming_file(cluster: Cluster) -> Iterator[None]:
    """A ClusterError inside names the file that the cluster was read from, if there is one."""
    try:
        yield
    except ClusterError as error:
        if not cluster.file:
            raise
        raise ClusterError(f"{cluster.file}: {error}") from None
