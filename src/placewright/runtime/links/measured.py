"""Measured links in place of assumed ones: of this machine's CPU devices, and of its GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Literal

from placewright.budget import Progress
from placewright.cluster import Cluster, CpuRun, Device, Link, LinkMeasurement, Transport
from placewright.costs.detect import HOST_MEMORY, detect
from placewright.costs.link_fit import LinkFit
from placewright.errors import ClusterError
from placewright.importers.torch.tracing import import_torch
from placewright.runtime.links.pace import Times
from placewright.runtime.links.pairs import Pair, fitted
from placewright.runtime.links.ranks import process_times
from placewright.runtime.ranks.segments import are_there
from placewright.runtime.ranks.segments import transport as of_processes

WORDS = {
    "shared": "through shared memory, a process each, as 'placewright run' has them",
    "gloo": "over gloo, a process each, as pipelines and ranks of torchrun have them",
    "thread": "as tensors handed between threads of one process, as 'placewright run --launcher "
    "local' does",
    "copy": "as copies in memory within one process",
}
ChannelOf = Callable[[Device, Device], tuple[str, Literal["full", "half"]]]


def measure_links(
    split_cpu: int | None = None,
    transport: Transport | None = None,
    *,
    timeout: float = 60.0,
    on_progress: Progress | None = None,
) -> Cluster:
    """This machine as `detect` finds it, the links between its devices being measured.

    ``shared`` and ``gloo`` measure transfers between processes that are pinned to the devices'
    cores: through shared memory, as those of a run on processes, or over gloo, as those of
    pipelines. ``thread`` hands tensors from thread to thread of one process, as a run with the
    launcher ``local`` does; ``copy`` copies in memory within one. None is ``shared``, or ``gloo``
    where the system shares no memory so. About three seconds a pair. The links of GPUs are measured
    with ``thread`` and ``copy``, each direction by itself, see `links.gpus`.

    ClusterError where there are no two devices that can be measured, or no memory to share;
    MissingExtraError without torch; ExecutionError for times that no line describes.
    """
    import_torch("measuring links")
    if transport is None:
        transport = of_processes()
    elif transport == "shared" and not are_there():
        raise ClusterError("this system shares no memory as runs do; leave the transport out")
    cluster = detect(split_cpu, link_cpus=False)
    gpus = gpu_pairs(cluster) if transport in ("thread", "copy") else []
    devices = measurable(cluster)
    if len(devices) < 2 and not gpus:
        raise ClusterError(
            f"only links between CPU devices are measured so, and there is "
            f"{len(devices) or 'no'} CPU device; give --split-cpu 2 or more, --transport thread "
            "for those of GPUs, or the other hosts with --rendezvous"
        )
    if len(devices) > 1:
        cluster = _with_cpu_links(cluster, devices, transport, timeout, on_progress)
    if not gpus:
        return cluster
    from placewright.runtime.links.gpus import with_gpu_links

    return with_gpu_links(cluster, gpus, transport, on_progress=on_progress)


def gpu_pairs(cluster: Cluster) -> list[tuple[Device, Device]]:
    """Each two devices of this machine of which one is a GPU at least."""
    here = [device for device in cluster.devices if device.run is not None]
    return [
        (a, b)
        for a, b in combinations(here, 2)
        if not (isinstance(a.run, CpuRun) and isinstance(b.run, CpuRun))
    ]


def _with_cpu_links(
    cluster: Cluster,
    devices: Sequence[Device],
    transport: Transport,
    timeout: float,
    on_progress: Progress | None,
) -> Cluster:
    cores = [cores_of(device) for device in devices]
    if transport in ("shared", "gloo"):
        shared = transport == "shared"
        times = process_times(cores, shared=shared, timeout=timeout, on_progress=on_progress)
    elif transport == "thread":
        from placewright.runtime.links.threads import thread_times

        times = thread_times(cores, on_progress=on_progress)
    else:
        from placewright.runtime.links.copies import copy_times

        times = copy_times(cores, on_progress=on_progress)
    return with_links(cluster, devices, times, transport, lambda a, b: (HOST_MEMORY, "half"))


def measurable(cluster: Cluster) -> list[Device]:
    """The devices whose links can be measured: those that are cores."""
    return [device for device in cluster.devices if isinstance(device.run, CpuRun)]


def cores_of(device: Device) -> tuple[int, ...]:
    assert isinstance(device.run, CpuRun)
    return device.run.cores


def with_links(
    cluster: Cluster,
    devices: Sequence[Device],
    times: Mapping[Pair, Times],
    transport: Transport,
    channel_of: ChannelOf,
) -> Cluster:
    """`cluster` with a link for each two of `devices`, fitted to their measured times.

    `channel_of` two devices: the channel that their transfers take, and its duplex.
    """
    fits = {
        (a, b): fitted(devices[a].name, devices[b].name, each)
        for (a, b), each in sorted(times.items())
    }
    links = [
        _link(devices[a], devices[b], found, transport, channel_of)
        for (a, b), found in fits.items()
    ]
    described = _described(cluster, list(fits.values()), transport)
    return replace(
        cluster,
        links=(*cluster.links, *links),
        routing="direct",  # they were measured end to end
        description=f"{cluster.description} {described}".strip(),
    )


def _link(
    a: Device, b: Device, found: LinkFit, transport: Transport, channel_of: ChannelOf
) -> Link:
    channel, duplex = channel_of(a, b)
    return Link(
        a.name,
        b.name,
        found.bandwidth,
        latency=found.latency,
        duplex=duplex,
        channel=channel,
        measured=LinkMeasurement(transport, found.median_error, found.largest_error),
    )


def _described(cluster: Cluster, fits: Sequence[LinkFit], transport: Transport) -> str:
    """What was measured, how well a line describes it, and what was not."""
    median = max(each.median_error for each in fits)
    largest = max(each.largest_error for each in fits)
    worst: dict[float, float] = {}
    for start, error in (decade for each in fits for decade in each.decades):
        worst[start] = max(worst.get(start, 0.0), error)
    decades = ", ".join(f"{error:.0%} from {start:.0e} B" for start, error in sorted(worst.items()))
    rest = (
        ", as those of other devices are not"
        if cluster.links and transport in ("shared", "gloo")
        else ""
    )
    return (
        f"Links between CPU devices are measured {WORDS[transport]}{rest}: latency + bytes / "
        f"bandwidth is {median:.0%} or less from half of the times of 1 KiB to 64 MiB, and "
        f"{largest:.0%} at most (half of each decade of sizes: {decades}); transfers that share a "
        "channel are assumed to take turns."
    )
