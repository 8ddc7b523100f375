"""Slots: the k-th subgraph of an accelerator, or a CPU; placements as one slot per op."""

from __future__ import annotations

import numpy as np

from placewright.analysis.devices import grouped
from placewright.graph import Whole
from placewright.plan import Placement, numbered
from placewright.problem import Problem


def accelerators(problem: Problem) -> Whole:
    return np.flatnonzero(~problem.is_cpu).astype(np.int64)


def cpu_choices(problem: Problem) -> Whole:
    """CPUs that differ; of those that are equal and never full, the first."""
    never_full = problem.device_memory >= problem.op_memory.sum()

    def same(one: int, two: int) -> bool:
        times = (problem.unit_time, problem.op_time)
        return bool(never_full[one] and never_full[two]) and all(
            np.array_equal(time[:, one], time[:, two]) for time in times
        )

    groups = grouped(np.flatnonzero(problem.is_cpu).tolist(), same)
    return np.array([group[0] for group in groups], dtype=np.int64)


def slot_of(problem: Problem, device: Whole, number: Whole | int = 0) -> Whole:
    """`[op]` the slot of invocation `number` (of its way) of the op's device.

    A CPU is not invoked: its ops have the first slot of their way, whatever their number.
    """
    per_way = problem.options.subgraphs
    invoked = np.where(problem.is_cpu[device], 0, number)
    return np.asarray((2 * device + problem.is_backward) * per_way + invoked, dtype=np.int64)


def device_of(problem: Problem, op_slot: Whole) -> Whole:
    """`[op]` the device of its slot."""
    return op_slot // (2 * problem.options.subgraphs)


def placement_of(problem: Problem, op_slot: Whole) -> Placement:
    """Slots as a placement; subgraphs are numbered from 0 per accelerator, in their order."""
    device = device_of(problem, op_slot)
    slot = np.where(problem.is_cpu[device], -1, op_slot)
    return Placement(device, subgraph=numbered(device, slot))


def slots_of(problem: Problem, placement: Placement) -> Whole:
    """`[op]` the slots of a placement, its subgraphs counted per device and way."""
    device = placement.device.astype(np.int64)
    number = np.zeros(problem.op_count, dtype=np.int64)
    if placement.subgraph is not None:
        for way in (False, True):
            for accelerator in np.unique(device[~problem.is_cpu[device]]):
                there = (device == accelerator) & (problem.is_backward == way)
                number[there] = np.unique(placement.subgraph[there], return_inverse=True)[1]
    return slot_of(problem, device, number)
