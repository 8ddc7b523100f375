"""The planners `cp-sat` (the whole graph, exact) and `lns` (windows of it, one after another)."""

from __future__ import annotations

import contextlib
import math
import time
from typing import ClassVar

import numpy as np

from placewright import planners
from placewright.budget import TELL_SECONDS, Budget, Progress, Reporter, no_progress
from placewright.errors import InfeasibleError, OptionError, ProvedInfeasibleError
from placewright.formulations.latency.cp_frame import Frame, whole
from placewright.formulations.latency.cp_model import Answer, Effort, Model, Times
from placewright.formulations.latency.incumbent import Incumbent, fitting, longest
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
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.planners.latency.search.refining import refined
from placewright.planners.latency.search.seeds import seeded
from placewright.planners.latency.search.state import State
from placewright.planners.latency.search.strings import default_iterations
from placewright.planners.latency.search.windows import WINDOW_UNITS, Search
from placewright.problem import Problem
from placewright.simulate.latency import sequence_of

DEFAULT_SECONDS = 600.0
MOST_LITERALS = 400_000
"""Of the model of a whole graph, at most: beyond, CP-SAT does not get past reading it."""

# Without a linear relaxation CP-SAT is by far the fastest where it ends at all; with one it proves
# more where it does not. Turns of linearisation level and its own time, then the level asked for.
QUICK_TURNS = ((0, 0.5),)

ANNEALING_SHARE = 0.35  # of the time of `lns`
ANNEALING_PER_OP = 1000  # evaluations at most: small graphs gain more from windows
DEFAULT_WINDOWS = 200


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
        count = _literals(problem)
        if count <= MOST_LITERALS:
            return None
        return (
            f"its model would have {count:,} yes-or-no variables, more than the {MOST_LITERALS:,} "
            "that are of any use; take planner lns or coarsen the graph"
        )

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        limit = _limited(budget, self.units)
        on_progress(f"{self.name}: a first plan", 0.0)
        best, reason = first_incumbent(problem, seed, self.start, limit.part(limit.left / 4))
        if best and best.value == 0.0:  # cannot be improved, nor scaled
            return Proposal(best.placement)
        frame = whole(problem)
        if not frame.allowed.any(axis=1).all():
            raise reason or InfeasibleError(
                f"planner '{self.name}': some op fits no device; give the devices more memory"
            )
        on_progress(f"{self.name}: building the model", 0.05)
        try:
            model = Model(frame, best.value if best else longest(problem))
        except KeyboardInterrupt:
            if best is None:
                raise
            return Proposal(best.placement)
        best, answer = self._search(model, best, limit, seed, on_progress)
        if best is None:
            if answer.complete and answer.times is None:
                raise ProvedInfeasibleError(
                    f"planner '{self.name}': no placement fits the devices' memory, as CP-SAT has "
                    "proved; give the devices more memory"
                )
            raise reason or InfeasibleError(
                f"planner '{self.name}' found no plan in {limit.seconds:.0f} s; give it more time "
                "or try another planner"
            )
        return Proposal(best.placement, min(answer.lower_bound, best.value), self.name)

    def _search(
        self,
        model: Model,
        best: Incumbent | None,
        limit: Budget,
        seed: int,
        on_progress: Progress,
    ) -> tuple[Incumbent | None, Answer]:
        bound, units = 0.0, self.units
        answer = Answer(None, 0.0, complete=False)
        for level, share in (*QUICK_TURNS, (self.level, math.inf)):
            if limit.left <= 0 or units <= 0 or answer.complete or answer.interrupted:
                break
            on_progress(f"{self.name}: up to {limit.left:.0f} s more", 0.1)
            workers = 1 if share < math.inf else self.workers
            if best:
                model.hint(best.placement.device, best.schedule.op_start)
            effort = Effort(limit.left, min(units, share), workers, level, seed)
            answer = model.solve(effort, Watch(model, limit, best))
            units -= share
            bound = max(bound, answer.lower_bound)
            if answer.times is not None:
                best = _better(model, best, answer.times)
            elif answer.complete and best is not None:  # nothing is shorter
                bound = best.value
        return best, Answer(answer.times, bound, answer.complete, answer.interrupted)


class Watch:
    """Tells a budget's listener of what CP-SAT finds and proves on the way."""

    def __init__(self, model: Model, budget: Budget, best: Incumbent | None) -> None:
        self.model, self.budget = model, budget
        self.reporter = Reporter(budget, best.value if best else math.inf)
        self.bound = 0.0
        self.told_at = -math.inf

    def found(self, times: Times) -> None:
        each = fitting(self.model.problem, [placement_of(self.model.frame, times)])
        if each is not None:
            self.reporter.tell(each.value, lambda: each.placement)

    def proved(self, lower_bound: float) -> None:
        now = time.monotonic()
        if lower_bound > self.bound and now - self.told_at >= TELL_SECONDS:
            self.bound, self.told_at = lower_bound, now
            self.budget.listener.proved(min(lower_bound, self.reporter.value), CpSat.name)


class Lns(LatencyPlanner):
    """Large-neighbourhood search: CP-SAT places and orders windows of a plan anew.

    Starts from the budget's start or, if there is none, from annealing over placements and orders
    (`annealing` with a free order), which has a share of the time. See `neighbourhood` for the
    windows.

    Options: `iterations`, the number of windows (without a time limit, `DEFAULT_WINDOWS`), which
    unlike a time limit give the same plan on every machine; `workers`, windows solved at the same
    time (2; another number, another plan); `units`, CP-SAT's deterministic time for a window, about
    a second each (0.03 at first, more after windows in vain). Ctrl-C keeps the best.
    """

    name: ClassVar[str] = "lns"
    counts_peak: ClassVar[bool] = True

    def __init__(
        self, iterations: str | int = "", workers: str | int = "2", units: str | float = ""
    ) -> None:
        name = self.name
        self.iterations = whole_number(name, "iterations", iterations) if iterations else None
        self.workers = whole_number(name, "workers", workers)
        self.units = positive_number(name, "units", units) if units else WINDOW_UNITS

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        state, interrupted = self._start(problem, budget, seed, on_progress)
        if interrupted or math.isinf(state.value):
            return Proposal(state.placement)
        windows = math.inf if budget.seconds < math.inf else DEFAULT_WINDOWS
        if self.iterations is not None:
            windows = self.iterations
        search = Search(state, seed, self.workers, self.units)
        with contextlib.suppress(KeyboardInterrupt):  # while a model was written
            search.run(budget, windows, on_progress)
        return Proposal(search.best.placement)

    def _start(
        self, problem: Problem, budget: Budget, seed: int, on_progress: Progress
    ) -> tuple[State, bool]:
        """The plan to improve, and whether Ctrl-C came while it was looked for."""
        if budget.start is not None:
            return State(problem, budget.start), False
        on_progress("a first plan", 0.0)
        is_timed = self.iterations is None and budget.seconds < math.inf
        share = ANNEALING_SHARE * budget.left
        part = budget.part(share if is_timed else math.inf)
        first, interrupted = seeded(problem, part.part(part.left / 2), seed, no_progress)
        if interrupted:
            return State(problem, first), True
        limit = ANNEALING_PER_OP * problem.op_count if is_timed else default_iterations(problem)
        found, interrupted = refined(problem, first, part, limit, seed, no_progress)
        return State(problem, found), interrupted


# -- from a solution to a plan ---------------------------------------------------------------------


def _better(model: Model, best: Incumbent | None, times: Times) -> Incumbent | None:
    """The shortest of the best so far, the solution in its own order, and that listed anew."""
    found = placement_of(model.frame, times)
    return fitting(model.problem, [found, Placement(found.device)], best)


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


def _limited(budget: Budget, units: float) -> Budget:
    return budget.or_at_most(DEFAULT_SECONDS if math.isinf(units) else math.inf)
