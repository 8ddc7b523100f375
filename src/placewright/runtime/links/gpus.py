"""Tensors between GPUs, and between GPUs and CPUs, as threads of a run hand them over.

A transfer is timed by the clock of the host, from the moment at which the sender has the tensor to
that at which the receiver may read it: with the copy into pinned memory, and with what giving the
copy to the GPU takes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from placewright.budget import Progress, no_progress
from placewright.cluster import Cluster, CudaRun, Device, Link, LinkMeasurement, Transport
from placewright.costs.profiles.reference import torch_watch
from placewright.runtime.links.pace import SIZES, Times, measured_times
from placewright.runtime.links.pairs import fitted
from placewright.system.accelerators.handing import hand, taken
from placewright.system.accelerators.places import CudaPlace, gpu_place
from placewright.system.pinning import pinned

Ways = tuple[Times, Times]
"""From the first device to the second, and back."""


@dataclass(frozen=True)
class End:
    """A device of a transfer: a GPU, or the cores of a CPU."""

    place: CudaPlace | None
    cores: tuple[int, ...] = ()

    @classmethod
    def of(cls, device: Device) -> End:
        """ClusterError for a GPU that is not there."""
        if isinstance(device.run, CudaRun):
            return cls(gpu_place(device.run.index, device.name))
        assert device.run is not None
        return cls(None, device.run.cores)

    def entered(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.place is None else self.place.entered()

    def settle(self) -> None:
        if self.place is not None:
            self.place.settle()


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
        links.append(_link(a, b, _both_ways(ends[a.name], ends[b.name], sizes), transport))
    return replaced(cluster, {frozenset((each.a, each.b)): each for each in links})


def replaced(cluster: Cluster, measured: Mapping[frozenset[str], Link]) -> Cluster:
    """`cluster` with these links by the names of their ends, and no others between the same."""
    kept = [link for link in cluster.links if frozenset((link.a, link.b)) not in measured]
    said = (
        "Links of GPUs are measured as copies between threads of one process, each direction by "
        "itself and one pair after the other; they are assumed to be in no other's way."
    )
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


def _both_ways(a: End, b: End, sizes: Sequence[int]) -> Ways:
    with pinned(cores) if (cores := a.cores or b.cores) else nullcontext():
        watch = torch_watch(a.place or b.place)
        there = measured_times(partial(copied, a, b), watch, sizes)
        return there, measured_times(partial(copied, b, a), watch, sizes)


def copied(source: End, target: End, size: int, count: int) -> list[float]:
    """Seconds of `count` transfers of `size` bytes."""
    with source.entered():
        device = "cpu" if source.place is None else source.place.device
        value = torch.ones(size, dtype=torch.uint8, device=device)
    seconds = []
    for _ in range(count):
        source.settle()
        target.settle()
        started = time.perf_counter()
        with source.entered():
            handed = hand(value, lambda: value, source.place, target.place)
        with target.entered():
            found = taken(handed, target.place)
            target.settle()
        seconds.append(time.perf_counter() - started)
        del handed, found
    return seconds
