"""`max-load-ip`: search, then the integer program, for the least largest load.

Tarnawski et al. 2020, Fig. 6 and §5.2. What the program proves is weak where stages need not be
contiguous, so bounds that look at one set of units at a time (`one_set`, and the minimum cuts of
`bounds.throughput`) come first; the search of `hybrid` finds nearly all good plans.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from placewright.analysis.nets import pipeline_of
from placewright.bounds.throughput import lower_bound
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError, OptionError
from placewright.formulations.throughput.max_load_program import MaxLoadProgram, row_of
from placewright.graph import Floats, Ints
from placewright.planners.base import Proposal, whole_number
from placewright.planners.throughput.hybrid import Hybrid, search_together
from placewright.planners.throughput.multilevel import first_plan
from placewright.planners.throughput.one_set import (
    Question,
    count_question,
    main_class,
    one_set_bound,
    work_question,
)
from placewright.planners.throughput.reporting import PipelineReporter, start_units
from placewright.problem import Problem
from placewright.solvers.mathopt import (
    HORIZON,
    SOLVERS,
    Answer,
    OutOfTimeError,
    safe_bound,
    solve_program,
)
from placewright.solvers.rounded import solve_whole

DEFAULT_SECONDS = 600.0
# Of the time that is left: a first search, each bound of one set, the search after that.
FIRST_SHARE, SET_SHARE, SEARCH_SHARE = 0.08, 0.25, 0.7
AGAIN_SHARE = 0.7  # the bound that the first time did not suffice for
PROVED = 1e-5  # of the value: a gap not worth closing
MAX_BINARIES = 200_000
ROUNDING = 1e-9
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
        if solver not in ("cp-sat", *SOLVERS):
            raise OptionError(
                f"planner 'max-load-ip': solver is '{solver}'; choose cp-sat, {', '.join(SOLVERS)}"
            )
        self.solver = solver
        self.steps = math.inf if steps is None else whole_number(self.name, "steps", steps)

    def supports(self, problem: Problem) -> str | None:
        if problem.options.replicate:
            return (
                "its program has no replicas; leave option replicate out, or use ideal-dp for "
                "contiguous plans with replicas"
            )
        count = int(pipeline_of(problem).allowed.sum())
        if count > MAX_BINARIES:
            return (
                f"its program would have {count:,} yes-or-no variables, more than the "
                f"{MAX_BINARIES:,} that are of any use; coarsen the graph or use annealing"
            )
        return None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        limit = budget.or_at_most(DEFAULT_SECONDS)
        attempt = _Attempt(self, problem, limit, seed, on_progress)
        try:
            attempt.run()
        except KeyboardInterrupt:
            if attempt.best is None:
                raise
        return attempt.proposal()


class _Attempt:
    """The best plan so far and what is proved, step by step."""

    def __init__(
        self, planner: MaxLoadIp, problem: Problem, limit: Budget, seed: int, report: Progress
    ) -> None:
        self.planner, self.problem, self.limit = planner, problem, limit
        self.seed, self.report = seed, report
        self.pipeline = pipeline_of(problem)
        self.best: Ints | None = None
        self.value = math.inf
        self.bound, self.source = 0.0, ""
        self.refused: InfeasibleError | None = None
        self.searches: list[Hybrid] = []
        self.cut_short = False  # the bound by work
        self.reporter = PipelineReporter(problem, limit)

    def run(self) -> None:
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
        return self.best is not None and self.value <= self.bound * (1 + PROVED)

    def proposal(self) -> Proposal:
        if self.best is None:
            raise self.refused or InfeasibleError(
                f"planner 'max-load-ip' found no plan in {self.limit.seconds:.0f} s; give it more "
                "time or try another planner"
            )
        placement = self.reporter.answer(self.best, self.value)
        return Proposal(placement, min(self.bound, self.value), self.source)

    # -- steps -----------------------------------------------------------------------------------

    def _first_search(self) -> None:
        """A short one: the bounds of one set are the better the better the plan is."""
        if self.best is None or self.problem.options.contiguous:
            return
        start = self.best
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
            self.reporter.found(self.best, self.value)

    def _count_bound(self) -> None:
        if self.best is None:
            return
        question = count_question(self.pipeline, main_class(self.pipeline), self.value)
        if question is not None and question.at_least > self.bound * (1 - PROVED):
            self._one_set(question, "one device holds its share of the largest ops")

    def _work_bound(self, share: float = SET_SHARE) -> None:
        if self.best is not None:
            question = work_question(self.pipeline, main_class(self.pipeline))
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
        scale = (self.value if self.best is not None else self._largest()) / HORIZON
        program = MaxLoadProgram(self.pipeline, scale or 1.0, self.limit)
        source = f"max-load-ip ({self.planner.solver})"
        while True:
            answer = self._solve(
                program, lambda bound: self._prove(bound * (1 - ROUNDING) * scale, source)
            )
            if answer.infeasible and self.best is None:
                self.refused = InfeasibleError(
                    "planner 'max-load-ip': no placement fits the devices"
                    f"{' in a row' if self.problem.options.contiguous else ''}, as "
                    f"{self.planner.solver} has proved; give the devices more memory"
                )
                return
            bound = self.value if answer.infeasible else self._proved(answer) * scale
            self._prove(bound, source)
            if answer.values is None:
                return
            found = program.device_of(answer.values)
            if not program.forbid_overfull(found):
                self._adopt(found)
                break
        if unguided and not self._is_proved():
            self._program()  # once more, in a scale that fits

    def _proved(self, answer: Answer) -> float:
        """Whole numbers have no tolerances, other solvers do."""
        if self.planner.solver == "cp-sat":
            return max(answer.bound, 0.0) * (1 - ROUNDING)
        return safe_bound(answer)

    def _solve(self, program: MaxLoadProgram, on_bound: Callable[[float], None]) -> Answer:
        hint = None if self.best is None else program.hint(self.best)

        def adopt(values: Floats) -> None:
            self._adopt(program.device_of(values))

        if self.planner.solver == "cp-sat":
            return solve_whole(
                program.program,
                self.limit,
                hint,
                seed=self.seed,
                repeatable=self._repeatable,
                # Which of the solutions on the way are seen is chance.
                on_solution=None if self._repeatable else adopt,
                on_bound=on_bound,
            )
        start = None if hint is None else program.completed(hint, self.limit.left * HINT_SHARE)
        return solve_program(
            program.program, self.planner.solver, self.limit.left, start, None, self.seed
        )

    # -- keeping ---------------------------------------------------------------------------------

    def _adopt(self, unit_device: Ints) -> None:
        """Take a placement if it is valid and better."""
        problem, units = self.problem, np.arange(len(unit_device))
        if not self.pipeline.allowed[units, unit_device].all():
            return
        if problem.options.contiguous and row_of(self.pipeline, unit_device) is None:
            return
        state = self.pipeline.loads(unit_device)
        if state.best_value[0] < self.value:  # infinite if it does not fit, rounding aside
            self.best, self.value = unit_device.copy(), float(state.best_value[0])
            self.reporter.found(self.best, self.value)

    def _prove(self, bound: float, source: str) -> None:
        if bound > self.bound:
            self.bound, self.source = bound, source
            self.reporter.proved(min(bound, self.value), source)

    def _largest(self) -> float:
        """No largest load is above all computing and all transfers, each counted at its dearest."""
        problem, pipeline = self.problem, self.pipeline
        through_host = problem.staging == "host"
        latency = problem.host_latency if through_host else problem.link_latency
        per_byte = problem.host_seconds_per_byte if through_host else problem.link_seconds_per_byte
        readers = sum(len(net.readers) + 1 for net in pipeline.nets)
        count, size = (
            max((getattr(net, name) for net in pipeline.nets), default=0.0)
            for name in ("count", "size")
        )
        transfers = 2.0 * readers * (count * float(latency.max()) + size * float(per_byte.max()))
        return float(pipeline.time.sum(axis=0).max(axis=1).sum()) + transfers
