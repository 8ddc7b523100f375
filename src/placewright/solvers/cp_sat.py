"""CP-SAT as this project uses it: the one place that makes a solver."""

from __future__ import annotations

import math
from typing import Any

LONGEST_SECONDS = 1e7
MOST_SEED = 2**31  # what CP-SAT takes


def cp_solver(
    *, workers: int, seed: int = 0, seconds: float = math.inf, effort: float = math.inf
) -> Any:
    """A `CpSolver` with so many workers (0: one a processor), seconds and deterministic time.

    Ctrl-C is Python's to see: once CP-SAT has caught it, the next one ends the process.

    >>> cp_solver(workers=1, effort=2.0).parameters.catch_sigint_signal
    False
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.catch_sigint_signal = False
    parameters.num_workers = workers
    parameters.random_seed = seed % MOST_SEED
    parameters.max_time_in_seconds = min(max(seconds, 0.0), LONGEST_SECONDS)
    if math.isfinite(effort):
        parameters.max_deterministic_time = effort
    return solver
