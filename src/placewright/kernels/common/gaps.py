"""Idle intervals of resources (devices, channels): finding one that is long enough, and taking it.

``gap_start[resource, k]`` and ``gap_end[resource, k]``, k < count[resource], ascending; the last
interval of a resource never ends.
"""

from __future__ import annotations

import numpy as np

from placewright.kernels.common.rows import copy_into, largest_of
from placewright.kernels.compiled import inlined, inner, kernel


@inlined
def first_gap(gap_end, count, ready):
    """Index of the first idle interval that ends after `ready`; the last one never ends."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if gap_end[middle] > ready:
            high = middle
        else:
            low = middle + 1
    return low


@inlined
def earliest(gap_start, gap_end, count, ready, duration):
    """Earliest start ≥ `ready` at which `duration` fits an idle interval."""
    gap = first_gap(gap_end, count, ready)
    start = max(ready, gap_start[gap])
    while start + duration > gap_end[gap]:
        gap += 1
        start = gap_start[gap]
    return start


@inner
def occupy(gap_start, gap_end, count, resource, start, finish):
    """Take [start, finish] out of the idle interval that holds it."""
    size = count[resource]
    gap = first_gap(gap_end[resource], size, start)
    left = start > gap_start[resource, gap]
    right = finish < gap_end[resource, gap]
    if left and right:
        for k in range(size, gap + 1, -1):
            gap_start[resource, k] = gap_start[resource, k - 1]
            gap_end[resource, k] = gap_end[resource, k - 1]
        gap_start[resource, gap + 1] = finish
        gap_end[resource, gap + 1] = gap_end[resource, gap]
        gap_end[resource, gap] = start
        count[resource] = size + 1
    elif left:
        gap_end[resource, gap] = start
    elif right:
        gap_start[resource, gap] = finish
    else:
        for k in range(gap, size - 1):
            gap_start[resource, k] = gap_start[resource, k + 1]
            gap_end[resource, k] = gap_end[resource, k + 1]
        count[resource] = size - 1


@kernel(allocates=True)
def with_capacity(gap_start, gap_end, count, needed):
    """The gap tables with capacity for `needed` more intervals on every resource."""
    most = largest_of(count) if len(count) else 0
    capacity = gap_start.shape[1]
    if most + needed <= capacity:
        return gap_start, gap_end
    grown = max(2 * capacity, most + needed)
    new_start = np.empty((len(count), grown))
    new_end = np.empty((len(count), grown))
    for resource in range(len(count)):
        copy_into(new_start[resource, :capacity], gap_start[resource])
        copy_into(new_end[resource, :capacity], gap_end[resource])
    return new_start, new_end
