"""How fast torch is where it computes now: a matrix product, and a copy."""

from __future__ import annotations

import os
import time
from functools import cache, lru_cache

from placewright.costs.profiles.steady import COMPUTING, COPYING, Reference, Watch
from placewright.system.accelerators.places import CudaPlace, Place

SIDE = 192  # of the matrices: they fit the smallest caches of a core that are worth the name
BYTES = 2 * 2**20  # that are copied: more than such a cache holds
GPU_SIDE = 2048  # of the matrices on a GPU: what giving it the product takes is little beside it
GPU_BYTES = 64 * 2**20  # more than its caches hold, with what they are copied to
GPU_WARM_UP_SECONDS = 0.3  # for clocks that were lowered to rise


def cores_now() -> frozenset[int]:
    """The logical CPUs that this thread may be on; empty where the system does not tell."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def torch_watch(place: Place | None = None) -> Watch:
    """The watch of this process for a GPU; without, for its cores and torch's threads, as now."""
    import torch

    if isinstance(place, CudaPlace):
        return _gpu_watch(place)
    return _watch(cores_now(), torch.get_num_threads())


def torch_reference() -> Reference:
    """A matrix product and a copy, by torch, on as many threads as it has."""
    import torch

    matrix, product = torch.full((SIDE, SIDE), 0.5), torch.empty(SIDE, SIDE)
    source, target = torch.zeros(BYTES // 4), torch.zeros(BYTES // 4)
    return Reference(
        (lambda: torch.mm(matrix, matrix, out=product), lambda: target.copy_(source)),
    )


def gpu_reference(place: CudaPlace) -> Reference:
    """The same on a GPU, in its stream, for which the clock waits."""
    import torch

    with place.entered():
        matrix = torch.full((GPU_SIDE, GPU_SIDE), 0.5, device=place.device)
        product = torch.empty(GPU_SIDE, GPU_SIDE, device=place.device)
        source, target = (torch.zeros(GPU_BYTES // 4, device=place.device) for _ in range(2))

    def multiply() -> None:
        with place.entered():
            torch.mm(matrix, matrix, out=product)

    def copy() -> None:
        with place.entered():
            target.copy_(source)

    return Reference((multiply, copy), place.now)


@lru_cache(maxsize=1)  # it holds memory of the GPU
def _gpu_watch(place: CudaPlace) -> Watch:
    """Readings that do not count bring the clocks of a GPU that was idle up to speed."""
    reference = gpu_reference(place)
    end = time.perf_counter() + GPU_WARM_UP_SECONDS
    while time.perf_counter() < end:
        reference()
    return Watch(reference, (COMPUTING, COPYING))


@cache  # so that it knows all readings of the process
def _watch(cores: frozenset[int], threads: int) -> Watch:
    return Watch(torch_reference(), (COMPUTING, COPYING))
