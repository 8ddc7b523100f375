"""All ways to share the units of two devices, by trying every one."""

from __future__ import annotations

from itertools import product

import numpy as np

from placewright.plan import Placement
from placewright.simulate import evaluate


def busy_seconds(problem, unit_device):
    """`[device]`"""
    return evaluate(problem, Placement(unit_device[problem.op_unit])).load


def all_sharings(problem, here, devices):
    """`(unit_device, loads of the two)` for every way to share the units of both, others fixed."""
    time = problem.unit_time[:, list(devices)]
    fits = problem.unit_memory[:, None] <= problem.device_memory[list(devices)]
    both = (np.isfinite(time) & fits).all(axis=1)
    units = np.flatnonzero(np.isin(here, devices) & both)
    for chosen in product(devices, repeat=len(units)):
        unit_device = here.copy()
        unit_device[units] = chosen
        yield unit_device, busy_seconds(problem, unit_device)[list(devices)]
