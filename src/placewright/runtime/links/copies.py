"""Copies in memory within one process: what one device wrote, another's cores copy."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from placewright.budget import Progress
from placewright.costs.profiles.reference import torch_reference
from placewright.costs.profiles.steady import COMPUTING, COPYING, Readings, Watch
from placewright.runtime.links.pace import SIZES, Times, measured_times
from placewright.runtime.links.pairs import Cores, Pair, times_of_pairs
from placewright.system.pinning import pinned


def copy_times(
    cores: Sequence[Cores],
    *,
    sizes: Sequence[int] = SIZES,
    on_progress: Progress | None = None,
) -> dict[Pair, Times]:
    """Times of copies from each device to each later one, by pairs of places in `cores`."""
    return times_of_pairs("copies", cores, _times, sizes, on_progress)


def _times(source: Cores, target: Cores, sizes: Sequence[int]) -> Times:
    def copied(size: int, count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            with pinned(source):
                value = torch.zeros(size, dtype=torch.uint8)
            with pinned(target):
                started = time.perf_counter()
                copy = value.clone()
                seconds.append(time.perf_counter() - started)
            del value, copy
        return seconds

    with pinned(target):
        reference = torch_reference()

    def read() -> Readings:
        with pinned(target):
            return reference()

    return measured_times(copied, Watch(read, (COMPUTING, COPYING)), sizes)
