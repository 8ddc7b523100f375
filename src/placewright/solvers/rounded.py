"""A mixed-integer program relaxed to whole numbers, and CP-SAT to solve it.

Every coefficient is rounded the way that lets more through, so that a bound on the relaxed
program is one on the program. For that all variables must be at least 0, and those that are not
declared whole must be able to be whole in some best solution (the objective aside, which is
counted in units of ``1 / UNITS``).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from placewright.budget import Budget
from placewright.errors import PlacewrightError
from placewright.graph import Floats
from placewright.solvers.cp_sat import cp_solver
from placewright.solvers.mathopt import (
    HORIZON,
    ROWS_BETWEEN_LOOKS,
    Answer,
    OutOfTimeError,
    Program,
)

UNITS = 1_000_000 / HORIZON  # of the objective, per unit of the program's time
SHARES = 1_000_000  # in which shares, such as of a memory, are counted
LOOK_SECONDS = 0.1  # between two looks at the clock
GRACE_SECONDS = 0.4  # for the solver to stop; then it is left behind


def solve_whole(
    program: Program,
    limit: Budget,
    hint: Mapping[int, float] | None = None,
    *,
    workers: int = 2,
    seed: int = 0,
    effort: float = math.inf,
    repeatable: bool = False,
    relaxed: bool = True,
    on_solution: Callable[[Floats], None] | None = None,
    on_bound: Callable[[float], None] | None = None,
) -> Answer:
    """Solve until the end of `limit`, which another thread may bring forward.

    `on_solution` is called with the best solution so far, `on_bound` with the best bound, now and
    then and by the calling thread. `effort`
    limits CP-SAT's deterministic time, and `repeatable` has its workers take turns: with both or
    one worker it finds the same again however fast the machine is. Without `relaxed` it solves no
    linear relaxations: the bound is weak and a small program solved far sooner. OutOfTimeError if
    time is up before the solver starts.

    KeyboardInterrupt stops the solver and is raised again; what it had found by then was given
    to `on_solution`.
    """
    if limit.left <= 0:
        raise OutOfTimeError
    from ortools.sat.python import cp_model

    model, variables = _model(program, limit)
    for variable, value in (hint or {}).items():
        model.add_hint(variables[variable], round(value))
    solver = cp_solver(workers=workers, seed=seed, seconds=limit.left, effort=effort)
    solver.parameters.interleave_search = repeatable and workers > 1
    if not relaxed:
        solver.parameters.linearization_level = 0
    watcher = _watcher(variables, on_solution is not None)
    if on_bound is not None:
        solver.best_bound_callback = watcher.on_bound

    seen: list[Any] = [None, None]

    def look() -> None:
        solution, bound = watcher.solution, watcher.bound
        if solution is not seen[0] and on_solution is not None:
            on_solution(solution)
        if bound is not seen[1] and on_bound is not None:
            on_bound(bound / UNITS)
        seen[:] = solution, bound

    status = _run(solver, model, watcher, limit, look)
    if status is None:
        return Answer(None, (watcher.bound or 0.0) / UNITS)
    if status == cp_model.INFEASIBLE:
        return Answer(None, 0.0, infeasible=True)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(None, solver.best_objective_bound / UNITS)
    values = np.array([float(solver.value(each)) for each in variables])
    return Answer(values, solver.best_objective_bound / UNITS)


def _run(solver: Any, model: Any, watcher: Any, limit: Budget, look: Callable[[], None]) -> Any:
    """The solver's status, None if it does not heed the end of the limit.

    It works in a thread, for Python sees Ctrl-C between its own instructions only.
    """
    outcome: list[Any] = []
    thread = threading.Thread(
        target=lambda: outcome.append(solver.solve(model, watcher)),
        daemon=True,
        name="placewright-cp-sat",
    )
    thread.start()
    try:
        while thread.is_alive():
            thread.join(min(LOOK_SECONDS, max(limit.left, 0.01)))
            look()
            if limit.left <= 0:
                solver.stop_search()
            if limit.left < -GRACE_SECONDS:
                return None
    except BaseException:
        solver.stop_search()
        look()
        raise
    look()
    if not outcome:
        raise PlacewrightError(
            "CP-SAT ended without an answer; report this with the problem's file"
        )
    return outcome[0]


def _watcher(variables: list[Any], solutions: bool) -> Any:
    from ortools.sat.python import cp_model

    class Watcher(cp_model.CpSolverSolutionCallback):
        """Keeps the newest solution and bound for who looks."""

        def __init__(self) -> None:
            super().__init__()
            self.solution: Floats | None = None
            self.bound: float | None = None

        def on_solution_callback(self) -> None:
            if solutions:
                self.solution = np.array([float(self.value(each)) for each in variables])

        def on_bound(self, bound: float) -> None:
            self.bound = bound

    return Watcher()


def _model(program: Program, limit: Budget) -> tuple[Any, list[Any]]:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    timed = _timed(program)
    variables = []
    for number, (low, high) in enumerate(zip(program.lower, program.upper, strict=True)):
        unit = UNITS if timed[number] else 1.0
        # A timed variable may stand higher than needed by what rounding its terms takes off.
        variables.append(
            model.new_int_var(math.floor(low * unit), math.ceil(high * unit), f"v{number}")
        )
    rows: list[list[tuple[int, float]]] = [[] for _ in range(program.row_count)]
    entries = zip(program.row_of, program.column_of, program.coefficient, strict=True)
    for row, column, coefficient in entries:
        rows[row].append((column, coefficient))
    wanted = enumerate(zip(rows, program.row_lower, program.row_upper, strict=True))
    for number, (terms, low, high) in wanted:
        if number % ROWS_BETWEEN_LOOKS == 0 and limit.left <= 0:
            raise OutOfTimeError
        _add_row(model, variables, timed, terms, low, high)
    model.minimize(variables[program.objective])
    return model, variables


def _timed(program: Program) -> list[bool]:
    """Which variables are times: the objective, and what is not declared whole nor a share."""
    shares = zip(program.integer, program.upper, strict=True)
    timed = [not whole and high > 1.0 for whole, high in shares]
    timed[program.objective] = True
    return timed


def _add_row(
    model: Any,
    variables: list[Any],
    timed: list[bool],
    terms: list[tuple[int, float]],
    low: float,
    high: float,
) -> None:
    """``low ≤ Σ coefficient · variable ≤ high``, scaled, each side let loose by rounding."""
    from ortools.sat.python import cp_model

    has_time = any(timed[column] for column, _ in terms)
    whole = all(coefficient == round(coefficient) for _, coefficient in terms)
    scale = UNITS if has_time else 1.0 if whole else float(SHARES)
    # A timed variable counts units itself: its coefficient needs no scale.
    scaled = [(c, a if timed[c] else a * scale) for c, a in terms]
    columns = [variables[c] for c, _ in terms]
    weighted = cp_model.LinearExpr.weighted_sum
    if high < np.inf:
        row = weighted(columns, [math.floor(a) for _, a in scaled])
        model.add(row <= math.ceil(high * scale))
    if low > -np.inf:
        row = weighted(columns, [math.ceil(a) for _, a in scaled])
        model.add(row >= math.floor(low * scale))
