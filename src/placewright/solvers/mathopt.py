"""A mixed-integer program as rows of numbers, and MathOpt to solve it.

Rows are kept in flat arrays rather than solver objects: a formulation here has hundreds of
thousands of terms.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np

from placewright.budget import Budget
from placewright.errors import OptionError, PlacewrightError
from placewright.graph import Floats
from placewright.solvers.running import Answer, run_aside

SOLVERS = ("highs", "scip", "gurobi")
THREADS = 2
# The search may stop when value and bound are this close, relatively; `safe_bound` counts it.
RELATIVE_GAP = 1e-6
# Of the horizon. Solvers accept rows violated by 1e-6 and reduced costs off by 1e-7 where the
# horizon is HORIZON = 1000: what they add up to over a handful of rows is well below this.
BOUND_TOLERANCE = 1e-6
HORIZON = 1000.0
LOOSE = 1e-7  # of the horizon, which is that much above the incumbent: rounding keeps it
SOLVER_ROUNDING = 1e-6  # of a share: what a solver gives for a whole may be less by that
HINT_ROUNDING = 1e-9  # of scaled times: what ends as another thing begins comes before it
# Solvers look at the clock now and then only, and hand over what they have after that: they are
# told of less time than there is, and left behind when they are late nonetheless.
MARGIN, MOST_MARGIN = 0.15, 0.8  # of the time; seconds
LONGEST_SECONDS = 1e7  # a time limit MathOpt can write down
HIGHS_TOLERANCES = (1e-6, 1e-8, 1e-9)

ROWS_BETWEEN_LOOKS = 1000  # at the clock

Term = tuple[int, float]


class OutOfTimeError(Exception):
    """The time limit passed before the program was complete."""


class Program:
    """Minimise one variable under rows ``lower ≤ Σ coefficient · variable ≤ upper``.

    >>> program = Program()
    >>> x = program.variable(0.0, 1.0, integer=True)
    >>> y = program.variable(0.0, 10.0)
    >>> program.row([(y, 1.0), (x, 3.0)], lower=2.0)
    >>> program.variable_count, program.row_count
    (2, 1)

    A program that is still being written when its time limit has passed raises OutOfTimeError.
    """

    def __init__(self, limit: Budget | None = None) -> None:
        self.limit = limit or Budget()
        self.lower, self.upper = array("d"), array("d")
        self.integer = array("b")
        self.row_lower, self.row_upper = array("d"), array("d")
        self.row_of, self.column_of, self.coefficient = array("q"), array("q"), array("d")
        self.objective = -1

    @property
    def variable_count(self) -> int:
        return len(self.lower)

    @property
    def row_count(self) -> int:
        return len(self.row_lower)

    def variable(self, lower: float, upper: float, *, integer: bool = False) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.lower) - 1

    def binary(self) -> int:
        return self.variable(0.0, 1.0, integer=True)

    def row(self, terms: Iterable[Term], lower: float = -np.inf, upper: float = np.inf) -> None:
        """Add a row; coefficients of a variable named twice add up."""
        total: dict[int, float] = {}
        for column, coefficient in terms:
            total[column] = total.get(column, 0.0) + coefficient
        number = len(self.row_lower)
        if number % ROWS_BETWEEN_LOOKS == 0 and self.limit.left <= 0:
            raise OutOfTimeError
        for column in sorted(total):  # MathOpt wants its matrix in order
            if total[column] != 0.0:
                self.row_of.append(number)
                self.column_of.append(column)
                self.coefficient.append(total[column])
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def minimise(self, variable: int) -> None:
        self.objective = variable

    def has_empty_range(self) -> bool:
        """Whether a variable has no value, or a row no sum, between its bounds.

        As where the least value known is above the largest allowed. To solvers that is bad input.
        """
        lower, upper = np.array(self.lower + self.row_lower), np.array(self.upper + self.row_upper)
        return bool((lower > upper).any())


MilpAnswer = Answer[Floats]
"""The values of all variables; the bound is raw, see `safe_bound`."""

NOTHING: MilpAnswer = Answer(None, 0.0)
NO_SOLUTION: MilpAnswer = Answer(None, 0.0, complete=True)


def safe_bound(answer: MilpAnswer) -> float:
    """The dual bound, lowered by what the solver's tolerances may have added to it."""
    if answer.infeasible or not np.isfinite(answer.bound):
        return 0.0
    return max(0.0, answer.bound * (1 - RELATIVE_GAP) - HORIZON * BOUND_TOLERANCE)


def solve_program(
    program: Program,
    solver: str,
    seconds: float,
    hint: Floats | None = None,
    nodes: int | None = None,
    seed: int = 0,
    gap: float = RELATIVE_GAP,
    found: Callable[[Floats], None] = lambda values: None,
) -> MilpAnswer:
    """Solve for at most so many seconds; Ctrl-C as in `running`.

    With a relative `gap` of more than `RELATIVE_GAP` only the values of the answer are of use.

    HiGHS and SCIP cannot be interrupted through MathOpt: after Ctrl-C they are left behind, to end
    at their time limit, and what they had is lost. Gurobi hands it over, to `found`. A solver that
    is late, such as HiGHS in its presolve of a large program, is left behind too.
    """
    if seconds <= 0:
        return NOTHING
    if program.has_empty_range():
        return NO_SOLUTION
    from ortools.util.python.solve_interrupter import SolveInterrupter

    limit = Budget(seconds)
    interrupter = SolveInterrupter()
    answers: list[MilpAnswer] = []

    def work() -> MilpAnswer:
        answers.append(_solve(program, solver, limit, hint, nodes, seed, gap, interrupter))
        return answers[0]

    stop = interrupter.interrupt if solver == "gurobi" else None
    try:
        return run_aside(solver, work, limit, stop) or NOTHING
    except KeyboardInterrupt:
        if answers and answers[0].values is not None:
            found(answers[0].values)
        raise
    except PlacewrightError:
        raise
    except Exception as error:
        raise _failure(solver, error) from error


def _solve(
    program: Program,
    solver: str,
    limit: Budget,
    hint: Floats | None,
    nodes: int | None,
    seed: int,
    gap: float,
    interrupter: Any,
) -> MilpAnswer:
    from ortools.math_opt.python import mathopt

    model = mathopt.Model.from_model_proto(_proto(program))
    extras = mathopt.ModelSolveParameters()
    if hint is not None:
        values = dict(zip(model.variables(), hint.tolist(), strict=True))
        extras.solution_hints.append(mathopt.SolutionHint(variable_values=values))
    if limit.left <= 0:
        return NOTHING
    parameters = mathopt.SolveParameters(
        time_limit=time_limit(limit),
        relative_gap_tolerance=gap,
        absolute_gap_tolerance=0.0,
        random_seed=seed,
        node_limit=nodes,
    )
    if solver == "highs":
        return _highs(model, parameters, extras, limit)
    kind = mathopt.SolverType.GSCIP if solver == "scip" else mathopt.SolverType.GUROBI
    if solver == "gurobi":
        parameters.threads = THREADS
    else:
        interrupter = None  # MathOpt's SCIP complains of it and goes on
    result = run_solver(
        model, kind, params=parameters, model_params=extras, interrupter=interrupter
    )
    return _answer(result, mathopt)


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The optimum of a linear relaxation: its value, ``values[variable]``, and ``dual[row]``."""

    value: float
    values: Floats
    dual: Floats


def relaxed(program: Program, limit: Budget) -> Relaxation | None:
    """The linear relaxation solved; None if there is no optimum, or time is up."""
    from ortools.math_opt.python import mathopt

    if limit.left <= 0:
        return None
    proto = _proto(program)
    proto.variables.integers[:] = [False] * program.variable_count
    result = linear_optimum(mathopt.Model.from_model_proto(proto), limit)
    if result is None:
        return None
    values, dual = result.variable_values(), result.dual_values()
    return Relaxation(float(result.objective_value()), _by_number(values), _by_number(dual))


def linear_optimum(model: Any, limit: Budget) -> Any | None:
    """MathOpt's result of GLOP for a linear program; None if there is no optimum, or time is up."""
    from ortools.math_opt.python import mathopt

    parameters = mathopt.SolveParameters(time_limit=time_limit(limit))
    try:
        result = run_solver(model, mathopt.SolverType.GLOP, params=parameters)
    except RuntimeError:
        return None
    is_optimal = result.termination.reason == mathopt.TerminationReason.OPTIMAL
    return result if is_optimal else None


def _by_number(values: Any) -> Floats:
    """What MathOpt gives by variable or row, in the order of their numbers."""
    return np.array([values[each] for each in sorted(values, key=lambda each: each.id)])


def run_solver(model: Any, kind: Any, **arguments: Any) -> Any:
    """`mathopt.solve`; RuntimeError with the solver's own words where it fails.

    What MathOpt raises differs from version to version. That of OR-Tools 9.15 fails as it makes an
    exception of the solver's status, for an attribute that a status does not have; the status is
    what that failure came from.
    """
    from ortools.math_opt.python import mathopt

    try:
        return mathopt.solve(model, kind, **arguments)
    except Exception as error:
        told = error.__context__ if isinstance(error, AttributeError) else None
        raise RuntimeError(str(told or error)) from error


def _highs(model: Any, parameters: Any, extras: Any, limit: Budget) -> MilpAnswer:
    """HiGHS, again with tighter tolerances where it fails.

    HiGHS 1.12 throws a solution away, with the status "solve error", if after presolve is undone
    a row is off by a rounding error more than its tolerance (its issues 2782 and 2808). Another
    tolerance leads to another solution.
    """
    from ortools.math_opt.python import mathopt

    if _two_threads():
        parameters.highs.int_options["threads"] = THREADS
    for tolerance in HIGHS_TOLERANCES:
        if limit.left <= 0:
            return NOTHING
        parameters.time_limit = time_limit(limit)
        parameters.highs.double_options["mip_feasibility_tolerance"] = tolerance
        try:
            result = run_solver(
                model, mathopt.SolverType.HIGHS, params=parameters, model_params=extras
            )
        except RuntimeError as error:
            failure = error
        else:
            return _answer(result, mathopt)
    raise failure


def time_limit(limit: Budget) -> timedelta:
    """For MathOpt: a little less than what is left."""
    left = max(limit.left, 0.0)
    return timedelta(seconds=min(left - min(MARGIN * left, MOST_MARGIN), LONGEST_SECONDS))


@cache
def _two_threads() -> bool:
    """Whether HiGHS can be asked for its number of threads.

    It has one pool of threads a process. Whoever uses HiGHS first decides its size, and asking
    for another later is an error; then the pool is used as it is.
    """
    from ortools.math_opt.python import mathopt

    model = mathopt.Model()
    model.minimize(model.add_variable(lb=0.0))
    parameters = mathopt.SolveParameters()
    parameters.highs.int_options["threads"] = THREADS
    try:
        run_solver(model, mathopt.SolverType.HIGHS, params=parameters)
    except RuntimeError:
        return False
    return True


def _answer(result: Any, mathopt: Any) -> MilpAnswer:
    reason = result.termination.reason
    infeasible = reason in (
        mathopt.TerminationReason.INFEASIBLE,
        mathopt.TerminationReason.INFEASIBLE_OR_UNBOUNDED,  # the objective is bounded
    )
    values = None
    if result.has_primal_feasible_solution():
        values = _by_number(result.variable_values())
    optimal = values is not None and reason == mathopt.TerminationReason.OPTIMAL
    bound = float(result.termination.objective_bounds.dual_bound)
    return Answer(values, bound, complete=optimal or infeasible)


def _proto(program: Program) -> Any:
    from ortools.math_opt import model_pb2

    proto = model_pb2.ModelProto()
    variables = proto.variables
    variables.ids.extend(range(program.variable_count))
    variables.lower_bounds.extend(program.lower)
    variables.upper_bounds.extend(program.upper)
    variables.integers.extend(bool(flag) for flag in program.integer)
    proto.objective.linear_coefficients.ids.append(program.objective)
    proto.objective.linear_coefficients.values.append(1.0)
    rows = proto.linear_constraints
    rows.ids.extend(range(program.row_count))
    rows.lower_bounds.extend(program.row_lower)
    rows.upper_bounds.extend(program.row_upper)
    matrix = proto.linear_constraint_matrix
    matrix.row_ids.extend(program.row_of)
    matrix.column_ids.extend(program.column_of)
    matrix.coefficients.extend(program.coefficient)
    return proto


def _failure(solver: str, error: Exception) -> PlacewrightError:
    if solver == "gurobi":
        return OptionError(
            f"solver 'gurobi' did not start ({error}): install Gurobi with a licence, "
            "or use solver=highs"
        )
    return PlacewrightError(f"solver '{solver}' failed: {error}; try another solver")
