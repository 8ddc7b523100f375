"""The whole model on several devices, each of which takes a share of the inputs.

Nothing is sent between devices but, in training, what keeps their weights equal. So the quickest
devices are the best k of any number k, but for the link that they keep weights equal over: those of
each host are tried by themselves too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.plan import Placement
from placewright.planners.base import Proposal
from placewright.planners.throughput.shares import balanced
from placewright.problem import ROUNDING, Problem
from placewright.simulate.throughput import loads


class DataParallel:
    """The best of the quickest one, two, three … devices that have room for the whole model.

    Equally fast ones, unless shares may differ: then any, each with as large a share as it does in
    the time of the others.
    """

    name: ClassVar[str] = "data-parallel"
    objective: ClassVar[str] = "throughput"

    def supports(self, problem: Problem) -> str | None:
        if problem.options.replicate:
            return None
        return "it gives all devices the whole model, which takes replicas; plan with --replicate"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        best: Placement | None = None
        least = math.inf
        for devices in dict.fromkeys(_quickest(problem)):
            device = np.full(problem.op_count, devices[0], dtype=np.int32)
            replicas = (devices,) if len(devices) > 1 else ()
            placement = balanced(problem, Placement(device, replicas=replicas))
            value = loads(problem, placement).value
            if value < least:
                best, least = placement, value
        if best is None:
            raise InfeasibleError(
                f"planner '{self.name}' found no device for the whole model (none runs all ops and "
                "has room for them); give a device more memory, or use a planner of stages"
            )
        return Proposal(best)


def _quickest(problem: Problem) -> Iterator[tuple[int, ...]]:
    """The quickest devices, more and more of them, of each group that may be replicas."""
    fits = problem.unit_memory.sum() <= problem.device_memory * (1 + ROUNDING)
    able = np.flatnonzero(problem.unit_allowed.all(axis=0) & fits)
    seconds = problem.op_time[:, able].sum(axis=0)
    able = able[np.argsort(seconds, kind="stable")]
    pinned = (problem.op_pinned >= 0).any()
    for group in _groups(problem, able.tolist()):
        for count in range(1, len(group) + 1 if not pinned else 2):
            yield tuple(group[:count])


def _groups(problem: Problem, able: list[int]) -> Iterator[list[int]]:
    """Devices that may be replicas of each other; all, and those of each host."""
    alike: dict[bytes, list[int]] = {}
    for device in able:
        same = problem.op_time[:, device].tobytes() if problem.options.shares == "equal" else b""
        alike.setdefault(same, []).append(device)
    for group in alike.values():
        yield group
        by_host: dict[str, list[int]] = {}
        for device in group if problem.device_hosts else ():
            by_host.setdefault(problem.device_hosts[device], []).append(device)
        yield from by_host.values()
