"""What the stages of a pipeline send each other, and what that takes.

A stage is a device, or the devices that run replicas of the same ops (see `simulate.throughput`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.problem import Problem


class Stages:
    """Which devices act as one, and what it takes to send between them."""

    def __init__(self, problem: Problem, placement: Placement) -> None:
        self.problem = problem
        self.placement = placement
        self.members: dict[int, tuple[int, ...]] = {
            device: (device,) for device in range(problem.device_count)
        }
        for stage in placement.replicas:
            self.members[stage[0]] = stage
        self.shares: dict[int, tuple[float, ...]] = dict.fromkeys(self.members, (1.0,))
        for stage, shares in zip(placement.replicas, placement.shares, strict=True):
            self.shares[stage[0]] = shares

    def transfer(self, tensor: int, source: int, target: int) -> float:
        """Seconds from one stage to another, directly."""
        problem = self.problem
        ways = np.ix_(self.members[source], self.members[target])
        seconds = (
            problem.link_latency[ways]
            + problem.tensor_bytes[tensor] * problem.link_seconds_per_byte[ways]
        )
        if not self.placement.replica_shares:
            return float(seconds.mean())
        return float(self.shares[source] @ seconds @ self.shares[target])

    def staged(self, tensor: int, stage: int, way: int) -> float:
        """Seconds to host memory (way 0) or from it (way 1)."""
        problem, members = self.problem, list(self.members[stage])
        seconds = (
            problem.host_latency[way, members]
            + problem.tensor_bytes[tensor] * problem.host_seconds_per_byte[way, members]
        )
        if not self.placement.replica_shares:
            return float(seconds.mean())
        return float(self.shares[stage] @ seconds)

    def share_out(self, total: Floats) -> None:
        """Divide each stage's seconds, which stand at its first device, among its replicas."""
        for stage in self.placement.replicas:
            whole = total[:, stage[0]][:, None]
            if self.placement.replica_shares:
                total[:, list(stage)] = whole * np.array(self.shares[stage[0]])
            else:
                total[:, list(stage)] = whole / len(stage)

    def sync(self) -> Floats:
        """`[device]` seconds per input for keeping replicas' weights equal."""
        problem, seconds = self.problem, np.zeros(self.problem.device_count)
        for stage in self.placement.replicas:
            size = problem.op_sync_bytes[self.placement.device == stage[0]].sum()
            share = (len(stage) - 1) / len(stage)
            seconds[list(stage)] = share * size * sync_seconds_per_byte(problem, stage)
        return seconds


def sync_seconds_per_byte(problem: Problem, stage: tuple[int, ...]) -> float:
    """Of the slowest way between two replicas."""
    members = list(stage)
    if problem.staging == "host":
        return float(problem.host_seconds_per_byte[:, members].max())
    return float(problem.link_seconds_per_byte[np.ix_(members, members)].max())


class Transfer(NamedTuple):
    """What one stage gives out, or takes in, of one tensor per input, in a pass (`way`).

    `other` is the stage at the other end, or -1 for host memory.
    """

    tensor: int
    stage: int
    other: int
    way: int
    outgoing: bool
    seconds: float


def transfers_of(stages: Stages, tensor: int) -> Iterator[Transfer]:
    """All that the stages give out and take in of a tensor; nothing where it is read at home."""
    problem = stages.problem
    device: Ints = stages.placement.device
    producer = problem.tensor_producer[tensor]
    source = int(device[producer])
    start, end = problem.consumer_offsets[tensor : tensor + 2]
    readers = problem.consumers[start:end]
    targets = sorted(set(device[readers].tolist()) - {source})
    if not targets:
        return
    out_way = int(problem.is_backward[producer])
    if problem.staging == "host":
        seconds = stages.staged(tensor, source, 0)
        yield Transfer(tensor, source, -1, out_way, True, seconds)
    for target in targets:
        here = readers[device[readers] == target]
        in_way = int(problem.is_backward[here].all())
        if problem.staging == "host":
            seconds = stages.staged(tensor, target, 1)
            yield Transfer(tensor, target, -1, in_way, False, seconds)
        else:
            seconds = stages.transfer(tensor, source, target)
            yield Transfer(tensor, target, source, in_way, False, seconds)
            yield Transfer(tensor, source, target, out_way, True, seconds)
