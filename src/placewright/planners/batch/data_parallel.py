"""The whole model on several devices, each with a share of the inputs: `data-parallel`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Ints
from placewright.kernels.batch.arrays import batches_of
from placewright.planners.base import Proposal
from placewright.planners.batch.lists import BatchPlanner
from placewright.planners.batch.rows import placement_of
from placewright.planners.batch.splits import splits_of
from placewright.problem import Problem


class DataParallel(BatchPlanner):
    """All ops split alike, in the split that is done first of those that fit.

    Nothing goes between devices, so each is busy without a break: a split takes as long as its
    slowest device computes.
    """

    name: ClassVar[str] = "data-parallel"

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        rows = even_rows(problem)
        if rows is None:
            raise InfeasibleError(
                "planner 'data-parallel': no devices that each have room for the whole model take "
                f"batches of every op that add up to {problem.options.batch} inputs; use a "
                "planner that places ops"
            )
        return Proposal(placement_of(problem, rows, problem.topological_order))


def even_rows(problem: Problem) -> Ints | None:
    """``rows[unit, chunk]`` of the best split that all units can have alike; None without one."""
    b = batches_of(problem)
    fits = problem.op_memory.sum() <= problem.device_memory
    takes = np.logical_and.reduce(b.allowed)
    usable = takes[b.kind] & (fits[:, None] | (np.arange(b.time.shape[2]) == 0))
    splits = splits_of(problem).of(0)
    devices = np.arange(problem.device_count)
    splits = splits[usable[devices, splits].all(axis=1)]
    if not len(splits):
        return None
    busy = np.where(usable, b.time.sum(axis=0)[b.kind], 0.0)[devices, splits]
    best = splits[int(busy.max(axis=1).argmin())]
    row = np.repeat(devices, best).astype(np.int32)
    return np.tile(row, (problem.unit_count, 1))
