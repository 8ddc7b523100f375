"""The planners `cp-sat` (the whole graph, exact) and `lns` (parts of it, one after another)."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from placewright import planners
from placewright.budget import Budget, Progress, no_progress
from placewright.errors import OptionError
from placewright.formulations.fit import Chosen
from placewright.formulations.formulation import Listener
from placewright.formulations.latency.cp_frame import Frame, whole
from placewright.formulations.latency.cp_model import Effort, Model, Times
from placewright.formulations.latency.incumbent import Incumbent, longest
from placewright.graph import Floats
from placewright.kernels.common.arrays import NOT_SENT
from placewright.plan import Placement
from placewright.planners.base import (
    LatencyPlanner,
    Planner,
    Proposal,
    positive_number,
    whole_number,
)
from placewright.planners.exact import DEFAULT_SECONDS, too_many
from placewright.planners.latency.exact.outline import (
    exact_run,
    fits_nowhere,
    proved_infeasible,
)
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.planners.latency.search.annealed_start import PER_OP, SHARE, annealed_start
from placewright.planners.latency.search.neighbourhoods import NEIGHBOURHOOD_UNITS, Search
from placewright.planners.latency.search.state import State
from placewright.planners.latency.search.strings import default_iterations
from placewright.problem import Problem
from placewright.simulate.latency import sequence_of
from placewright.solvers.running import Answer

MOST_LITERALS = 400_000
"""Of the model of a whole graph, at most: beyond, CP-SAT does not get past reading it."""

# Without a linear relaxation CP-SAT is by far the fastest where it ends at all; with one it proves
# more where it does not. Turns of linearisation level and its own time, then the level asked for.
QUICK_TURNS = ((0, 0.5),)

DEFAULT_ROUNDS = 200


class CpSat(LatencyPlanner):
    """CP-SAT on the whole graph: optimal where it ends, with a bound where it does not.

    For small graphs and nearly serial ones; large graphs are for `lns` and `milp-split`. Starts
    from the best of HEFT and simpler rules, or `start`. When time is up, or after Ctrl-C, the best
    plan so far is returned with what is proved by then. Under option ``peak`` the model has what is
    alive on each device, so that plan and bound are about the same problem.

    Options: `workers`, CP-SAT's threads (2); `level` of linearisation, 0 to 2 (1; on graphs
    of some tens of ops 2 with one worker proves more); `units`, a limit in CP-SAT's deterministic
    time, about a second each: with one worker it gives the same plan on every machine; `start`, a
    planner whose plan to start from, given a quarter of the time. The time limit is the budget's,
    and `DEFAULT_SECONDS` if that has none and there is no `units`.
    """

    name: ClassVar[str] = "cp-sat"
    counts_peak: ClassVar[bool] = True

    def __init__(
        self, workers: str = "2", level: str = "1", units: str = "", start: str = ""
    ) -> None:
        self.workers = whole_number(self.name, "workers", workers)
        if level not in ("0", "1", "2"):
            raise OptionError(f"planner '{self.name}': level is '{level}'; give 0, 1 or 2")
        self.level = int(level)
        self.units = positive_number(self.name, "units", units) if units else math.inf
        self.start: Planner | None = planners.create(start) if start else None
        if isinstance(self.start, CpSat):
            raise OptionError(
                f"planner '{self.name}': start is '{start}', itself; name a heuristic"
            )

    def supports(self, problem: Problem) -> str | None:
        advice = "take planner lns or coarsen the graph"
        return too_many(_literals(problem), MOST_LITERALS, advice, "model")

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        limit = budget.or_at_most(DEFAULT_SECONDS if math.isinf(self.units) else math.inf)
        on_progress(f"{self.name}: a first plan", 0.0)
        best, reason = first_incumbent(problem, seed, self.start, limit.part(limit.left / 4))
        if best and best.value == 0.0:  # cannot be improved, nor scaled
            return Proposal(best.placement)
        frame = whole(problem)
        if not frame.allowed.any(axis=1).all():
            raise reason or fits_nowhere(self.name)
        run = exact_run(problem, limit, self.name, best)
        model: Model | None = None
        left = self.units
        for level, share in (*QUICK_TURNS, (self.level, math.inf)):
            workers = 1 if share < math.inf else self.workers
            effort = Effort(math.inf, min(left, share), workers, level, seed)

            def build(effort: Effort = effort) -> _Turn:
                nonlocal model
                if model is None:
                    on_progress(f"{self.name}: building the model", 0.05)
                    model = Model(frame, best.value if best else longest(problem))
                on_progress(f"{self.name}: up to {limit.left:.0f} s more", 0.1)
                return _Turn(model, effort)

            left -= share
            if run.run(build) or run.interrupted or limit.left <= 0 or left <= 0:
                break
        if run.infeasible:
            raise proved_infeasible(self.name, "CP-SAT")
        return run.proposal(self.name, reason)


class _Turn:
    """CP-SAT's model as a formulation, for one of its turns."""

    def __init__(self, model: Model, effort: Effort) -> None:
        self.model, self.effort = model, effort

    def hint(self, start: Incumbent) -> None:
        self.model.hint(start.placement.device, start.schedule.op_start)

    def solve(self, limit: Budget, listener: Listener[Times]) -> Answer[Times]:
        answer = self.model.solve(replace(self.effort, seconds=limit.left), listener)
        return replace(answer, bound=math.inf) if answer.infeasible else answer

    def decode(self, solution: Times) -> Placement:
        return placement_of(self.model.frame, solution)

    def forbid(self, chosen: Chosen) -> None:
        self.model.forbid(chosen)


class Lns(LatencyPlanner):
    """Large-neighbourhood search: CP-SAT places and orders parts of a plan anew.

    Starts from the budget's start or, if there is none, from annealing over placements and orders
    (`annealing` with a free order), which has a share of the time. See `neighbourhoods` for the
    parts.

    Options: `iterations`, the number of neighbourhoods (without a time limit, `DEFAULT_ROUNDS`),
    which unlike a time limit give the same plan on every machine; `workers`, neighbourhoods solved
    at the same time (2; another number, another plan); `units`, CP-SAT's deterministic time for
    one, about a second each (0.03 at first, more after some in vain). Ctrl-C keeps the best.
    """

    name: ClassVar[str] = "lns"
    counts_peak: ClassVar[bool] = True

    def __init__(
        self, iterations: str | int = "", workers: str | int = "2", units: str | float = ""
    ) -> None:
        name = self.name
        self.iterations = whole_number(name, "iterations", iterations) if iterations else None
        self.workers = whole_number(name, "workers", workers)
        self.units = positive_number(name, "units", units) if units else NEIGHBOURHOOD_UNITS

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        state, interrupted = self._start(problem, budget, seed, on_progress)
        if interrupted or math.isinf(state.value):
            return Proposal(state.placement)
        rounds = math.inf if budget.seconds < math.inf else DEFAULT_ROUNDS
        if self.iterations is not None:
            rounds = self.iterations
        search = Search(state, seed, self.workers, self.units)
        with contextlib.suppress(KeyboardInterrupt):  # while a model was written
            search.run(budget, rounds, on_progress)
        return Proposal(search.best.placement)

    def _start(
        self, problem: Problem, budget: Budget, seed: int, on_progress: Progress
    ) -> tuple[State, bool]:
        """The plan to improve, and whether Ctrl-C came while it was looked for."""
        if budget.start is not None:
            return State(problem, budget.start), False
        on_progress("a first plan", 0.0)
        is_timed = self.iterations is None and budget.seconds < math.inf
        part = budget.part(SHARE * budget.left if is_timed else math.inf)
        limit = PER_OP * problem.op_count if is_timed else default_iterations(problem)
        found, interrupted = annealed_start(problem, part, limit, seed, no_progress)
        return State(problem, found), interrupted


# -- from a solution to a plan ---------------------------------------------------------------------


def placement_of(frame: Frame, times: Times) -> Placement:
    """The placement, with its sequence, of a schedule of all ops."""
    problem = frame.problem
    device = np.empty(problem.op_count, dtype=np.int32)
    start, finish = np.empty(problem.op_count), np.empty(problem.op_count)
    device[frame.ops], start[frame.ops], finish[frame.ops] = (
        times.device, times.start, times.finish,
    )  # fmt: skip
    edge_start: Floats = np.full(problem.edge_count, NOT_SENT)
    edge_finish: Floats = np.full(problem.edge_count, NOT_SENT)
    for (number, d), (begin, end) in times.begin.items():
        for edge in frame.parcels[number].edges:
            if device[problem.consumers[edge]] == d != device[problem.edge_producer[edge]]:
                edge_start[edge], edge_finish[edge] = begin, end
    sequence = sequence_of(problem, start, finish, edge_start, edge_finish)
    return Placement(device, sequence)


# -- sizes and options -----------------------------------------------------------------------------


def _literals(problem: Problem) -> int:
    """Yes-or-no variables of the model of a whole graph, at most."""
    choices = np.maximum(problem.unit_allowed.sum(axis=1), 1)
    from_ = choices[problem.op_unit[problem.edge_producer]].astype(np.int64)
    to = choices[problem.op_unit[problem.consumers]]
    return int(choices.sum() + (from_ * to).sum())
