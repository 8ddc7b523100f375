"""A mixed-integer program relaxed to whole numbers, and CP-SAT to solve it.

Every coefficient is rounded the way that lets more through, so that a bound on the relaxed
program is one on the program. For that all variables must be at least 0, and those that are not
declared whole must be able to be whole in some best solution (the objective aside, which is
counted in units of ``1 / UNITS``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from placewright.budget import Budget
from placewright.graph import Floats
from placewright.solvers.cp_sat import cp_solver, solve_model
from placewright.solvers.mathopt import (
    HORIZON,
    ROWS_BETWEEN_LOOKS,
    OutOfTimeError,
    Program,
)
from placewright.solvers.running import Answer

UNITS = 1_000_000 / HORIZON  # of the objective, per unit of the program's time
SHARES = 1_000_000  # in which shares, such as of a memory, are counted
LARGEST = 2**60  # that the terms of a row may add up to: CP-SAT counts in 64 bits


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
) -> Answer[Floats]:
    """Solve until the end of `limit`, which another thread may bring forward.

    `on_solution` is called with the best solution so far, `on_bound` with the best bound, now and
    then and by the calling thread. `effort`
    limits CP-SAT's deterministic time, and `repeatable` has its workers take turns: with both or
    one worker it finds the same again however fast the machine is. Without `relaxed` it solves no
    linear relaxations: the bound is weak and a small program solved far sooner. OutOfTimeError if
    time is up before the solver starts.

    After Ctrl-C what it had found by then was given to `on_solution` (see `running`).
    """
    if limit.left <= 0:
        raise OutOfTimeError
    model, variables = _model(program, limit)
    for variable, value in (hint or {}).items():
        model.add_hint(variables[variable], round(value))
    solver = cp_solver(workers=workers, seed=seed, effort=effort)
    solver.parameters.interleave_search = repeatable and workers > 1
    if not relaxed:
        solver.parameters.linearization_level = 0

    def read(found: Any) -> Floats:
        return np.array([float(found.value(each)) for each in variables])

    def tell(bound: float) -> None:
        if on_bound is not None:
            on_bound(bound / UNITS)

    answer = solve_model(solver, model, limit, read, on_solution, tell)
    return replace(answer, bound=answer.bound / UNITS)


def _model(program: Program, limit: Budget) -> tuple[Any, list[Any]]:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    timed = _timed(program)
    variables, highest = [], []
    for number, (low, high) in enumerate(zip(program.lower, program.upper, strict=True)):
        unit = UNITS if timed[number] else 1.0
        # A timed variable may stand higher than needed by what rounding its terms takes off.
        highest.append(math.ceil(high * unit))
        variables.append(model.new_int_var(math.floor(low * unit), highest[-1], f"v{number}"))
    rows: list[list[tuple[int, float]]] = [[] for _ in range(program.row_count)]
    entries = zip(program.row_of, program.column_of, program.coefficient, strict=True)
    for row, column, coefficient in entries:
        rows[row].append((column, coefficient))
    wanted = enumerate(zip(rows, program.row_lower, program.row_upper, strict=True))
    for number, (terms, low, high) in wanted:
        if number % ROWS_BETWEEN_LOOKS == 0 and limit.left <= 0:
            raise OutOfTimeError
        scaled, scale = _scaled(terms, timed)
        columns, tops = [variables[c] for c, _ in terms], [highest[c] for c, _ in terms]
        if high < np.inf:
            _add_row(model, columns, tops, [-a for a in scaled], -high * scale)
        if low > -np.inf:
            _add_row(model, columns, tops, scaled, low * scale)
    model.minimize(variables[program.objective])
    return model, variables


def _timed(program: Program) -> list[bool]:
    """Which variables are times: the objective, and what is not declared whole nor a share."""
    shares = zip(program.integer, program.upper, strict=True)
    timed = [not whole and high > 1.0 for whole, high in shares]
    timed[program.objective] = True
    return timed


def _scaled(terms: list[tuple[int, float]], timed: list[bool]) -> tuple[list[float], float]:
    """The coefficients of a row in whole units, and the scale of what its sum is compared with."""
    has_time = any(timed[column] for column, _ in terms)
    whole = all(coefficient == round(coefficient) for _, coefficient in terms)
    scale = UNITS if has_time else 1.0 if whole else float(SHARES)
    # A timed variable counts units itself: its coefficient needs no scale.
    return [a if timed[c] else a * scale for c, a in terms], scale


def _add_row(
    model: Any, columns: list[Any], highest: list[int], scaled: list[float], low: float
) -> None:
    """``Σ scaled · column ≥ low``, let loose by rounding; no column is above its highest.

    What takes off more than all others can make up for takes off just so much, and what adds more
    than is asked for adds that, where nothing takes off: the same solutions, of smaller numbers. A
    row whose sum may not fit 64 bits even so is left out.
    """
    from ortools.sat.python import cp_model

    if min(scaled, default=0.0) >= 0.0:
        scaled = [min(a, max(low, 0.0)) for a in scaled]
    least, rounded = math.floor(low), [math.ceil(a) for a in scaled]
    reached = sum(max(a, 0) * top for a, top in zip(rounded, highest, strict=True))
    rounded = [max(a, min(least - reached, 0) - 1) for a in rounded]
    if sum(abs(a) * top for a, top in zip(rounded, highest, strict=True)) <= LARGEST:
        model.add(cp_model.LinearExpr.weighted_sum(columns, rounded) >= least)
