"""The best plan for throughput by trying every placement, or every move of one unit."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np

from placewright.plan import Placement
from placewright.simulate import evaluate


def is_in_a_row(problem, device) -> bool:
    """Whether some row of the devices has all forward data go up, all backward data one way."""
    used = sorted(set(device.tolist()))
    ends = list(zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True))
    for order in permutations(used):
        place = {d: k for k, d in enumerate(order)}
        steps = [(place[device[a]], place[device[b]], problem.is_backward[[a, b]]) for a, b in ends]
        forward = all(a <= b for a, b, way in steps if not way.any())
        up = all(a <= b for a, b, way in steps if way.all())
        down = all(a >= b for a, b, way in steps if way.all())
        if forward and (up or down):
            return True
    return False


def placements_that_fit(problem):
    """Every `device[op]` that is allowed, within memory and, if asked for, contiguous."""
    choices = [
        np.flatnonzero(np.isfinite(problem.unit_time[unit])).tolist()
        for unit in range(problem.unit_count)
    ]
    for chosen in product(*choices):
        unit_device = np.array(chosen, dtype=np.int32)
        if (problem.free_memory(unit_device) < -1e-9).any():
            continue
        device = unit_device[problem.op_unit]
        if not problem.options.contiguous or is_in_a_row(problem, device):
            yield device


def least_max_load(problem) -> float:
    """The least time per sample of any placement without replicas; inf if none fits."""
    values = (evaluate(problem, Placement(d)).value for d in placements_that_fit(problem))
    return min(values, default=np.inf)


def least_after_one_move(problem, unit_device) -> float:
    """The least time per sample after one unit went to another device that it fits."""
    values = [np.inf]
    for unit, device in product(range(problem.unit_count), range(problem.device_count)):
        there = unit_device.copy()
        there[unit] = device
        can_run = np.isfinite(problem.unit_time[unit, device])
        fits = problem.free_memory(there)[device] >= 1e-9  # whatever the order of sums
        if device != unit_device[unit] and can_run and fits:
            values.append(evaluate(problem, Placement(there[problem.op_unit])).value)
    return min(values)


def stages_with_replicas(problem):
    """Every placement on stages of equally fast devices, the last devices first to be shared."""
    devices = range(problem.device_count)
    for device in placements_that_fit(problem):
        yield Placement(device)
        used = set(device.tolist())
        spare = [d for d in devices if d not in used]
        for keep in product([None, *sorted(used)], repeat=len(spare)):
            stages = {}
            for other, first in zip(spare, keep, strict=True):
                if first is not None:
                    stages.setdefault(first, [first]).append(other)
            ops = {first: np.flatnonzero(device == first) for first in stages}
            memory = {first: problem.op_memory[ops[first]].sum() for first in stages}
            equal = all(
                np.array_equal(problem.op_time[ops[a], a], problem.op_time[ops[a], b])
                and np.isfinite(problem.unit_time[problem.op_unit[ops[a]], b]).all()
                and memory[a] <= problem.device_memory[b]
                for a in stages
                for b in stages[a]
            )
            if stages and equal:
                yield Placement(device, replicas=tuple(tuple(s) for s in stages.values()))


def busy_seconds(problem, unit_device):
    """`[device]` as the evaluator has it."""
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
