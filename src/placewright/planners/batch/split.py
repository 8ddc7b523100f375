"""MILP-SPLIT for a batch of inputs: the planner `milp-split` (DiviML §IV-B, §V-C)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import ClassVar

import numpy as np

from placewright.analysis.modules import Modules, asked_channels, ever_smaller
from placewright.analysis.symmetry import Symmetry, check_use, equal_hosts
from placewright.bounds.bound import Bound
from placewright.budget import Budget, Progress, Reporter, no_progress
from placewright.errors import InfeasibleError, OptionError
from placewright.formulations.batch.cp_model import CP_SAT, BatchModel
from placewright.formulations.batch.diviml_program import BatchProgram, placement_of
from placewright.formulations.batch.instance import (
    BatchIncumbent,
    chunk_devices,
    chunk_size,
    timed_batches,
)
from placewright.graph import Flags, Ints
from placewright.plan import Placement
from placewright.planners.base import Proposal, count_option, positive_number
from placewright.planners.batch.diviml import better, refused
from placewright.planners.batch.module_bound import by_cp_sat, module_bound
from placewright.planners.batch.neighbourhood import Neighbourhood
from placewright.planners.batch.starts import HEURISTICS, SEARCH, first_plans, in_chunks
from placewright.planners.exact import DEFAULT_SECONDS, crowded, solver_option
from placewright.planners.latency.exact.one_node import repeated_on_hosts
from placewright.problem import Problem
from placewright.solvers.mathopt import SOLVERS, OutOfTimeError, solve_program

SOLVABLE_OPS = 16
"""A neighbourhood of so many units is searched well within seconds."""

MODULE_SECONDS = 3.0
DETERMINISTIC_SECONDS = 0.3  # of CP-SAT's own time, for one neighbourhood
START_SHARE = 0.25  # of the time, for annealing
BOUND_SHARE = 0.1  # of the time
HOST_SHARE = 0.3  # of the time, where hosts are equal
PIECES = 3  # that differ: the first, the last, and what is between
MOST_DEVICES = 8  # that the units of a neighbourhood may go to, besides those where they are
LEAST_UNITS, MOST_UNITS = 4, 60


class BatchSplit:
    """Modules one after another, each given the rest of the plan; then again and elsewhere.

    The start is the best plan of the simple rules, of `annealing` with a quarter of the time, and,
    where hosts are equal, of one host repeated (`one_node`); or the budget's start. From there on
    the units of one module at a time get new devices and all batches new times, what is before and
    after being known (`neighbourhood`). When every module had its turn, neighbourhoods of units
    that run at about the same time follow, larger while they are solved to the end and smaller
    while they are not, until time is up. A batch of a later module may run before one of an
    earlier module, so no dynamic program over the boundaries is exact here.

    Options: `channels`, 1 to 4, or ``auto``: the fewest that make modules of at most
    `SOLVABLE_OPS` ops; `solver` of a module: cp-sat, which knows devices that run one batch at a
    time, or highs, scip, gurobi with DiviML's program; `module_seconds` for one module or
    neighbourhood; `symmetry` as of `diviml-milp`; `iterations`, a number of neighbourhoods, each
    limited by CP-SAT's deterministic clock, so that runs repeat. The time limit is the budget's,
    and `DEFAULT_SECONDS` if that has none.
    """

    name: ClassVar[str] = "milp-split"
    objective: ClassVar[str] = "batch-throughput"

    def __init__(
        self,
        channels: str = "auto",
        solver: str = CP_SAT,
        module_seconds: str = "",
        symmetry: str = "none",
        iterations: str = "",
    ) -> None:
        self.channels = asked_channels(self.name, channels)
        self.solver = solver_option(self.name, solver, (*SOLVERS, CP_SAT))
        seconds = module_seconds or MODULE_SECONDS
        self.module_seconds = positive_number(self.name, "module_seconds", seconds)
        self.use = check_use(self.name, symmetry)
        self.iterations = count_option(self.name, "iterations", iterations)

    def supports(self, problem: Problem) -> str | None:
        return refused(problem)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        limit = budget.or_at_most(DEFAULT_SECONDS)
        on_progress(f"{self.name}: a first plan", 0.0)
        plans = self._first(problem, limit, seed)
        known = plans[0].value if limit.start is not None else math.inf
        reporter = Reporter(limit, known)
        if plans:
            reporter.tell(plans[0].value, lambda: plans[0].placement)
        start = next((each for each in plans if in_chunks(problem, each)), None)
        if start is None:
            if plans:
                return Proposal(plans[0].placement)
            raise InfeasibleError(
                f"planner '{self.name}' found no plan to start from; give the devices more memory, "
                "coarsen the graph or take another planner"
            )
        if start.value == 0.0:  # cannot be improved, nor scaled
            return Proposal(start.placement)
        most = limit.part(limit.left * (1 - BOUND_SHARE))
        search = _Search(problem, self, start, most, seed, reporter)
        bound = Bound(0.0, "")
        with suppress(KeyboardInterrupt):
            search.run(on_progress)
            bound = self._bound(problem, limit)
            if bound.value > 0.0:
                limit.listener.proved(bound.value, bound.source)
        best = min([*plans, search.best], key=lambda each: each.value)
        return Proposal(best.placement, min(bound.value, best.value), bound.source)

    def _first(self, problem: Problem, limit: Budget, seed: int) -> list[BatchIncumbent]:
        """The start if there is one, else also what a search and one host repeated find."""
        if limit.start is not None:
            return first_plans(problem, seed, limit)
        names = HEURISTICS if self.iterations else (*HEURISTICS, SEARCH)
        plans = first_plans(problem, seed, limit.part(limit.left * START_SHARE), names)
        repeated = self._repeated(problem, Budget(limit.left * HOST_SHARE), seed)
        return sorted([*plans, *repeated], key=lambda each: each.value)

    def _repeated(self, problem: Problem, limit: Budget, seed: int) -> list[BatchIncumbent]:
        """Where hosts are equal, also the plan of one repeated on all."""
        if not equal_hosts(problem):
            return []

        def plan_part(part: Problem) -> Placement:
            budget = Budget(limit.left / PIECES)
            return self.plan(part, budget, seed, no_progress).placement

        try:
            return [timed_batches(problem, repeated_on_hosts(problem, plan_part))]
        except (InfeasibleError, OptionError):
            return []

    def _bound(self, problem: Problem, limit: Budget) -> Bound:
        modules = self.modules(problem)
        if self.iterations:  # nothing that the clock decides
            return module_bound(modules)
        if limit.left <= 0:
            return Bound(0.0, "")
        return module_bound(modules, by_cp_sat(limit, self.module_seconds), limit)

    def modules(self, problem: Problem) -> Modules:
        """The modules that have their turn one after another."""
        return list(ever_smaller(problem, self.channels, lambda _: SOLVABLE_OPS, SOLVABLE_OPS))[-1]


class _Search:
    """One run: the best plan so far, and how large neighbourhoods are now."""

    def __init__(
        self,
        problem: Problem,
        planner: BatchSplit,
        start: BatchIncumbent,
        limit: Budget,
        seed: int,
        reporter: Reporter,
    ) -> None:
        self.problem = problem
        self.planner = planner
        self.limit = limit
        self.reporter = reporter
        self.symmetry = Symmetry(problem, planner.use)
        before = limit.left
        self.best = self._renamed(start)
        # Seconds that the last neighbourhood took before its model; of the first it is a guess.
        self.writing = before - limit.left
        self.random = np.random.default_rng(seed)
        self.units = float(SOLVABLE_OPS)
        self.movable = problem.unit_pinned < 0

    def run(self, on_progress: Progress) -> None:
        neighbourhoods = self._neighbourhoods()
        done = 0
        while self.limit.left > self.writing and done != self.planner.iterations:
            free = next(neighbourhoods) & self.movable
            if free.any():
                self._improve(free)
            done += 1
            share = 1 - self.limit.left / self.limit.seconds
            if self.planner.iterations:
                share = max(share, done / self.planner.iterations)
            on_progress(
                f"{self.planner.name}: {done} neighbourhoods, {self.best.value:.3g} s", share
            )

    def _renamed(self, start: BatchIncumbent) -> BatchIncumbent:
        """The plan with devices named as the rows for symmetry want them, all else the same.

        Every neighbourhood has these rows, for the whole plan.
        """
        chunk = chunk_size(self.problem)
        device = chunk_devices(start.placement.device, chunk)
        assert device is not None
        renamed = self.symmetry.renaming(device, self.problem.batch_time)
        batches = start.schedule.batches
        middle = {
            (op, int(renamed[u])): when
            for op, u, when in zip(
                batches.op.tolist(), batches.device.tolist(), batches.start.tolist(), strict=True
            )
        }
        placement = placement_of(self.problem, chunk, renamed[device], middle, 1.0)
        return timed_batches(self.problem, placement)

    def _neighbourhoods(self) -> Iterator[Flags]:
        """Every module, then neighbourhoods without end."""
        problem = self.problem
        modules = self.planner.modules(problem)
        for module in range(modules.count):
            yield self._flags(problem.op_unit[modules.ops(module)])
        while True:
            yield self._flags(self._about_one_time())

    def _about_one_time(self) -> Ints:
        """Units whose batches run closest to some moment; the last ones end closest to it."""
        batches = self.best.schedule.batches
        moment = self.random.uniform(0.0, self.best.value)
        away = np.maximum(batches.start - moment, moment - batches.finish)
        units = self.problem.op_unit[batches.op[np.argsort(away, kind="stable")]]
        nearest = list(dict.fromkeys(units.tolist()))
        count = int(self.units)
        return np.array(nearest[:count], dtype=np.int32)

    def _flags(self, units: Ints) -> Flags:
        flags = np.zeros(self.problem.unit_count, dtype=np.bool_)
        flags[units] = True
        return flags

    def _improve(self, free: Flags) -> None:
        device = chunk_devices(self.best.placement.device, chunk_size(self.problem))
        assert device is not None  # every plan of this search is in chunks
        before = self.limit.left
        neighbourhood = Neighbourhood(
            self.problem, self.best, device, free, self._devices(device, free)
        )
        self.writing = before - self.limit.left
        try:
            found, complete = self._solve(neighbourhood)
        except OutOfTimeError:
            found, complete = None, False
        factor = 1.1 if complete else 0.95
        self.units = float(np.clip(self.units * factor, LEAST_UNITS, MOST_UNITS))
        if found is not None and found.value <= self.best.value:
            self.best = found
            self.reporter.tell(found.value, lambda: found.placement)

    def _devices(self, device: Ints, free: Flags) -> Flags:
        """All devices, or `MOST_DEVICES`: the free units' own first, then any others."""
        count = self.problem.device_count
        own = np.unique(device[free[self.problem.op_unit]])
        others = np.setdiff1d(self.random.permutation(count), own, assume_unique=True)
        chosen = np.zeros(count, dtype=np.bool_)
        chosen[np.concatenate([own, others])[:MOST_DEVICES]] = True
        return chosen

    def _solve(self, neighbourhood: Neighbourhood) -> tuple[BatchIncumbent | None, bool]:
        """The plan found, and whether the neighbourhood was searched to the end."""
        planner = self.planner
        seed = int(self.random.integers(2**31 - 1))
        if planner.solver == CP_SAT:
            model = BatchModel(neighbourhood, self.symmetry, self.limit)
            model.hint(self.best)
            seconds = min(planner.module_seconds, max(self.limit.left, 0.0))
            deterministic = DETERMINISTIC_SECONDS if planner.iterations else math.inf
            answer = model.solve(seconds, seed, deterministic)
            found, complete = answer.values, answer.complete
            return (better(self.problem, found) if found else None), complete
        limit = Budget(min(planner.module_seconds, self.limit.left))
        program = BatchProgram(neighbourhood, self.symmetry, limit)
        solution = solve_program(
            program.program, planner.solver, limit.left, program.hint(self.best), None, seed
        )
        if solution.values is None:
            return None, False
        found = program.decode(solution.values)
        if crowded(self.problem, found):
            return None, False
        return better(self.problem, found), False
