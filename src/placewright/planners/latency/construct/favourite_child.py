"""m-SCT: earliest start with favourite children, which a linear program chooses.

The program (Hanen & Munier 1995, "An approximation algorithm for scheduling dependent tasks
on m processors with small communication delays"; used by Baechi, Jeon et al., SoCC 2020), on
pairs (i, j) of a producer and one of its consumers, with times p and transfer times c:

    minimise w                                    makespan on devices without number
    t_j ≥ t_i + p_i + c_ij x_ij                   x_ij = 0: no transfer is paid from i to j
    w ≥ t_i + p_i
    Σ_j x_ij ≥ |consumers of i| − 1               at most one favourite child,
    Σ_i x_ij ≥ |producers of j| − 1               of at most one parent
    0 ≤ x_ij ≤ 1,  t_i ≥ 0

Child j is the favourite of i where x_ij < 1/2; the two sums leave room for one at most. Here the
program is written in ``saved`` = 1 − x. Devices are taken to be equal, as in Baechi: times are
means over devices and links. Placing uses each device's own.

How it is solved (``-O lp=``): ``glop`` and ``highs`` solve it exactly, after ops that no
relabelling can tell apart are merged (`Symmetry`: the 32 heads of a layer are one). ``descent``
takes a fixed number of linear-time steps (`kernels.latency.favourite_child.favourite_descent`) and
ends above the optimum: by 0.01% on models of 50,000 ops that all differ, by 2% on random graphs.
``auto``, the default, takes ``glop`` up to 5000 merged pairs and ``descent`` above, where simplex
needs minutes. PDLP was tried and is not offered: long chains keep it from converging.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from placewright.analysis.orders import by_mean_rank, mean_edge_time, mean_op_time
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import Flags, Floats, Ints, Wide, frozen
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.favourite_child import favourite_child_placement, favourite_descent
from placewright.kernels.latency.getf import sweep_colours
from placewright.kernels.latency.units import units_of
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, Proposal, no_room
from placewright.problem import Problem
from placewright.solvers.mathopt import SOLVER_ROUNDING, run_solver
from placewright.units import parse_whole

METHODS = ("auto", "glop", "highs", "descent")
LARGEST_EXACT = 5000  # merged pairs that `auto` leaves to simplex
ITERATIONS = 300
Words = NDArray[np.uint64]


class MSct(LatencyPlanner):
    """Small Communication Times scheduling under memory limits (Baechi's m-SCT).

    As m-ETF, of all ready ops and devices with room the pair that can start first; ties go to
    the larger upward rank. But a device whose last op has a favourite child stays *awake* for
    it while that child has its inputs and can start there earlier than anywhere else: until then
    it takes no other op, unless that is urgent (its inputs are on every device that supports
    it). Start times count transfers but not contention; the final schedule counts both.
    """

    name: ClassVar[str] = "m-sct"

    def __init__(self, *, lp: str = "auto", threshold: str = "0.5", iterations: str = "") -> None:
        self.lp, self.iterations = lp_options(lp, iterations)
        self.threshold = number("threshold", threshold, above=0.0, most=0.5)
        self._known: tuple[bytes, Ints] | None = None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        on_progress("choosing favourite children", 0.0)
        favourite = self._favourites(problem)
        on_progress("placing", 0.9)
        order = by_mean_rank(problem)
        priority = np.empty(problem.op_count, dtype=np.int32)
        priority[order] = np.arange(problem.op_count)
        units = units_of(problem, problem.unit_pinned)
        failed = favourite_child_placement(arrays_of(problem), priority, favourite, units)
        if failed >= 0:
            raise no_room(problem, int(problem.op_unit[failed]), units.free, self.name)
        return Proposal(Placement(units.device[problem.op_unit]))

    def _favourites(self, problem: Problem) -> Ints:
        """Kept from call to call: asked again, with more units pinned, it need not be solved."""
        key = _fingerprint(problem)
        if self._known is None or self._known[0] != key:
            found, _ = favourite_children(problem, self.lp, self.threshold, self.iterations)
            self._known = key, found
        return self._known[1]


def favourite_children(
    problem: Problem, lp: str = "auto", threshold: float = 0.5, iterations: int = ITERATIONS
) -> tuple[Ints, float]:
    """`[op]` its favourite child or -1, and the program's makespan in seconds.

    The makespan is the optimum up to the solver's tolerance, or with ``descent`` a little above.
    It bounds nothing on real devices: times are means.
    """
    pairs = OpPairs.of(problem, _pair_seconds(problem))
    saved, makespan = _solve(pairs, mean_op_time(problem), lp, iterations)
    chosen = (pairs.seconds > 0) & (saved > 1.0 - threshold + SOLVER_ROUNDING)
    favourite = np.full(problem.op_count, -1, dtype=np.int32)
    favourite[pairs.producer[chosen]] = pairs.consumer[chosen]
    return favourite, makespan


def _pair_seconds(problem: Problem) -> Floats:
    """`[edge]` mean transfer time; none inside a unit, whose ops are always together."""
    together = problem.op_unit[problem.edge_producer] == problem.op_unit[problem.consumers]
    return np.where(together, 0.0, mean_edge_time(problem))


def _solve(pairs: OpPairs, op_time: Floats, lp: str, iterations: int) -> tuple[Floats, float]:
    if lp != "descent":
        merged = Symmetry.of(pairs, _words(op_time))
        if lp != "auto" or len(merged.producer) <= LARGEST_EXACT:
            return _solve_exactly(pairs, op_time, merged, "glop" if lp == "auto" else lp)
    scale = float(op_time.mean()) or float(pairs.seconds.sum() / max(len(pairs.seconds), 1)) or 1.0
    saved, makespan = favourite_descent(
        pairs.order,
        pairs.in_offsets,
        pairs.producer,
        pairs.consumer,
        pairs.is_last,
        op_time,
        pairs.seconds,
        scale,
        iterations,
    )
    return saved, float(makespan)


def _solve_exactly(
    pairs: OpPairs, op_time: Floats, merged: Symmetry, solver: str
) -> tuple[Floats, float]:
    """The program with a variable per class; columns: saved[pair], start[op], makespan."""
    a, b, count = merged.producer, merged.consumer, len(merged.producer)
    ops = len(merged.first)
    weight, seconds = op_time[merged.first], pairs.seconds[merged.first_pair]
    scale = float(max(weight.max(), seconds.max(initial=0.0))) or 1.0
    weight, seconds = weight / scale, seconds / scale
    start, makespan = count, count + ops
    cost = np.zeros(makespan + 1)
    cost[makespan] = 1.0
    upper = np.full(makespan + 1, np.inf)
    upper[:count] = np.where(seconds > 0, 1.0, 0.0)
    program = LinearProgram(upper, cost)
    rows = np.arange(count)
    program.add(
        weight[a] + seconds, np.inf, (rows, start + b, 1.0), (rows, start + a, -1.0),
        (rows, rows, seconds),
    )  # fmt: skip
    last = np.flatnonzero(pairs.is_last[merged.first])
    rows = np.arange(len(last))
    program.add(weight[last], np.inf, (rows, makespan, 1.0), (rows, start + last, -1.0))
    # A class pair stands for `pair_size` pairs, spread evenly over the ops at either end.
    for end in (a, b):
        program.add(
            np.full(ops, -np.inf), 1.0, (end, np.arange(count), merged.pair_size / merged.size[end])
        )
    values, _ = program.solve(solver)
    return values[:count][merged.pair_class], float(values[makespan]) * scale


def _fingerprint(problem: Problem) -> bytes:
    """What the program depends on, as a digest."""
    digest = hashlib.blake2b()
    for array in (
        problem.op_time, problem.tensor_bytes, problem.tensor_producer, problem.colocation,
        problem.consumer_offsets, problem.consumers, problem.link_latency,
        problem.link_seconds_per_byte,
    ):  # fmt: skip
        digest.update(repr(array.shape).encode())
        digest.update(array.tobytes())
    return digest.digest()


# -- shared with GETF ----------------------------------------------------------------------------


def lp_options(lp: str, iterations: str) -> tuple[str, int]:
    """The options `lp` and `iterations` checked; OptionError."""
    if lp not in METHODS:
        raise OptionError(f"option lp is '{lp}'; choose {', '.join(METHODS)}")
    if not iterations:
        return lp, ITERATIONS
    number = parse_whole(iterations)
    if not number:
        raise OptionError(f"option iterations is '{iterations}'; give a whole number from 1")
    return lp, number


def number(name: str, text: str, above: float, most: float = inf) -> float:
    """A number from a planner option; OptionError."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not above < value <= most:
        limit = f" and at most {most:g}" if most < inf else ""
        raise OptionError(f"option {name} is '{text}'; give a number above {above:g}{limit}")
    return value


@dataclass(frozen=True, eq=False)
class OpPairs:
    """Pairs of a producer and one of its consumers, each once, sorted by consumer.

    `seconds[pair]` is the largest of the weights of its edges.
    """

    order: Ints
    producer: Ints
    consumer: Ints
    seconds: Floats

    @classmethod
    def of(cls, problem: Problem, edge_seconds: Floats) -> OpPairs:
        key = problem.consumers.astype(np.int64) * problem.op_count + problem.edge_producer
        known, pair = np.unique(key, return_inverse=True)
        seconds = np.zeros(len(known))
        np.maximum.at(seconds, pair, edge_seconds)
        consumer, producer = np.divmod(known, problem.op_count)
        ends = frozen(producer, np.int32), frozen(consumer, np.int32)
        return cls(problem.topological_order, *ends, seconds)

    @cached_property
    def in_offsets(self) -> Wide:
        """`[op]` where its pairs with producers begin."""
        return np.searchsorted(self.consumer, np.arange(len(self.order) + 1))

    @cached_property
    def is_last(self) -> Flags:
        """`[op]` whether nobody reads what it produces."""
        last = np.ones(len(self.order), dtype=np.bool_)
        last[self.producer] = False
        return last


@dataclass(frozen=True, eq=False)
class Symmetry:
    """Ops merged into classes that a linear program over the graph cannot tell apart.

    The classes are the coarsest equitable partition (colour refinement) that keeps the given
    colours apart: any op of a class has as many producers and consumers in each other class, by
    the same pair weight, as the others of its class. The mean of a feasible point over the
    classes is feasible and as good (Grohe et al., "Dimension reduction via colour refinement",
    ESA 2014), so one variable per class loses nothing.

    `op_class[op]`, `first[class]` one of its ops, `size[class]`; and the same for pairs, where
    `producer` and `consumer` are classes.
    """

    op_class: Ints
    first: Ints
    size: Ints
    producer: Ints
    consumer: Ints
    pair_class: Ints
    first_pair: Ints
    pair_size: Ints

    @classmethod
    def of(cls, pairs: OpPairs, colour: Words, op_unit: Ints | None = None) -> Symmetry:
        """`colour[op]` 64-bit words; with `op_unit`, ops of like units only are alike."""
        colour = _refined(pairs, colour, op_unit)
        _, first, op_class = np.unique(colour, return_index=True, return_inverse=True)
        classes = len(first)
        weight = np.unique(pairs.seconds, return_inverse=True)[1]
        ends = op_class[pairs.producer].astype(np.int64) * classes + op_class[pairs.consumer]
        _, first_pair, pair_class, pair_size = np.unique(
            ends * (weight.max(initial=0) + 1) + weight,
            return_index=True, return_inverse=True, return_counts=True,
        )  # fmt: skip
        producer, consumer = op_class[pairs.producer], op_class[pairs.consumer]
        columns = (
            op_class, first, np.bincount(op_class), producer[first_pair], consumer[first_pair],
            pair_class, first_pair, pair_size,
        )  # fmt: skip
        return cls(*(frozen(column, np.int32) for column in columns))


def _refined(pairs: OpPairs, colour: Words, op_unit: Ints | None) -> Words:
    """Sweep along the graph and against it until no class splits any more."""
    keys = _words(pairs.seconds)
    out = np.argsort(pairs.producer, kind="stable")
    out_offsets = np.searchsorted(pairs.producer[out], np.arange(len(pairs.order) + 1))
    sweeps = (
        (pairs.order, pairs.in_offsets, pairs.producer, keys, np.uint64(1)),
        (pairs.order[::-1].copy(), out_offsets, pairs.consumer[out], keys[out], np.uint64(2)),
    )
    known = 0
    while len(np.unique(colour)) > known:
        known = len(np.unique(colour))
        for order, offsets, others, key, salt in sweeps:
            colour = sweep_colours(order, offsets, others, key, colour, salt)
        if op_unit is not None:
            together = np.zeros(int(op_unit.max()) + 1, dtype=np.uint64)
            np.add.at(together, op_unit, colour)
            colour = colour ^ (together[op_unit] * np.uint64(0x9E3779B97F4A7C15))
    return colour


def _words(values: Floats) -> Words:
    return np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)


class LinearProgram:
    """Minimise cost · v over 0 ≤ v ≤ upper and rows of linear constraints; solved by MathOpt.

    The model is written as arrays: term by term, Python would take longer than the solver.
    `infeasible` is what to say where there is no solution.
    """

    def __init__(self, upper: Floats, cost: Floats, infeasible: str = "no solution") -> None:
        self.upper = upper
        self.cost = cost
        self.infeasible = infeasible
        self.row_count = 0
        self._bounds: list[tuple[Floats, Floats]] = []
        self._terms: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []

    def add(self, lower: Any, upper: Any, *terms: tuple[Any, Any, Any]) -> Wide:
        """Add rows with these bounds; terms are (row among these, column, coefficient)."""
        low, high = np.broadcast_arrays(np.atleast_1d(lower), np.atleast_1d(upper))
        for term in terms:
            row, column, value = np.broadcast_arrays(*term)
            self._terms.append((row.ravel() + self.row_count, column.ravel(), value.ravel()))
        self._bounds.append((low.astype(np.float64), high.astype(np.float64)))
        self.row_count += len(low)
        return np.arange(self.row_count - len(low), self.row_count)

    def solve(self, solver: str) -> tuple[Floats, Floats]:
        """(value[column], dual[row]) of an optimum; InfeasibleError if the solver finds none."""
        from ortools.math_opt.python import mathopt  # slow to import

        kind = {"glop": mathopt.SolverType.GLOP, "highs": mathopt.SolverType.HIGHS}[solver]
        try:
            result = run_solver(mathopt.Model.from_model_proto(self._model()), kind)
            reason = result.termination.reason
        except RuntimeError as error:
            message = f"solver {solver} failed ({error}); choose -O lp=descent"
            raise InfeasibleError(message) from None
        if reason.name.startswith("INFEASIBLE"):  # or unbounded, which ours cannot be
            raise InfeasibleError(self.infeasible)
        if reason != mathopt.TerminationReason.OPTIMAL:
            raise InfeasibleError(
                f"solver {solver} ended as {reason.name.lower()}; choose -O lp=descent"
            )
        values, duals = np.zeros(len(self.cost)), np.zeros(self.row_count)
        for variable, value in result.variable_values().items():
            values[variable.id] = value
        for row, value in result.dual_values().items():
            duals[row.id] = value
        return values, duals

    def _model(self) -> Any:
        from ortools.math_opt import model_pb2

        model = model_pb2.ModelProto()
        columns = len(self.cost)
        model.variables.ids.extend(range(columns))
        model.variables.lower_bounds.extend([0.0] * columns)
        model.variables.upper_bounds.extend(self.upper.tolist())
        model.variables.integers.extend([False] * columns)
        priced = np.flatnonzero(self.cost)
        model.objective.linear_coefficients.ids.extend(priced.tolist())
        model.objective.linear_coefficients.values.extend(self.cost[priced].tolist())
        rows = model.linear_constraints
        rows.ids.extend(range(self.row_count))
        rows.lower_bounds.extend(np.concatenate([low for low, _ in self._bounds]).tolist())
        rows.upper_bounds.extend(np.concatenate([high for _, high in self._bounds]).tolist())
        row, column, value = (np.concatenate(part) for part in zip(*self._terms, strict=True))
        used = np.flatnonzero(value)
        used = used[np.lexsort((column[used], row[used]))]
        matrix = model.linear_constraint_matrix
        matrix.row_ids.extend(row[used].tolist())
        matrix.column_ids.extend(column[used].tolist())
        matrix.coefficients.extend(value[used].astype(np.float64).tolist())
        return model
