"""Which devices of a large cluster to plan on.

A run of one input can rarely use more than some tens of devices: what it gains by another has to
pay for sending tensors there. So of hundreds of devices a few that are fast and close to each
other are chosen, as many as the memory needs and some to spare.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placewright.analysis.devices import Restriction, kinds, restricted
from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.problem import Problem

FEW = 32  # devices at least, where there are so many
ENOUGH = 1.5  # times the memory that the ops need
MOST_SEEDS = 4  # classes of devices to begin with, the fastest
NEARNESS = 0.1  # of all tensors are sent between a device and those chosen before, about


def all_devices(problem: Problem) -> Restriction:
    return Restriction(problem, problem, np.arange(problem.device_count, dtype=np.int32))


def choices(problem: Problem, start: Placement | None) -> Iterator[Restriction]:
    """Restrictions worth a try, among them one to a superset of the devices of `start`."""
    if problem.device_count <= FEW:
        yield all_devices(problem)
        return
    first, class_of = kinds(problem)
    needed = np.unique(problem.op_pinned[problem.op_pinned >= 0])
    if start is not None:
        needed = np.union1d(needed, start.device)
    seconds, supported = _speeds(problem, first)
    seeds = np.lexsort((seconds, -supported))[:MOST_SEEDS]
    cost = np.where(supported[class_of] > 0, seconds[class_of], np.inf)
    seen: set[bytes] = set()
    for seed in seeds if not len(needed) else [class_of[needed[0]]]:
        devices = _grown(problem, needed, int(first[seed]), cost, class_of, supported)
        if devices.tobytes() not in seen:
            seen.add(devices.tobytes())
            yield restricted(problem, devices)


def _speeds(problem: Problem, first: Ints) -> tuple[Floats, Ints]:
    """Per class, seconds that all ops take that it supports, and how many these are."""
    times = problem.op_time[:, first]
    supported = np.isfinite(times)
    return np.where(supported, times, 0.0).sum(axis=0), supported.sum(axis=0)


def _grown(
    problem: Problem, needed: Ints, seed: int, cost: Floats, class_of: Ints, supported: Ints
) -> Ints:
    """Devices, rising: those `needed` or `seed`, and one after another the best beside these.

    The best is the one that computes fastest and is nearest, a share `NEARNESS` of all tensors
    taken to be sent between it and the nearest half of those chosen, on average.
    """
    chosen = needed.tolist() or [seed]
    nbytes, tensors = float(problem.tensor_bytes.sum()), problem.tensor_count
    away = np.zeros(problem.device_count)

    def sending(a: int) -> Floats:
        latency = problem.link_latency[a] + problem.link_latency[:, a]
        per_byte = problem.link_seconds_per_byte[a] + problem.link_seconds_per_byte[:, a]
        found: Floats = NEARNESS * (tensors * latency + nbytes * per_byte) / 2
        return found

    for device in chosen:
        away += sending(device)
    outside = np.ones(problem.device_count, dtype=np.bool_)
    outside[chosen] = False
    memory = ENOUGH * float(problem.op_memory.sum())
    while outside.any() and (
        len(chosen) < FEW or float(problem.device_memory[chosen].sum()) < memory
    ):
        score = np.where(outside, cost + away / len(chosen), np.inf)
        best = int(score.argmin())
        if not np.isfinite(score[best]):
            break
        chosen.append(best)
        outside[best] = False
        away += sending(best)
    chosen += _for_rare_ops(problem, chosen, class_of, supported)
    return np.unique(chosen).astype(np.int32)


def _for_rare_ops(
    problem: Problem, chosen: list[int], class_of: Ints, supported: Ints
) -> list[int]:
    """The largest device of each other class, if ops have no device among those chosen."""
    if (supported[class_of[chosen]] == problem.op_count).all():
        largest = float(problem.device_memory[chosen].max())
        if float(problem.unit_memory.max()) <= largest:
            return []
    classes = np.setdiff1d(class_of, class_of[chosen])
    return [
        int(np.where(class_of == each, problem.device_memory, -1.0).argmax()) for each in classes
    ]
