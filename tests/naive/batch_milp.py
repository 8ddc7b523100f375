"""Brute force for batches of inputs: every placement, and of each every order."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement, product

import numpy as np

from placewright.problem import Problem
from placewright.simulate.batch import expand
from tests.naive.latency import shortest_makespan


def shortest_batch_time(problem: Problem) -> float:
    """The least time to finish all inputs; `inf` if no placement fits.

    Inputs are alike, so the paths they take are tried as multisets.
    """
    best = math.inf
    devices = range(problem.device_count)
    paths = [path for path in product(devices, repeat=problem.op_count) if _allowed(problem, path)]
    for chosen in combinations_with_replacement(paths, problem.options.batch):
        device = np.array(chosen, dtype=np.int32).T
        if _possible(problem, device):
            best = min(best, shortest_makespan(expand(problem, device).problem))
    return best


def _allowed(problem: Problem, path: tuple[int, ...]) -> bool:
    together: dict[int, int] = {}
    for op, device in enumerate(path):
        if problem.op_pinned[op] not in (-1, device):
            return False
        group = int(problem.colocation[op])
        if group >= 0 and together.setdefault(group, device) != device:
            return False
    return True


def _possible(problem: Problem, device: np.ndarray) -> bool:
    """Whether every batch has a size its device takes (memory is for the makespan's search)."""
    sizes = problem.batch_sizes.tolist()
    for op, row in enumerate(device.tolist()):
        for where in set(row):
            count = row.count(where)
            if count not in sizes:
                return False
            if not math.isfinite(problem.batch_time[op, where, sizes.index(count)]):
                return False
    return True
