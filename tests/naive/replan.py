"""Replanning by exhaustion: bytes moved counted op by op, the best plan within so many of them."""

from __future__ import annotations

import math

from placewright.simulate.throughput import loads
from tests.naive.throughput import all_splits, is_contiguous


def devices_of_ops(problem, placement) -> list[set[str]]:
    """Per op the names of all devices that run it."""
    members = {stage[0]: stage for stage in placement.replicas}
    names = problem.device_names
    return [
        {names[d] for d in members.get(device, (device,))} for device in placement.device.tolist()
    ]


def moved_bytes(old, problem, placement) -> float:
    """What devices have to get that they did not have; a lost device's bytes count."""
    before = devices_of_ops(old.problem, old.placement)
    after = devices_of_ops(problem, placement)
    total = 0.0
    for op, (had, has) in enumerate(zip(before, after, strict=True)):
        for _ in has - had:
            total += float(problem.op_memory[op])
    return total


def trade(old, problem) -> list[tuple[float, float]]:
    """All (bytes moved, value) that no other split beats or equals, by rising bytes."""
    found = []
    for placement in all_splits(problem):
        if problem.options.contiguous and not is_contiguous(problem, placement.device):
            continue
        found.append((moved_bytes(old, problem, placement), loads(problem, placement).value))
    best, front = math.inf, []
    for moved, value in sorted(found):
        if value < best - 1e-9:
            front.append((moved, value))
            best = value
    return front
