"""CP-SAT as this project uses it: the one place that makes a solver and runs it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from placewright.budget import Budget
from placewright.solvers.running import Answer, Solution, run_aside

LONGEST_SECONDS = 1e7
MOST_SEED = 2**31  # what CP-SAT takes


def cp_solver(*, workers: int, seed: int = 0, effort: float = math.inf) -> Any:
    """A `CpSolver` with so many workers (0: one a processor), and so much deterministic time.

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
    # Where linear rows include others, presolve of OR-Tools 9.15 may cut off solutions: it then
    # proves bounds above the optimum, or that there is no plan where there is one.
    parameters.presolve_inclusion_work_limit = 0
    if math.isfinite(effort):
        parameters.max_deterministic_time = effort
    return solver


def solve_model(
    solver: Any,
    model: Any,
    limit: Budget,
    read: Callable[[Any], Solution],
    found: Callable[[Solution], None] | None = None,
    proved: Callable[[float], None] | None = None,
) -> Answer[Solution]:
    """Solve until the end of `limit`, which another thread may bring forward, or `stop_search`.

    `read` makes a solution of a solver or of one of CP-SAT's callbacks, which have the same
    methods. `found` hears of the best solution so far and `proved` of the best bound, now and then
    and in the calling thread. Ctrl-C as in `running`.
    """
    from ortools.sat.python import cp_model

    if limit.left <= 0:
        return Answer(None, 0.0)
    watcher = _watcher(read)
    told: list[Any] = [None, None]

    def look() -> None:
        solution, bound = watcher.solution, watcher.bound
        if found is not None and solution is not told[0]:
            found(solution)
        if proved is not None and bound is not told[1]:
            proved(bound)
        told[:] = solution, bound

    if proved is not None:
        solver.best_bound_callback = watcher.on_bound
    solver.parameters.max_time_in_seconds = min(max(limit.left, 0.0), LONGEST_SECONDS)
    listener = watcher if found is not None else None
    status = run_aside(
        "cp-sat", lambda: solver.solve(model, listener), limit, solver.stop_search, look
    )
    if status is None:
        return Answer(watcher.solution, watcher.bound or 0.0)
    if status == cp_model.MODEL_INVALID:
        raise AssertionError(model.validate())
    if status == cp_model.INFEASIBLE:
        return Answer(None, 0.0, complete=True)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(None, solver.best_objective_bound)
    return Answer(read(solver), solver.best_objective_bound, status == cp_model.OPTIMAL)


def _watcher(read: Callable[[Any], Any]) -> Any:
    from ortools.sat.python import cp_model

    class Watcher(cp_model.CpSolverSolutionCallback):
        """Keeps the newest solution and bound for who looks."""

        def __init__(self) -> None:
            super().__init__()
            self.solution: Any = None
            self.bound: float | None = None

        def on_solution_callback(self) -> None:
            self.solution = read(self)

        def on_bound(self, bound: float) -> None:
            self.bound = bound

    return Watcher()
