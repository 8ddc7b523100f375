"""Measured links in place of assumed ones: of this machine's CPU devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from placewright.cluster import Cluster, CpuRun, Device, Link, LinkMeasurement, Transport
from placewright.costs.detect import HOST_MEMORY, detect
from placewright.costs.link_fit import fit
from placewright.errors import ClusterError, ExecutionError
from placewright.importers.torch.tracing import import_torch
from placewright.runtime.links.pace import Times
from placewright.runtime.links.ranks import Pair, Progress, gloo_times

WORDS = {
    "gloo": "over gloo, a process each, as 'placewright run' has them",
    "copy": "as copies in memory within one process",
}
ChannelOf = Callable[[Device, Device], tuple[str, Literal["full", "half"]]]


def measure_links(
    split_cpu: int | None = None,
    transport: Transport = "gloo",
    *,
    timeout: float = 60.0,
    on_progress: Progress | None = None,
) -> Cluster:
    """This machine as `detect` finds it, the links between its CPU devices being measured.

    ``gloo`` measures transfers between processes that are pinned to the devices' cores, as those
    of a run; ``copy`` copies in memory within one process. About three seconds a pair.

    ClusterError where there are no two CPU devices (links of GPUs are not measured so far);
    MissingExtraError without torch; ExecutionError for times that no line describes.
    """
    import_torch("measuring links")
    cluster = detect(split_cpu, link_cpus=False)
    devices = measurable(cluster)
    if len(devices) < 2:
        raise ClusterError(
            f"only links between CPU devices can be measured so far, and there is "
            f"{len(devices) or 'no'} CPU device; give --split-cpu 2 or more, or the other hosts "
            "with --rendezvous"
        )
    cores = [cores_of(device) for device in devices]
    if transport == "gloo":
        times = gloo_times(cores, timeout=timeout, on_progress=on_progress)
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
    links = [
        _link(devices[a], devices[b], pair_times, transport, channel_of)
        for (a, b), pair_times in sorted(times.items())
    ]
    return replace(
        cluster,
        links=(*cluster.links, *links),
        routing="direct",  # they were measured end to end
        description=f"{cluster.description} {_described(cluster, links, transport)}".strip(),
    )


def _link(a: Device, b: Device, times: Times, transport: Transport, channel_of: ChannelOf) -> Link:
    try:
        found = fit(times.sizes, times.seconds)
    except ExecutionError as error:
        raise ExecutionError(f"{a.name} – {b.name}: {error}") from None
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


def _described(cluster: Cluster, links: Sequence[Link], transport: Transport) -> str:
    """What was measured, how well a line describes it, and what was not."""
    errors = [link.measured for link in links if link.measured is not None]
    median = max(each.median_error for each in errors)
    largest = max(each.largest_error for each in errors)
    rest = ", as those of other devices are not" if cluster.links else ""
    return (
        f"Links between CPU devices are measured {WORDS[transport]}{rest}: latency + bytes / "
        f"bandwidth is {median:.0%} or less from half of the times of 1 KiB to 64 MiB, and "
        f"{largest:.0%} at most; transfers that share a channel are assumed to take turns."
    )
