"""`max-load-ip`: search, then the integer program, for the least largest load.

Tarnawski et al. 2020, Fig. 6 and §5.2. What the program proves is weak where stages need not be
contiguous, so bounds that look at one set of units at a time (`one_set`, and the minimum cuts of
`bounds.throughput`) come first; the search of `hybrid` finds nearly all good plans.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from placewright.analysis.contracted import unit_graph
from placewright.bounds.throughput import lower_bound
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.formulations.fit import Chosen
from placewright.formulations.formulation import Listener, MathOpt, Valued
from placewright.formulations.throughput.max_load_program import MaxLoadProgram, row_of
from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.planners.base import Proposal, whole_number
from placewright.planners.exact import DEFAULT_SECONDS, ExactRun, solver_option, too_many
from placewright.planners.throughput.hybrid import Hybrid, search_together
from placewright.planners.throughput.multilevel import first_plan
from placewright.planners.throughput.one_set import (
    Question,
    count_question,
    main_class,
    one_set_bound,
    work_question,
)
from placewright.planners.throughput.reporting import (
    PipelineReporter,
    placement_of,
    start_units,
)
from placewright.problem import LONG_ROUNDING, Problem
from placewright.solvers.mathopt import (
    HORIZON,
    SOLVERS,
    OutOfTimeError,
    safe_bound,
    solve_program,
)
from placewright.solvers.rounded import solve_whole
from placewright.solvers.running import Answer

CP_SAT = "cp-sat"
# Of the time that is left: a first search, each bound of one set, the search after that.
FIRST_SHARE, SET_SHARE, SEARCH_SHARE = 0.08, 0.25, 0.7
AGAIN_SHARE = 0.7  # the bound that the first time did not suffice for
PROVED = 1e-5  # of the value: a gap not worth closing
MAX_BINARIES = 200_000
SEARCHES = 2  # side by side
PHASES, QUIET_PHASES = 10, 2  # of the search, and without a better plan until it ends
HINT_SHARE = 0.1  # of the time that is left, to complete a plan to start from


class MaxLoadIp:
    """Exact max-load: the paper's integer program, warm-started, with the bounds of `one_set`.

    Options: `solver` (cp-sat, highs, scip, gurobi); `steps`, how many annealing steps the search
    before it may take, other moves counted as so many (by default what time allows; contiguous
    plans start from linear orders and have no search). With `steps` the same seed and start give
    the same plan, unless time is up first.

    Starts from the budget's start, if it has one. The time limit is the budget's, and
    `DEFAULT_SECONDS` if that has none. When time is up, or after Ctrl-C, the best plan so far is
    returned, with what is proved.
    """

    name: ClassVar[str] = "max-load-ip"
    objective: ClassVar[str] = "throughput"

    def __init__(self, solver: str = "cp-sat", steps: str | int | None = None) -> None:
        self.solver = solver_option(self.name, solver, (CP_SAT, *SOLVERS))
        self.steps = math.inf if steps is None else whole_number(self.name, "steps", steps)

    def supports(self, problem: Problem) -> str | None:
        if problem.options.replicate:
            return (
                "its program has no replicas; leave option replicate out, or use ideal-dp for "
                "contiguous plans with replicas"
            )
        count = int(unit_graph(problem).allowed.sum())
        return too_many(count, MAX_BINARIES, "coarsen the graph or use annealing")

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        limit = budget.or_at_most(DEFAULT_SECONDS)
        attempt = _Attempt(self, problem, limit, seed, on_progress)
        try:
            attempt.run_steps()
        except KeyboardInterrupt:
            if attempt.best is None:
                raise
        return attempt.answer()


@dataclass(frozen=True, eq=False)
class _Plan(Valued):
    unit_device: Ints


class _Attempt(ExactRun[_Plan]):
    """The best plan so far and what is proved, step by step."""

    def __init__(
        self, planner: MaxLoadIp, problem: Problem, limit: Budget, seed: int, report: Progress
    ) -> None:
        super().__init__(problem, limit, f"max-load-ip ({planner.solver})", self._better)
        self.planner, self.seed, self.report = planner, seed, report
        self.graph = unit_graph(problem)
        self.refused: InfeasibleError | None = None
        self.searches: list[Hybrid] = []
        self.cut_short = False  # the bound by work
        self.pipeline_reporter = PipelineReporter(problem, limit)

    def run_steps(self) -> None:
        quick = lower_bound(self.problem)
        self._prove(quick.value, quick.source)
        self.report("max-load-ip: a first plan", 0.0)
        start = start_units(self.problem, self.limit)
        if start is not None:
            self._adopt(start)
        try:
            if self.best is None:
                self._adopt(first_plan(self.problem, self.seed, self.limit))
        except InfeasibleError as error:
            self.refused = error
        for step in (
            self._first_search,
            self._count_bound,
            self._work_bound,
            self._search_on,
            self._work_bound_again,
            self._program,
        ):
            if self.limit.left <= 0 or self._is_proved():
                return
            with contextlib.suppress(OutOfTimeError):
                step()

    def _is_proved(self) -> bool:
        return self.best is not None and self.value <= self.bound.value * (1 + PROVED)

    def answer(self) -> Proposal:
        found = self.proposal(self.planner.name, self.refused)
        assert self.best is not None
        placement = self.pipeline_reporter.answer(self.best.unit_device, self.best.value)
        return replace(found, placement=placement)

    # -- steps -----------------------------------------------------------------------------------

    def _first_search(self) -> None:
        """A short one: the bounds of one set are the better the better the plan is."""
        if self.best is None or self.problem.options.contiguous:
            return
        start = self.best.unit_device
        self.searches = [
            Hybrid(self.problem, self.seed * SEARCHES + each, start) for each in range(SEARCHES)
        ]
        self._search(self.limit.left * FIRST_SHARE, self.planner.steps * FIRST_SHARE)

    def _search_on(self) -> None:
        """In phases, after which the searches exchange what they have found, if anything."""
        whole = Budget(self.limit.left * SEARCH_SHARE)
        quiet = 0
        for phase in range(PHASES):
            share = FIRST_SHARE + (1 - FIRST_SHARE) * (phase + 1) / PHASES
            before = self.value
            self._search(whole.left / (PHASES - phase), self.planner.steps * share)
            quiet = quiet + 1 if self.value == before else 0
            if quiet == QUIET_PHASES:
                return

    def _search(self, seconds: float, steps: float) -> None:
        if self.searches and not self._is_proved():
            self.report("max-load-ip: search", 1 - self.limit.left / self.limit.seconds)
            try:
                search_together(self.searches, Budget(seconds), steps / SEARCHES, self._look)
            finally:
                self._look()

    def _look(self) -> None:
        for search in self.searches:
            if search.best.value < self.value:
                self._adopt(search.best.unit_device)
        if self.best is not None:
            self.tell(self.best)

    def _count_bound(self) -> None:
        if self.best is None:
            return
        question = count_question(self.graph, main_class(self.graph), self.value)
        if question is not None and question.at_least > self.bound.value * (1 - PROVED):
            self._one_set(question, "one device holds its share of the largest ops")

    def _work_bound(self, share: float = SET_SHARE) -> None:
        if self.best is not None:
            question = work_question(self.graph, main_class(self.graph))
            source = "one device does its share of the work, with its transfers"
            self.cut_short = self._one_set(question, source, share)

    def _work_bound_again(self) -> None:
        """With more time, if it took all it had: the program proves less where it is that large."""
        if self.cut_short:
            self._work_bound(AGAIN_SHARE)

    def _one_set(self, question: Question, source: str, share: float = SET_SHARE) -> bool:
        """Whether time was up before all was proved that can be."""
        self.report(f"max-load-ip: bound, {source}", 0.3)
        slice_ = Budget(self.limit.left * share)
        proved = one_set_bound(
            question,
            self.value,
            slice_,
            seed=self.seed,
            repeatable=self._repeatable,
            on_bound=lambda bound: self._prove(bound, source),
        )
        self._prove(proved, source)
        return slice_.left <= 0

    @property
    def _repeatable(self) -> bool:
        """What is limited in steps gives the same again, if time suffices."""
        return math.isfinite(self.planner.steps)

    def _program(self) -> None:
        self.report(f"max-load-ip: {self.planner.solver}, up to {self.limit.left:.0f} s", 0.5)
        unguided = self.best is None
        scale = (self._largest() if unguided else self.value) / HORIZON or 1.0
        self.run(
            lambda: _Loads(
                MaxLoadProgram(self.graph, scale, self.limit),
                MathOpt(self.planner.solver, seed=self.seed),
                self._repeatable,
            )
        )
        if self.infeasible:
            self.refused = InfeasibleError(
                "planner 'max-load-ip': no placement fits the devices"
                f"{' in a row' if self.problem.options.contiguous else ''}, as "
                f"{self.planner.solver} has proved; give the devices more memory"
            )
        elif unguided and self.best is not None and not (self.interrupted or self._is_proved()):
            self._program()  # once more, in a scale that fits

    # -- keeping ---------------------------------------------------------------------------------

    def _adopt(self, unit_device: Ints) -> None:
        """Take a placement if it is valid and better."""
        before = self.best
        self.best = self._better(placement_of(self.problem, unit_device), before)
        if self.best is not None and self.best is not before:
            self.tell(self.best)

    def _better(self, found: Placement, best: _Plan | None) -> _Plan | None:
        problem, unit_device = self.problem, self.problem.unit_device(found.device)
        if not self.graph.allowed[np.arange(problem.unit_count), unit_device].all():
            return best
        if problem.options.contiguous and row_of(self.problem, unit_device) is None:
            return best
        state = self.graph.loads(unit_device)
        value = float(state.best_value[0])  # infinite if it does not fit, rounding aside
        if value >= (math.inf if best is None else best.value):
            return best
        return _Plan(found, value, unit_device)

    def tell(self, best: _Plan) -> None:
        self.pipeline_reporter.found(best.unit_device, best.value)

    def tell_bound(self, bound: float) -> None:
        """What the program proves on the way; at first less than is known."""
        if bound > self.bound.value:
            self.pipeline_reporter.proved(bound, self.source)

    def _prove(self, bound: float, source: str) -> None:
        before = self.bound.value
        self.prove(bound, source)
        if self.bound.value > before:
            self.pipeline_reporter.proved(self.bound.value, source)

    def _largest(self) -> float:
        """No largest load is above all computing and all transfers, each counted at its dearest."""
        problem, graph = self.problem, self.graph
        through_host = problem.staging == "host"
        latency = problem.host_latency if through_host else problem.link_latency
        per_byte = problem.host_seconds_per_byte if through_host else problem.link_seconds_per_byte
        readers = len(graph.nets.readers) + graph.net_count
        count, size = (
            float(each.max(initial=0.0)) for each in (graph.nets.tensors, graph.nets.bytes)
        )
        transfers = 2.0 * readers * (count * float(latency.max()) + size * float(per_byte.max()))
        return float(graph.time.sum(axis=0).max(axis=1).sum()) + transfers


class _Loads:
    """The program as a formulation: rounded to whole numbers, or by a solver of MathOpt."""

    def __init__(self, program: MaxLoadProgram, how: MathOpt, repeatable: bool) -> None:
        self.program, self.how, self.repeatable = program, how, repeatable
        self.start: dict[int, float] | None = None

    def hint(self, start: _Plan) -> None:
        self.start = self.program.hint(start.unit_device)

    def solve(self, limit: Budget, listener: Listener[Floats]) -> Answer[Floats]:
        solve = self._by_whole_numbers if self.how.solver == CP_SAT else self._by_mathopt
        answer, bound = solve(limit, listener)
        seconds = math.inf if answer.infeasible else bound * self.program.scale
        return replace(answer, bound=seconds)

    def _by_whole_numbers(
        self, limit: Budget, listener: Listener[Floats]
    ) -> tuple[Answer[Floats], float]:
        """Without tolerances, rounding aside."""
        exact = 1 - LONG_ROUNDING
        answer = solve_whole(
            self.program.program,
            limit,
            self.start,
            seed=self.how.seed,
            repeatable=self.repeatable,
            # Which of the solutions on the way are seen is chance.
            on_solution=None if self.repeatable else listener.found,
            on_bound=lambda bound: listener.proved(bound * exact * self.program.scale),
        )
        return answer, max(answer.bound, 0.0) * exact

    def _by_mathopt(
        self, limit: Budget, listener: Listener[Floats]
    ) -> tuple[Answer[Floats], float]:
        rows, how, values = self.program.program, self.how, None
        if self.start is not None:
            values = self.program.completed(self.start, limit.left * HINT_SHARE)
        answer = solve_program(
            rows, how.solver, limit.left, values, None, how.seed, found=listener.found
        )
        return answer, safe_bound(answer)

    def decode(self, solution: Floats) -> Placement:
        return placement_of(self.program.problem, self.program.device_of(solution))

    def forbid(self, chosen: Chosen) -> None:
        self.program.forbid(chosen)
