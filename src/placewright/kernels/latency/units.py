"""Units while they are placed: where each is, where it may go, and what is free on devices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placewright.graph import Flags, Floats, Ints
from placewright.problem import Problem


class Units(NamedTuple):
    """`device` and `free` are written as units are placed."""

    of_op: Ints  # [op]
    device: Ints  # [unit] or -1
    memory: Floats  # [unit] bytes
    allowed: Flags  # [unit, device]
    free: Floats  # [device] bytes


def units_of(problem: Problem, unit_device: Ints) -> Units:
    """Units as a problem has them, those with a device in `unit_device` on it."""
    unit_device = np.array(unit_device, dtype=np.int32)
    allowed, free = np.isfinite(problem.unit_time), problem.free_memory(unit_device)
    return Units(problem.op_unit, unit_device, problem.unit_memory, allowed, free)
