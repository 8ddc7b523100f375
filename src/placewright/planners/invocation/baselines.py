"""What the program for invocation latency is compared with (Tarnawski et al. 2020, §7)."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from placewright.analysis.slots import accelerators, device_of, placement_of, slot_of
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Whole
from placewright.kernels.invocation.segments import Atoms
from placewright.kernels.invocation.timing import latency
from placewright.options import Options
from placewright.planners.base import Proposal
from placewright.planners.invocation.base import InvocationPlanner, atoms_of, nothing_fits
from placewright.planners.invocation.search import first_slots
from placewright.planners.invocation.starts import LinearSearch, filled
from placewright.planners.invocation.subgraphs import subgraph_slots, with_subgraphs
from placewright.planners.latency.construct import expert, partitioners
from placewright.problem import Problem
from placewright.units import format_bytes


class SingleDevice(InvocationPlanner):
    """Everything on one device, where that ends soonest: an accelerator, or CPUs.

    On CPUs ops that do not wait for each other run at once.
    """

    name: ClassVar[str] = "single-device"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        needed = float(problem.op_memory.sum())
        fits = np.isfinite(problem.unit_time.sum(axis=0)) & (needed <= problem.device_memory)
        if not fits.any():
            raise InfeasibleError(
                f"planner 'single-device': no device supports every op and has the "
                f"{format_bytes(needed)} they need; use a planner that splits the model"
            )
        slots = [
            slot_of(problem, np.full(problem.op_count, device))
            for device in np.flatnonzero(fits).tolist()
        ]
        return Proposal(placement_of(problem, min(slots, key=lambda each: latency(problem, each))))


class Greedy(InvocationPlanner):
    """Fill one accelerator after another in topological order; the rest goes to CPUs (§7).

    Of atoms: colocated ops, and all that contiguity ties to them. An accelerator is left for
    good at the first atom that it has no room for or does not support. Where something is left
    over, or what was filled cannot run, the answer is the first split that `first_slots` finds.
    """

    name: ClassVar[str] = "greedy"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        atoms = atoms_of(problem)
        slots = filled(problem, atoms, topological(atoms), accelerators(problem))
        if slots is not None:
            slots, *_ = subgraph_slots(problem, device_of(problem, slots))
        if slots is None:
            search = LinearSearch(problem, np.random.default_rng(seed), budget)
            slots = first_slots(search, self.name)
            if latency(problem, slots) == math.inf:
                raise nothing_fits(self.name)
        return Proposal(placement_of(problem, slots))


class MaxLoadDp(InvocationPlanner):
    """The contiguous split of least largest load (§5.1), judged by its latency."""

    name: ClassVar[str] = "max-load-dp"

    def supports(self, problem: Problem) -> str | None:
        from placewright.planners.throughput.ideal_dp import IdealDP

        return IdealDP().supports(_pipelined(problem))

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        from placewright.planners.throughput.ideal_dp import IdealDP

        try:
            found = IdealDP().plan(_pipelined(problem), budget, seed, on_progress)
        except InfeasibleError:
            raise InfeasibleError(
                f"planner '{self.name}' found no split with one contiguous piece on each device; "
                "give the devices more memory or try another planner"
            ) from None
        return Proposal(with_subgraphs(problem, found.placement.device, self.name))


class Scotch(partitioners.Scotch):
    """Scotch mapping, cut into contiguous subgraphs (§7).

    What Scotch puts on an accelerator is rarely contiguous: unless as many subgraphs are allowed
    as it falls into, InfeasibleError says how many that is.
    """

    objective: ClassVar[str] = "invocation-latency"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        found = super().plan(problem, budget, seed, on_progress)
        return Proposal(with_subgraphs(problem, found.placement.device, self.name))


class Metis(partitioners.Metis):
    """METIS partitioning, cut into contiguous subgraphs; see `Scotch`."""

    objective: ClassVar[str] = "invocation-latency"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        found = super().plan(problem, budget, seed, on_progress)
        return Proposal(with_subgraphs(problem, found.placement.device, self.name))


class Expert(expert.Expert):
    """Every op on the device a file says, cut into contiguous subgraphs (§7). See `expert`."""

    objective: ClassVar[str] = "invocation-latency"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        found = super().plan(problem, budget, seed, on_progress)
        return Proposal(with_subgraphs(problem, found.placement.device, self.name))


def topological(atoms: Atoms) -> Whole:
    """The atoms in a topological order, of those that are ready the one with the first op."""
    first = np.array([ops.min() for ops in np.split(atoms.ops, atoms.offsets[1:-1])])
    waiting = np.diff(atoms.before_offsets)
    ready = [(int(first[atom]), int(atom)) for atom in np.flatnonzero(waiting == 0)]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, atom = heapq.heappop(ready)
        order.append(atom)
        for later in atoms.after[atoms.after_offsets[atom] : atoms.after_offsets[atom + 1]]:
            waiting[later] -= 1
            if waiting[later] == 0:
                heapq.heappush(ready, (int(first[later]), int(later)))
    return np.array(order, dtype=np.int64)


def _pipelined(problem: Problem) -> Problem:
    """The same graph and devices under objective ``throughput``."""
    return replace(problem, options=Options(objective="throughput"))
