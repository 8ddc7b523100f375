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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Literal, get_args

from placewright.errors import ClusterError
from placewright.graph import DTYPES
from placewright.stored import Stored
from placewright.units import listed


@dataclass(frozen=True)
class CpuRun:
    """A device that is these logical CPUs, of the machine at hand or of the `host` named."""

    cores: tuple[int, ...]
    host: str = ""

    def __post_init__(self) -> None:
        cores = _row("run", "cores", self.cores, object, "numbers of logical CPUs")
        if not cores:
            raise ClusterError("run: cores is empty; name at least one logical CPU")
        for core in cores:
            if not _is_whole(core, 0):
                raise ClusterError(f"run: core {core!r} is no logical CPU; they count from 0")
        cores = tuple(map(int, cores))
        object.__setattr__(self, "cores", cores)
        _check_text("run", "host", self.host)
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
        if not _is_whole(self.index, 0):
            raise ClusterError(f"run: index {self.index!r} is no GPU; they count from 0")
        object.__setattr__(self, "index", int(self.index))
        _check_text("run", "host", self.host)

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
        where = f"device {self.name!r}"
        for what in ("name", "kind"):
            _check_text(where, what, getattr(self, what), empty=False)
        _check_text(where, "host", self.host)
        for what, must in _FIGURES.items():
            value = getattr(self, what)
            if value is not None:
                object.__setattr__(self, what, _number(where, what, value, must))
        if self.peak_flops is not None:
            object.__setattr__(self, "peak_flops", _peaks(where, self.peak_flops))
        if self.batch_sizes is not None:
            sizes = _row(where, "batch_sizes", self.batch_sizes, object, "whole numbers")
            if not sizes or not all(_is_whole(size, 1) for size in sizes):
                raise ClusterError(f"{where}: batch_sizes must be whole numbers of 1 or more")
            object.__setattr__(self, "batch_sizes", tuple(sorted(set(map(int, sizes)))))
        if self.run is not None:
            _row(where, "run", (self.run,), Run, "CpuRun(...) or CudaRun(...)")


_FIGURES = {
    "memory": "≥ 0",
    "memory_bandwidth": "finite and > 0",
    "launch_overhead": "finite and ≥ 0",
    "compute_efficiency": "> 0 and ≤ 1",
    "memory_efficiency": "> 0 and ≤ 1",
    "multiprocessors": "a whole number of 1 or more",
}
"""Figures of a device, and what each must be."""


def _peaks(where: str, given: Any) -> Mapping[str, float]:
    if not isinstance(given, Mapping):
        raise ClusterError(
            f"{where}: peak_flops is {given!r}; give FLOP/s per dtype, as {{'fp16': 65e12}}"
        )
    for dtype in given:
        if dtype not in DTYPES:
            raise ClusterError(
                f"{where}: peak_flops has dtype {dtype!r}; use one of {', '.join(DTYPES)}"
            )
    must = "finite and > 0"
    peaks = {
        dtype: _number(where, f"peak_flops.{dtype}", peak, must) for dtype, peak in given.items()
    }
    return MappingProxyType(peaks)


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
        _check_choice("measured", "transport", self.transport, get_args(Transport))
        for what in ("median_error", "largest_error"):
            value = _number("measured", what, getattr(self, what), "finite and ≥ 0")
            object.__setattr__(self, what, value)


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
        where = f"link {self.a} – {self.b}"
        for what in ("a", "b"):
            _check_text(where, what, getattr(self, what))
        _check_choice(where, "duplex", self.duplex, ("full", "half"))
        if self.channel is not None:
            _check_text(where, "channel", self.channel)
        if self.measured is not None:
            _row(where, "measured", (self.measured,), LinkMeasurement, "LinkMeasurement(...)")
        figures = {"bandwidth": "> 0", "latency": "finite and ≥ 0"}
        if self.reverse_bandwidth is not None:
            figures["reverse_bandwidth"] = "> 0"
        for what, must in figures.items():
            object.__setattr__(self, what, _number(where, what, getattr(self, what), must))


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
        where = f"cluster {self.name!r}"
        for what in ("name", "host_memory", "description", "file"):
            _check_text(where, what, getattr(self, what))
        _check_choice(where, "routing", self.routing, ("widest", "direct"))
        for what, kind, wanted in (
            ("devices", Device, "Device(...)"),
            ("links", Link, "Link(...)"),
            ("switches", str, "names"),
        ):
            object.__setattr__(self, what, _row(where, what, getattr(self, what), kind, wanted))
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


def _check_text(where: str, what: str, value: Any, *, empty: bool = True) -> None:
    """ClusterError unless it is text, and more than nothing where it may not be `empty`."""
    if not isinstance(value, str) or not (value or empty):
        wanted = "text" if empty else "a text of one character or more"
        raise ClusterError(f"{where}: {what} is {value!r}; give {wanted}")


def _check_choice(where: str, what: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ClusterError(f"{where}: {what} is {value!r}; choose {', '.join(allowed)}")


def _row(where: str, what: str, values: Any, kind: Any, wanted: str) -> tuple[Any, ...]:
    """The `values`; ClusterError unless they are several, each a `kind`."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ClusterError(f"{where}: {what} is {values!r}; give a tuple of {wanted}")
    found = tuple(values)
    for each in found:
        if not isinstance(each, kind):
            raise ClusterError(f"{where}: {what} has {each!r}; give {wanted}")
    return found


def _is_whole(value: Any, least: int) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, Integral) and int(value) >= least


_MUST: Mapping[str, Callable[[Any], bool]] = {
    "≥ 0": lambda value: value >= 0,
    "> 0": lambda value: value > 0,
    "> 0 and ≤ 1": lambda value: 0 < value <= 1,
    "finite and ≥ 0": lambda value: value >= 0 and isfinite(value),
    "finite and > 0": lambda value: value > 0 and isfinite(value),
    "a whole number of 1 or more": lambda value: _is_whole(value, 1),
}
"""What is asked of a number, by how that is said."""


def _number(where: str, what: str, value: Any, must: str) -> float:
    """A number as Python has it; ClusterError unless it is one, and as it `must` be."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ClusterError(f"{where}: {what} is {value!r}; give a number, without a unit")
    if not _MUST[must](value):
        raise ClusterError(f"{where}: {what} is {value}; it must be {must}")
    return int(value) if isinstance(value, Integral) else float(value)


@contextmanager
def naming_file(cluster: Cluster) -> Iterator[None]:
    """A ClusterError inside names the file that the cluster was read from, if there is one."""
    try:
        yield
    except ClusterError as error:
        if not cluster.file:
            raise
        raise ClusterError(f"{cluster.file}: {error}") from None
