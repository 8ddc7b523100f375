"""How fast torch is on the cores that this process is on now: a matrix product, and a copy."""

from __future__ import annotations

import os
from functools import cache

from placewright.costs.profiles.steady import COMPUTING, COPYING, Reference, Watch

SIDE = 192  # of the matrices: they fit the smallest caches of a core that are worth the name
BYTES = 2 * 2**20  # that are copied: more than such a cache holds


def cores_now() -> frozenset[int]:
    """The logical CPUs that this thread may be on; empty where the system does not tell."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def torch_watch() -> Watch:
    """The watch of this process for its cores and torch's threads, as they are now."""
    import torch

    return _watch(cores_now(), torch.get_num_threads())


def torch_reference() -> Reference:
    """A matrix product and a copy, by torch, on as many threads as it has."""
    import torch

    matrix, product = torch.full((SIDE, SIDE), 0.5), torch.empty(SIDE, SIDE)
    source, target = torch.zeros(BYTES // 4), torch.zeros(BYTES // 4)
    return Reference(
        (lambda: torch.mm(matrix, matrix, out=product), lambda: target.copy_(source)),
    )


@cache  # so that it knows all readings of the process
def _watch(cores: frozenset[int], threads: int) -> Watch:
    return Watch(torch_reference(), (COMPUTING, COPYING))
