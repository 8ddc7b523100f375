"""The cheapest ways to split an op's inputs over the devices, for any cost of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placewright.graph import Floats, Ints, Wide
from placewright.kernels.batch.arrays import batches_of
from placewright.problem import LONG_ROUNDING, Problem

ROOM = 1 + LONG_ROUNDING  # of a device: what is full may be fuller by what sums are rounded


@dataclass(frozen=True)
class Splits:
    """Kinds of ops (or units): ``time[kind, device, count]``, inf where not allowed.

    Those with equal times and memory are of one kind; `kind[op]` and ``memory[kind]``.
    """

    time: Floats
    memory: Floats
    kind: Ints

    @classmethod
    def of(cls, time: Floats, memory: Floats, device_kind: Ints) -> Splits:
        """From ``time[op or unit, kind of device, count]``."""
        columns = np.column_stack([time.reshape(len(time), -1), memory])
        _, first, kind = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        return cls(time[first][:, device_kind], memory[first], kind.ravel().astype(np.int32))

    def weighted(self, weight: Floats) -> Floats:
        """Times by ``weight[device, count]``; what is not allowed stays so, whatever the weight."""
        finite = np.isfinite(self.time)
        cost: Floats = np.where(finite, np.where(finite, self.time, 0.0) * weight, np.inf)
        return cost

    @staticmethod
    def cheapest(cost: Floats) -> tuple[Floats, Wide]:
        """`[kind]` the least cost of a split for ``cost[kind, device, count]``, and its counts."""
        kinds, devices, columns = cost.shape
        least = np.full((kinds, columns), np.inf)
        least[:, 0] = 0.0
        taken = np.zeros((devices, kinds, columns), dtype=np.int64)
        for d in range(devices):
            before = least.copy()
            for count in np.flatnonzero(np.isfinite(cost[:, d]).any(axis=0)):
                if count == 0:
                    continue
                tried = before[:, : columns - count] + cost[:, d, count, None]
                better = tried < least[:, count:]
                least[:, count:][better] = tried[better]
                taken[d, :, count:][better] = count
        left = np.full(kinds, columns - 1)
        counts = np.zeros((kinds, devices), dtype=np.int64)
        for d in reversed(range(devices)):
            counts[:, d] = taken[d, np.arange(kinds), left]
            left = left - counts[:, d]
        return least[:, -1], counts

    def memory_parts(self, problem: Problem) -> tuple[NDArray[np.bool_], Floats]:
        """Which devices have limits, and `[kind, device]` the part of it that a kind needs."""
        limited = np.isfinite(problem.device_memory)
        capacity = np.where(limited & (problem.device_memory > 0), problem.device_memory, np.inf)
        return limited, self.memory[:, None] / capacity[None, :]

    @cached_property
    def quickest(self) -> Floats:
        """`[kind]` seconds of the quickest batch in any split."""
        possible = np.isfinite(self.time)
        kinds, devices, columns = possible.shape
        quickest = np.full(kinds, np.inf)
        for d in range(devices):
            rest = np.where(np.delete(possible, d, axis=1), 0.0, np.inf)
            fills = np.isfinite(_all_sums(rest))  # [kind, chunks] that the other devices can take
            for count in range(1, columns):
                usable = possible[:, d, count] & fills[:, columns - 1 - count]
                time = np.where(usable, self.time[:, d, count], np.inf)
                quickest = np.minimum(quickest, time)
        return quickest


def _all_sums(cost: Floats) -> Floats:
    """``[kind, chunks]`` 0 where devices with allowed counts (cost 0) can take so many in all."""
    least = np.full((cost.shape[0], cost.shape[2]), np.inf)
    least[:, 0] = 0.0
    for d in range(cost.shape[1]):
        before = least.copy()
        for count in range(1, cost.shape[2]):
            tried = before[:, :-count] + cost[:, d, count, None]
            least[:, count:] = np.minimum(least[:, count:], tried)
    return least


def all_splits(usable: NDArray[np.bool_], devices: Wide) -> Iterator[Wide]:
    """Every split: ``[kind, count]`` how many of so many `devices` of a kind have so many chunks.

    ``usable[kind, count]`` says which counts a device of the kind may have, beside none.
    """
    places = [(kind, count) for kind, count in np.argwhere(usable).tolist() if count]
    split = np.zeros(usable.shape, dtype=np.int64)
    split[:, 0] = devices

    def rest(place: int, left: int) -> Iterator[Wide]:
        if left == 0:
            yield split.copy()
        elif place < len(places):
            kind, count = places[place]
            for number in range(min(left // count, int(split[kind, 0])) + 1):
                split[kind, 0] -= number
                split[kind, count] = number
                yield from rest(place + 1, left - number * count)
                split[kind, 0] += number
            split[kind, count] = 0

    return rest(0, usable.shape[1] - 1)


def op_splits(problem: Problem) -> Splits:
    b = batches_of(problem)
    time = np.where(b.allowed[problem.op_unit], b.time, np.inf)
    return Splits.of(time, problem.op_memory, b.kind)


def unit_splits(problem: Problem) -> Splits:
    b = batches_of(problem)
    time = np.where(b.allowed, b.unit_time, np.inf)
    return Splits.of(time, problem.unit_memory, b.kind)


def priced(cost: Floats, part: Floats, price: Floats) -> Floats:
    """The price of memory on each device that is used at all."""
    if not price.any():
        return cost
    used = np.arange(cost.shape[2]) > 0
    return cost + (part * price)[:, :, None] * used


def named(argument: str, best: float, plain: float) -> str:
    return f"{argument} with memory" if best > plain else argument
