"""Links between GPUs, and between GPUs and CPUs.

A transfer is timed by the clock of the host, from the moment at which the sender has the tensor to
that at which the receiver may read it: with the copy into pinned memory, and with what giving the
copy to the GPU takes. As threads of a run hand tensors over (``thread``), or by one thread that
does all of it (``copy``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from placewright.budget import Progress, no_progress
from placewright.cluster import Cluster, Device, Link, LinkMeasurement, Transport
from placewright.costs.profiles.reference import torch_watch
from placewright.runtime.links.ends import End
from placewright.runtime.links.pace import SIZES, Times, measured_times
from placewright.runtime.links.pairs import fitted
from placewright.runtime.links.threads import handed_times
from placewright.system.accelerators.handing import hand, taken
from placewright.system.pinning import pinned

SAID = {"thread": "as threads of one process hand tensors over", "copy": "as copies by one thread"}
Ways = tuple[Times, Times]
"""From the first device to the second, and back."""


def with_gpu_links(
    cluster: Cluster,
    pairs: Sequence[tuple[Device, Device]],
    transport: Transport,
    *,
    sizes: Sequence[int] = SIZES,
    on_progress: Progress | None = None,
) -> Cluster:
    """`cluster` with a measured link for each of its `pairs`, in the place of an assumed one.

    ClusterError for a GPU that is not there; ExecutionError for times that no line describes.
    """
    progress = on_progress or no_progress
    ends = {device.name: End.of(device) for pair in pairs for device in pair}
    links = []
    for done, (a, b) in enumerate(pairs):
        progress("measuring copies of GPUs", done / len(pairs))
        ways = _both_ways(ends[a.name], ends[b.name], transport, sizes)
        links.append(_link(a, b, ways, transport))
    said = (
        f"Links of GPUs are measured {SAID[transport]}, each direction by itself and one pair "
        "after the other; they are assumed to be in no other's way."
    )
    return replaced(cluster, {frozenset((each.a, each.b)): each for each in links}, said)


def replaced(cluster: Cluster, measured: Mapping[frozenset[str], Link], said: str) -> Cluster:
    """`cluster` with these links by the names of their ends, and no others between the same."""
    kept = [link for link in cluster.links if frozenset((link.a, link.b)) not in measured]
    return replace(
        cluster,
        links=(*kept, *measured.values()),
        routing="direct",  # they were measured end to end
        description=f"{cluster.description} {said}".strip(),
    )


def _link(a: Device, b: Device, ways: Ways, transport: Transport) -> Link:
    there, back = (fitted(a.name, b.name, each) for each in ways)
    return Link(
        a.name,
        b.name,
        there.bandwidth,
        back.bandwidth,
        latency=max(there.latency, back.latency),  # a link has one for both directions
        measured=LinkMeasurement(
            transport,
            max(there.median_error, back.median_error),
            max(there.largest_error, back.largest_error),
        ),
    )


def _both_ways(a: End, b: End, transport: Transport, sizes: Sequence[int]) -> Ways:
    times = handed_times if transport == "thread" else copied_times
    return times(a, b, sizes), times(b, a, sizes)


def copied_times(source: End, target: End, sizes: Sequence[int]) -> Times:
    """Times by one thread, on the cores of the end that is a CPU."""
    cores = source.cores or target.cores
    with pinned(cores) if cores else nullcontext():
        watch = torch_watch(source.place or target.place)
        return measured_times(partial(copied, source, target), watch, sizes)


def copied(source: End, target: End, size: int, count: int) -> list[float]:
    """Seconds of `count` transfers of `size` bytes."""
    with source.computing():
        value = source.ones(size)
    seconds = []
    for _ in range(count):
        source.settle()
        target.settle()
        started = time.perf_counter()
        with source.computing():
            handed = hand(value, lambda: value, source.place, target.place)
        with target.computing():
            found = taken(handed, target.place)
            target.settle()
        seconds.append(time.perf_counter() - started)
        del handed, found
    return seconds
