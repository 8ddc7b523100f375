"""Kinds of device, kept as data files beside this module.

>>> find_kind("nvidia geforce rtx 3090").memory
24000000000.0
>>> peak_flops(complete(Cluster("one", (Device("a", "RTX 3090"),), ())).devices[0], "fp16")
71000000000000.0
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from types import MappingProxyType

from placewright.cluster import Cluster, CpuRun, Device
from placewright.errors import ClusterError, FormatError
from placewright.formats import files
from placewright.graph import DTYPES

WIDER: Mapping[str, str] = MappingProxyType(
    {
        "int4": "int8",
        "int8": "fp16",
        "fp8": "fp16",
        "fp16": "fp32",
        "bf16": "fp32",
        "tf32": "fp32",
        "fp32": "fp64",
    }
)
"""Where a device has no peak for a dtype, its ops are computed in the dtype named here."""

THIS_MACHINE = "this-machine"
"""The cluster that is detected."""


@dataclass(frozen=True)
class DeviceKind:
    """Figures of one kind of device: bytes, B/s, FLOP/s (dense) and seconds.

    `memory` is None where it is no part of the device (a CPU, a GPU on unified memory), and
    `multiprocessors` (an NVIDIA GPU's SMs) where they are not known. The overhead and the
    efficiencies are defaults, everything else is from `source`.
    """

    name: str
    family: str
    aliases: tuple[str, ...]
    memory: float | None
    memory_bandwidth: float
    peak_flops: Mapping[str, float]
    launch_overhead: float
    compute_efficiency: float
    memory_efficiency: float
    source: str
    multiprocessors: int | None = None


@dataclass(frozen=True)
class Defaults:
    """What no datasheet says: seconds per op, and the shares of the peaks real ops reach."""

    launch_overhead: float
    compute_efficiency: float
    memory_efficiency: float
    multiprocessors: None = None


# -- kinds -----------------------------------------------------------------------------------


def kinds() -> Mapping[str, DeviceKind]:
    """All kinds of device by name, in the order of the catalog."""
    return _catalog()[0]


def defaults(family: str) -> Defaults:
    """The defaults of a family of devices: ``gpu``, ``cpu`` or ``other``."""
    return _catalog()[1][family]


def find_kind(name: str) -> DeviceKind | None:
    """The kind called `name`, or None; case, spaces, hyphens and makers' names do not matter.

    >>> find_kind("Tesla V100-PCIE-32GB").name, find_kind("a100").name, find_kind("abacus")
    ('V100 PCIe 32GB', 'A100 40GB', None)
    """
    return _by_any_name().get(_plain(name))


def is_same_kind(one: str, other: str) -> bool:
    """Whether two names are of one kind, however they are written (see `find_kind`)."""
    kind = find_kind(one)
    return _plain(one) == _plain(other) or (kind is not None and kind is find_kind(other))


def is_cpu(device: Device) -> bool:
    """Whether it is cores of this machine, its kind is ``cpu``, or a CPU of the catalog."""
    if isinstance(device.run, CpuRun):
        return True
    kind = find_kind(device.kind)
    return device.kind.lower() == "cpu" if kind is None else kind.family == "cpu"


def peak_flops(device: Device, dtype: str) -> float:
    """FLOP/s of `device` in `dtype`, or in the next wider dtype it has a peak for (`WIDER`).

    ClusterError if the device has no peaks (it is of a kind the catalog does not know, so its
    times must be measured) or none as wide as `dtype`.

    >>> peak_flops(Device("gpu", "mine", peak_flops={"fp32": 5e12}), "bf16")
    5000000000000.0
    """
    if dtype not in DTYPES:
        raise ClusterError(f"dtype '{dtype}' is unknown; use one of {', '.join(DTYPES)}")
    if not device.peak_flops:
        raise ClusterError(
            f"device '{device.name}' (kind '{device.kind}') has no peak_flops; "
            "add them, use a kind of the catalog, or give measured times"
        )
    wider: str | None = dtype
    while wider is not None:
        if wider in device.peak_flops:
            return device.peak_flops[wider]
        wider = WIDER.get(wider)
    raise ClusterError(
        f"device '{device.name}' has no peak for {dtype} or a wider dtype; add peak_flops.{dtype}"
    )


def complete(cluster: Cluster) -> Cluster:
    """`cluster` with every figure its devices leave out filled in from the catalog.

    A device of a kind the catalog does not know must say its memory. If it also gives its peaks,
    the overhead and efficiencies get defaults; if not, it stays as it is and its times must be
    measured. ClusterError names a device whose memory is given nowhere.
    """
    devices = []
    for device in cluster.devices:
        try:
            devices.append(_complete(device))
        except ClusterError as error:
            raise ClusterError(f"cluster '{cluster.name}': {error}") from None
    return replace(cluster, devices=tuple(devices))


def _complete(device: Device) -> Device:
    kind = find_kind(device.kind)
    if kind is None:
        return _complete_unknown(device)
    if device.memory is None and kind.memory is None:
        raise ClusterError(
            f"device '{device.name}' gives no memory, and a {kind.name} has as much as its "
            'machine; add its memory, such as memory: "64 GB"'
        )
    return _fill(device, kind)


def _complete_unknown(device: Device) -> Device:
    if device.memory is None:
        raise ClusterError(
            f"device '{device.name}' gives no memory and the catalog does not know its kind "
            f"'{device.kind}'; add its memory, or use a known kind{_closest_kinds(device.kind)}"
        )
    if device.peak_flops is None or device.memory_bandwidth is None:
        return device
    return _fill(device, defaults("other"))


def _fill(device: Device, source: DeviceKind | Defaults) -> Device:
    figures = (
        "memory",
        "memory_bandwidth",
        "peak_flops",
        "launch_overhead",
        "compute_efficiency",
        "memory_efficiency",
        "multiprocessors",
    )
    missing = {name for name in figures if getattr(device, name) is None}
    return replace(device, **{name: getattr(source, name) for name in missing})


def _closest_kinds(name: str) -> str:
    by_name = _by_any_name()
    close = difflib.get_close_matches(_plain(name), by_name, n=6, cutoff=0.5)
    names = list(dict.fromkeys(by_name[each].name for each in close))[:3]
    return f" (closest: {', '.join(names)})" if names else ""


@cache
def _catalog() -> tuple[Mapping[str, DeviceKind], Mapping[str, Defaults]]:
    from placewright.costs.catalog.schema import DevicesFile  # pydantic is slow to import

    name = "devices.yaml"
    text = resources.files(__name__).joinpath(name).read_text("utf-8")
    content = files.validate(DevicesFile, files.parse_yaml(text, name), name)
    by_family: dict[str, Defaults] = {
        family: Defaults(**entry.model_dump()) for family, entry in content.defaults.items()
    }
    by_name = {}
    for entry in content.kinds:
        figures = entry.model_dump(exclude={"peak_tflops"}, exclude_none=True)
        peaks = {dtype: peak * 1e12 for dtype, peak in entry.peak_tflops.items()}
        by_name[entry.name] = DeviceKind(
            **{"memory": None, **vars(by_family[entry.family]), **figures},
            peak_flops=MappingProxyType(peaks),
        )
    return MappingProxyType(by_name), MappingProxyType(by_family)


@cache
def _by_any_name() -> Mapping[str, DeviceKind]:
    found: dict[str, DeviceKind] = {}
    for kind in kinds().values():
        for name in (kind.name, *kind.aliases):
            if found.setdefault(_plain(name), kind) is not kind:
                raise FormatError(f"devices.yaml: '{name}' names two kinds of device")
    return found


def _plain(name: str) -> str:
    """`name` without what different tools write differently."""
    words = re.sub(r"\((r|tm)\)", " ", name.casefold())
    words = re.sub(
        r"\b(nvidia|geforce|tesla|quadro|intel|arc|amd|radeon|instinct|apple)\b", " ", words
    )
    return re.sub(r"[^a-z0-9.]", "", words)
