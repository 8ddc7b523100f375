"""Planners that decide without looking at transfers: the baselines everyone compares with."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from placewright.analysis.orders import m_topo
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Ints
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, MemoryAccount, Proposal
from placewright.problem import Problem
from placewright.units import format_bytes


class SingleDevice(LatencyPlanner):
    """Everything on one device: the one with the least total time among those with room."""

    name: ClassVar[str] = "single-device"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        needed = float(problem.op_memory.sum())
        total = problem.unit_time.sum(axis=0)
        fits = np.isfinite(total) & (needed <= problem.device_memory)
        if not fits.any():
            raise InfeasibleError(
                f"planner 'single-device': no device supports every op and has the "
                f"{format_bytes(needed)} they need; use a planner that splits the model"
            )
        account = MemoryAccount(problem, self.name)
        best = int(np.where(fits, total, np.inf).argmin())
        account.unit_device[:] = best
        return Proposal(account.placement())


class MemoryFill(LatencyPlanner):
    """Fill one device after another, in topological order.

    Devices come fastest first (least total time of the ops they support). As in Accelerate's
    sequential device map, a device is left for good at the first op it has no room for; an op
    that the current device does not support goes to the next one that does.
    """

    name: ClassVar[str] = "memory-fill"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        return Proposal(filled(problem, problem.topological_order, self.name))


class MinimumExecutionTime(LatencyPlanner):
    """Each unit on the device that runs it fastest and has room, in topological order."""

    name: ClassVar[str] = "met"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        account = MemoryAccount(problem, self.name)
        preference = np.argsort(problem.unit_time, axis=1, kind="stable")
        for op in problem.topological_order:
            unit = int(problem.op_unit[op])
            account.place_first(unit, preference[unit])
        return Proposal(account.placement())


class MTopo(LatencyPlanner):
    """Topological (breadth-first) order, each device up to an even share of the memory.

    Baechi caps a device at total memory / devices plus the largest op, so that every device
    gets a part of the model. Where an op fits no device under the cap, the cap is dropped.
    """

    name: ClassVar[str] = "m-topo"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        account = MemoryAccount(problem, self.name)
        cap = problem.op_memory.sum() / problem.device_count + problem.unit_memory.max()
        devices = np.arange(problem.device_count)
        filled = np.zeros(problem.device_count)
        current = 0
        for op in m_topo(problem):
            unit = int(problem.op_unit[op])
            if account.unit_device[unit] >= 0:
                continue
            memory = problem.unit_memory[unit]
            while current + 1 < len(devices) and filled[current] + memory > cap:
                current += 1
            account.place_first(unit, np.roll(devices, -current))
            filled[account.unit_device[unit]] += memory
        return Proposal(account.placement())


def filled(problem: Problem, order: Ints, planner: str, *, anywhere: bool = False) -> Placement:
    """Fill one device after another, fastest first, with the ops in this order.

    With `anywhere`, a unit that no later device has room for goes to the roomiest of all.
    """
    account = MemoryAccount(problem, planner)
    devices = fastest_first(problem)
    current = 0
    for op in order:
        unit = int(problem.op_unit[op])
        if account.unit_device[unit] >= 0:
            continue
        while (
            current + 1 < len(devices)
            and account.allowed[unit, devices[current]]
            and not account.fits(unit, int(devices[current]))
        ):
            current += 1
        roomiest = np.argsort(-account.free, kind="stable") if anywhere else devices[:0]
        account.place_first(unit, np.concatenate([devices[current:], roomiest]))
    return account.placement()


def fastest_first(problem: Problem) -> Ints:
    """Devices by the number of units they support, then by the time these take."""
    supported = np.isfinite(problem.unit_time)
    total = np.where(supported, problem.unit_time, 0.0).sum(axis=0)
    return np.lexsort((total, -supported.sum(axis=0))).astype(np.int32)
