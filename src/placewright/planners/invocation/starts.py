"""Contiguous splits to begin with: the best segments of random orders, and filled devices."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from placewright.analysis.slots import accelerators, placement_of, slot_of
from placewright.budget import Budget, Reporter
from placewright.graph import Flags, Floats, Whole
from placewright.kernels.invocation import timing as kernel
from placewright.kernels.invocation.segments import (
    Atoms,
    best_segments,
    random_order,
    shift_atom,
)
from placewright.kernels.invocation.timing import network_of, work_for
from placewright.plan import Placement
from placewright.planners.base import MemoryAccount
from placewright.planners.invocation.base import atoms_of, loosenings
from placewright.planners.invocation.subgraphs import subgraph_slots
from placewright.problem import Problem
from placewright.simulate.invocation import invoke

SHIFTS_AT_ONCE = 3
MOST_STOPS = 1_000


class LinearSearch:
    """Depth-first orders of the atoms, the best segments of each, and the best slots so far.

    `value` is the true latency of `op_slot`, infinite while no order had a split that fits. Orders
    are drawn of the atoms and, in turn, of what they fall to if some units are on CPUs. The
    budget's listener hears of what is better than its start, whose value is `known`.
    """

    def __init__(self, problem: Problem, rng: np.random.Generator, budget: Budget) -> None:
        self.problem, self.rng, self.budget = problem, rng, budget
        given = budget.start
        self.known = math.inf if given is None else invoke(problem, given).value
        self.reporter = Reporter(budget, self.known)
        self.atoms: Atoms = atoms_of(problem)
        loose = loosenings(problem) if problem.is_cpu.any() else []
        self.variants = [self.atoms, *(atoms_of(problem, units) for units in loose)]
        self.best_variant = self.atoms
        self.network = network_of(problem)
        self.work = work_for(problem)
        self.devices = accelerators(problem)
        self.shuffled = len(kernel.equal_accelerators(problem)) > 1 or (
            bool((problem.op_pinned >= 0).any())
        )
        self.op_slot = np.zeros(problem.op_count, dtype=np.int64)
        self.value = math.inf
        self.order: Whole = np.zeros(len(self.atoms.memory), dtype=np.int64)

    def sample(self, orders: int, budget: Budget) -> None:
        """The best segments of so many random depth-first orders."""
        for number in range(orders):
            if budget.left <= 0 and self.value < math.inf:
                break
            atoms = self.variants[number % len(self.variants)]
            order = np.zeros(len(atoms.memory), dtype=np.int64)
            random_order(atoms, self.rng, order)
            self._try(atoms, order)
            self.reporter.tell(self.value, self.placement)

    def improve(self, steps: int, budget: Budget) -> None:
        """Local search on the order: shift a few atoms, keep what is no worse."""
        order = self.order.copy()
        for _ in range(steps):
            if budget.left <= 0 or self.value == math.inf:
                break
            order[:] = self.order
            for _ in range(SHIFTS_AT_ONCE):
                shift_atom(self.best_variant, self.rng, order)
            self._try(self.best_variant, order)
            self.reporter.tell(self.value, self.placement)

    def placement(self) -> Placement:
        """The best slots so far."""
        return placement_of(self.problem, self.op_slot)

    def _try(self, atoms: Atoms, order: Whole) -> None:
        if self.shuffled:
            self.rng.shuffle(self.devices)
        slots = np.zeros(self.problem.op_count, dtype=np.int64)
        stops = narrow_places(self.problem, atoms, order)
        total = best_segments(self.network, atoms, order, stops, self.devices, slots)
        if total == math.inf:
            return
        value = kernel.evaluate(self.network, slots, self.work)
        if value <= self.value:
            self.op_slot[:] = slots
            self.order, self.best_variant = order.copy(), atoms
            self.value = value


def narrow_places(problem: Problem, atoms: Atoms, order: Whole) -> Flags:
    """`[place]` whether segments may begin or end there: everywhere in an order of `MOST_STOPS`.

    In a longer one in as many places, evenly spread: of neighbours the one that the fewest bytes
    cross.
    """
    count = len(order)
    if count <= MOST_STOPS:
        return np.ones(count + 1, dtype=np.bool_)
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    place = rank[atoms.of_op]
    first = place[problem.tensor_producer].copy()
    last = first.copy()
    np.minimum.at(first, problem.edge_tensor, place[problem.consumers])
    np.maximum.at(last, problem.edge_tensor, place[problem.consumers])
    crossing = np.bincount(first + 1, problem.tensor_bytes, count + 2)
    crossing -= np.bincount(last + 1, problem.tensor_bytes, count + 2)
    bytes_over = np.cumsum(crossing)[: count + 1]
    stops = np.zeros(count + 1, dtype=np.bool_)
    stops[[0, count]] = True
    ends = np.linspace(0, count + 1, MOST_STOPS, dtype=np.int64)
    for low, high in pairwise(ends.tolist()):
        stops[low + int(bytes_over[low:high].argmin())] = True
    return stops


def filled(problem: Problem, atoms: Atoms, order: Whole, devices: Whole) -> Whole | None:
    """`[op]` slots: consecutive pieces of `order`, as much as fits each device, the rest on CPUs.

    An atom that the current device may not take, or has no room for, goes to the next device for
    good; pinned atoms wherever they are pinned. None if something is left over, or if a pin ties
    an atom to a device that cannot run all of it or has no room for it.
    """
    count = len(order)
    device = np.full(count, -1, dtype=np.int64)
    pinned = _pinned(problem, atoms)
    held = np.flatnonzero(pinned >= 0)
    if not np.isfinite(atoms.time[held, pinned[held]]).all():
        return None
    device[held] = pinned[held]
    used = np.bincount(pinned[held], atoms.memory[held], problem.device_count)
    if (used > problem.device_memory).any():
        return None
    free = problem.device_memory - used
    cpus = np.flatnonzero(problem.is_cpu)
    at = 0
    for atom in order:
        if device[atom] >= 0:
            continue
        while at < len(devices) and not _takes(atoms, free, atom, int(devices[at])):
            at += 1
        options = devices[at : at + 1].tolist() if at < len(devices) else []
        options += [cpu for cpu in cpus.tolist() if _takes(atoms, free, atom, cpu)]
        if not options:
            return None
        device[atom] = options[0]
        free[options[0]] -= atoms.memory[atom]
    return slot_of(problem, device[atoms.of_op])


def scattered(problem: Problem, planner: str) -> Whole:
    """`[op]` slots: each unit, the largest first, on the device with most room.

    In subgraphs that can run if few enough do, else in one of each way, not contiguous.
    NoRoomError if no device has room for a unit.
    """
    account = MemoryAccount(problem, planner)
    for unit in np.argsort(-problem.unit_memory, kind="stable").tolist():
        emptiest = np.argsort(-account.free, kind="stable").astype(np.int32)
        account.place_first(unit, emptiest)
    device = account.unit_device[problem.op_unit]
    slots, _, _ = subgraph_slots(problem, device)
    return slot_of(problem, device) if slots is None else slots


def _takes(atoms: Atoms, free: Floats, atom: int, device: int) -> bool:
    return bool(math.isfinite(atoms.time[atom, device]) and atoms.memory[atom] <= free[device])


def _pinned(problem: Problem, atoms: Atoms) -> Whole:
    """`[atom]` the device that its units are pinned to, or -1."""
    pinned = np.full(len(atoms.memory), -1, dtype=np.int64)
    np.maximum.at(pinned, atoms.of_op, problem.unit_pinned[problem.op_unit])
    return pinned
