"""One pass over the ops: the batched baselines of DiviML (§V-A, §V-C), and one device for all."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from placewright.analysis.orders import m_topo, mean_edge_time
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Floats, Ints
from placewright.kernels.batch.arrays import batches_of
from placewright.kernels.batch.lists import list_batches
from placewright.kernels.common.arrays import arrays_of
from placewright.planners.base import Proposal
from placewright.planners.batch.rows import Draft, fill, placement_of
from placewright.planners.batch.splits import split_seconds
from placewright.problem import Problem
from placewright.simulate.latency import rank_order
from placewright.units import format_bytes


class BatchPlanner:
    """Shared by planners for objective ``batch-throughput`` that take every problem."""

    objective: ClassVar[str] = "batch-throughput"

    def supports(self, problem: Problem) -> str | None:
        return None


class SingleDevice(BatchPlanner):
    """All inputs in one batch, everything on the device with the least total time (BD, Table IV).

    Among the devices that take a batch of all inputs and have room.
    """

    name: ClassVar[str] = "single-device"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        b = batches_of(problem)
        takes_all = np.logical_and.reduce(b.allowed[:, :, -1])
        fits = takes_all[b.kind]
        needed = float(problem.op_memory.sum())
        fits &= needed <= problem.device_memory
        if not fits.any():
            raise InfeasibleError(
                f"planner 'single-device': no device takes all {problem.options.batch} inputs of "
                f"every op in one batch and has the {format_bytes(needed)} they need; use a "
                "planner that splits"
            )
        total = b.time[:, :, -1].sum(axis=0)[b.kind]
        device = int(np.where(fits, total, np.inf).argmin())
        rows = np.full((problem.unit_count, b.time.shape[2] - 1), device, dtype=np.int32)
        return Proposal(placement_of(problem, rows, problem.topological_order))


class MinimumExecutionTime(BatchPlanner):
    """Each op in the batches that take least time per input (bMET).

    Of all splits with room, the one that keeps devices busy for the fewest seconds in all; units
    in topological order.
    """

    name: ClassVar[str] = "met"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        draft = fill(problem, self.name, place_quickest)
        return Proposal(placement_of(problem, draft.rows, m_topo(problem)))


class Greedy(BatchPlanner):
    """Ops in breadth-first order, each split so that it finishes first (bGreedy)."""

    name: ClassVar[str] = "greedy"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        return _listed(problem, m_topo(problem), self.name, insertion=False)


class Heft(BatchPlanner):
    """Longest remaining path first, split so that it finishes first, into gaps (bHEFT).

    The weight of an op is its time for an average batch; see `mean_batch_time`.
    """

    name: ClassVar[str] = "heft"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        return _listed(problem, heft_order(problem), self.name, insertion=True)


def place_quickest(draft: Draft) -> int:
    """Give each unit without a row the split of fewest seconds; -1, or the unit without room."""
    seconds = split_seconds(draft.problem, draft.splits)
    return draft.place_all(lambda unit: seconds[unit])


def heft_order(problem: Problem) -> Ints:
    return rank_order(problem, mean_batch_time(problem), mean_edge_time(problem))


def mean_batch_time(problem: Problem) -> Floats:
    """`[op]` seconds of a batch, averaged over the sizes that devices take."""
    b = batches_of(problem)
    time, number = b.time[:, :, 1:], np.bincount(b.kind)[:, None]
    possible = np.isfinite(time)
    total: Floats = (np.where(possible, time, 0.0) * number).sum(axis=(1, 2))
    mean: Floats = total / np.maximum((possible * number).sum(axis=(1, 2)), 1)
    return mean


def list_in_order(
    problem: Problem, order: Ints, planner: str, *, insertion: bool
) -> tuple[Ints, tuple[Floats, Floats]]:
    """Rows by list scheduling, with ``start[op, device]`` and finish of each batch."""
    shape = (problem.op_count, problem.device_count)
    times = np.zeros(shape), np.zeros(shape)

    def attempt(draft: Draft) -> int:
        splits = draft.splits
        failed = list_batches(
            arrays_of(problem),
            batches_of(problem),
            order,
            draft.rows,
            draft.free,
            splits.offsets,
            splits.counts,
            splits.unit_kind,
            insertion,
            *times,
        )
        return int(problem.op_unit[failed]) if failed >= 0 else -1

    return fill(problem, planner, attempt).rows, times


def _listed(problem: Problem, order: Ints, planner: str, *, insertion: bool) -> Proposal:
    rows, times = list_in_order(problem, order, planner, insertion=insertion)
    return Proposal(placement_of(problem, rows, order, times))
