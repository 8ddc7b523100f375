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

from placewright.graph import Floats
from placewright.planners.milp.solver import HORIZON, Answer, Program

UNITS = 1_000_000 / HORIZON  # of the objective, per unit of the program's time
SHARES = 1_000_000  # in which shares, such as of a memory, are counted
NOTHING = Answer(None, 0.0)


def solve_whole(
    program: Program,
    seconds: float,
    hint: Mapping[int, float] | None = None,
    *,
    workers: int = 2,
    seed: int = 0,
    on_solution: Callable[[Floats], None] | None = None,
) -> Answer:
    """Solve for at most so many seconds. `on_solution` is called with each better solution.

    KeyboardInterrupt stops the solver and is raised again; what it had found by then was given
    to `on_solution`.
    """
    if seconds <= 0:
        return NOTHING
    from ortools.sat.python import cp_model

    model, variables = _model(program)
    for variable, value in (hint or {}).items():
        model.add_hint(variables[variable], round(value))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.catch_sigint_signal = False  # else Ctrl-C kills the process from then on
    watcher = _watcher(variables, on_solution)
    outcome: list[Any] = []

    def work() -> None:
        outcome.append(solver.solve(model, watcher))

    thread = threading.Thread(target=work, daemon=True, name="placewright-cp-sat")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
    except KeyboardInterrupt:
        watcher.stop()
        raise
    status = outcome[0]
    if status == cp_model.INFEASIBLE:
        return Answer(None, 0.0, infeasible=True)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(None, solver.best_objective_bound / UNITS)
    values = np.array([float(solver.value(each)) for each in variables])
    return Answer(values, solver.best_objective_bound / UNITS)


def _watcher(variables: list[Any], on_solution: Callable[[Floats], None] | None) -> Any:
    from ortools.sat.python import cp_model

    class Watcher(cp_model.CpSolverSolutionCallback):
        """Hands solutions on; stops the search when it is told to, at the next solution."""

        def __init__(self) -> None:
            super().__init__()
            self.stopped = False

        def stop(self) -> None:
            self.stopped = True
            self.stop_search()

        def on_solution_callback(self) -> None:
            if on_solution is not None:
                on_solution(np.array([float(self.value(each)) for each in variables]))

    return Watcher()


def _model(program: Program) -> tuple[Any, list[Any]]:
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
    for terms, low, high in zip(rows, program.row_lower, program.row_upper, strict=True):
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
