"""Accelerators in groups that count as one kind, and codes of how many of each are in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placewright.graph import Floats, Wide
from placewright.kernels.invocation.timing import READS, WRITES
from placewright.problem import Problem


@dataclass(frozen=True, eq=False)
class Kinds:
    """Accelerators in groups that count as one: `devices` of each.

    A code says how many of each kind are in use: the sum of `step[kind]` for each of them.
    """

    problem: Problem
    devices: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self.devices)

    @cached_property
    def slots(self) -> Wide:
        return np.array([len(group) for group in self.devices])

    @cached_property
    def room(self) -> Floats:
        """`[kind]` bytes of the model that its largest accelerator holds, at most all."""
        return np.array([held[1] for held in self._held])

    @cached_property
    def step(self) -> Wide:
        return np.append(1, np.cumprod(self.slots + 1))[:-1]

    @property
    def codes(self) -> int:
        return int(np.prod(self.slots + 1))

    def memory_left(self, code: int) -> float:
        """Bytes that CPUs hold, and those not in use, if the smallest of each kind are."""
        left = (self.slots - self.used(code)).tolist()
        held = sum(float(held[number]) for held, number in zip(self._held, left, strict=True))
        memory = np.minimum(self.problem.device_memory, self.problem.unit_memory.sum())
        return held + float(memory[self.problem.is_cpu].sum())

    @cached_property
    def _held(self) -> list[Floats]:
        """`[kind][number]` bytes that its largest accelerators hold, so many of them."""
        memory = np.minimum(self.problem.device_memory, self.problem.unit_memory.sum())
        sizes = (-np.sort(-memory[list(group)]) for group in self.devices)
        return [np.append(0.0, np.cumsum(each)) for each in sizes]

    def used(self, code: int) -> Wide:
        """`[kind]` how many are in use."""
        return np.asarray(code // self.step % (self.slots + 1))

    @cached_property
    def op_time(self) -> Floats:
        """`[op, kind]` seconds; infinite where none of the kind may run it."""
        problem = self.problem
        may_be = problem.unit_allowed[problem.op_unit]
        time = np.where(may_be, problem.op_time, np.inf)
        return np.column_stack([time[:, list(group)].min(axis=1) for group in self.devices])

    @cached_property
    def paces(self) -> Wide:
        """`[kind]` a number, the same for those that compute, read and write as fast."""
        number: dict[bytes, int] = {}
        keys = [
            self.op_time[:, kind].tobytes() + self.host[kind].tobytes() for kind in range(len(self))
        ]
        return np.array([number.setdefault(key, len(number)) for key in keys])

    @cached_property
    def host(self) -> Floats:
        """`[kind, column]` seconds per tensor read, per byte of it, per tensor written and byte."""
        return host_rates(self.problem)[[group[0] for group in self.devices]]


def host_rates(problem: Problem) -> Floats:
    """`[device, column]` seconds per tensor read, per byte of it, per tensor written and byte."""
    latency, pace = problem.host_latency, problem.host_seconds_per_byte
    return np.column_stack([latency[READS], pace[READS], latency[WRITES], pace[WRITES]])


def cpu_times(problem: Problem) -> Floats:
    """`[op]` seconds on the best CPU; infinite where none may run it."""
    may_be = problem.unit_allowed[problem.op_unit] & problem.is_cpu
    return np.asarray(np.where(may_be, problem.op_time, np.inf).min(axis=1))
