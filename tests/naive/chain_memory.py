"""The program over paths and bytes of a chain, path by path."""

import itertools
import math

import numpy as np
from ortools.linear_solver import pywraplp


def shortest_path_with_memory(parts, capacity):
    """Seconds of the best path: for each in turn the bytes that make it shortest."""
    pairs = [list(zip(*np.nonzero(np.isfinite(part.low)), strict=True)) for part in parts]
    best = math.inf
    for path in itertools.product(*pairs):
        if all(one[1] == two[0] for one, two in itertools.pairwise(path)):
            best = min(best, _least_seconds(parts, path, capacity))
    return best


def _least_seconds(parts, path, capacity):
    solver = pywraplp.Solver.CreateSolver("GLOP")
    infinity, seconds = solver.infinity(), []
    kept = [[] for _ in capacity]
    for part, pair in zip(parts, path, strict=True):
        here = [solver.NumVar(0.0, part.memory, "") for _ in capacity]
        takes = solver.NumVar(float(part.low[pair]), infinity, "")
        solver.Add(sum(here) == part.memory)
        for cut in part.cuts.get((int(pair[0]), int(pair[1])), ()):
            paid = sum(float(price) * held for price, held in zip(cut.price, here, strict=True))
            solver.Add(takes + paid >= cut.low)
        seconds.append(takes)
        for device, held in enumerate(here):
            kept[device].append(held)
    for held, most in zip(kept, capacity, strict=True):
        if math.isfinite(most):
            solver.Add(sum(held) <= float(most))
    solver.Minimize(sum(seconds))
    return solver.Objective().Value() if solver.Solve() == solver.OPTIMAL else math.inf
