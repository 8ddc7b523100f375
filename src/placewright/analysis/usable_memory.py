"""What units can fill of a device's memory: the rest of it is of no use to any plan.

Where units are few and large, such as the blocks of a language model, a device of 4.4 blocks holds
4. The most that units it allows add up to without overflowing is found exactly: the sums that some
of them have, size by size. Units of as many bytes are one size, so equal blocks make few sums;
where there are too many, or where activations take what is left, the memory is as it was.
"""

from __future__ import annotations

import numpy as np

from placewright.graph import Floats, Wide
from placewright.problem import LONG_ROUNDING, Problem

MOST_SUMS = 20_000
MOST_SIZES = 64


def with_usable_memory(problem: Problem) -> Problem:
    """A problem with the same plans and no memory that none of them can use; itself if all is used.

    What a plan uses of a device is a sum of the bytes of different units that it allows, the same
    as one of the sums looked at but for rounding, for which there is room. In a batch, or with
    replicas, a device has a unit once at most too.
    """
    if problem.options.memory == "peak":
        return problem
    most = np.array([_most(problem, device) for device in range(problem.device_count)])
    usable = np.minimum(most * (1 + LONG_ROUNDING), problem.device_memory)
    if (usable == problem.device_memory).all():
        return problem
    return problem.with_device_memory(usable)


def _most(problem: Problem, device: int) -> float:
    """Bytes: the largest sum that the device has room for; all it has if there are too many."""
    capacity = float(problem.device_memory[device])
    memory = problem.unit_memory[problem.unit_allowed[:, device]]
    if memory.sum() <= capacity or not np.isfinite(capacity):
        return capacity
    sizes, counts = np.unique(memory[memory > 0], return_counts=True)
    if len(sizes) > MOST_SIZES:
        return capacity
    return largest_sum(sizes, counts, capacity)


def largest_sum(sizes: Floats, counts: Wide, capacity: float) -> float:
    """The largest sum of up to ``counts[k]`` times ``sizes[k]`` that is at most the capacity.

    The capacity itself if more than `MOST_SUMS` are to be looked at.

    >>> largest_sum(np.array([3.0, 5.0]), np.array([2, 1]), 9.5)
    8.0
    """
    room = capacity * (1 + LONG_ROUNDING)
    sums = np.zeros(1)
    for size, count in zip(sizes[::-1], counts[::-1], strict=True):
        times = np.arange(min(count, int(room // size)) + 1)
        if len(sums) * len(times) > MOST_SUMS:
            return capacity
        sums = np.unique(np.add.outer(sums, size * times))
        sums = sums[sums <= room]
    return min(float(sums.max()), capacity)
