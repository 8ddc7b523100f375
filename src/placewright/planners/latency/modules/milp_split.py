"""MILP-SPLIT: the planner `milp-split` (Ghannane and Abdelfattah 2023, DiviML, §IV-B)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from placewright.analysis.modules import Modules, asked_channels, ever_smaller, split_modules
from placewright.analysis.parts import parts_of
from placewright.analysis.passing import without_passing
from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.formulations.latency.incumbent import Incumbent, timed
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.base import (
    LatencyPlanner,
    Proposal,
    count_option,
    no_room,
    positive_number,
)
from placewright.planners.exact import DEFAULT_SECONDS, solver_option
from placewright.planners.latency.exact.cases import BOUND_TURN, PROVED, Method, shortest
from placewright.planners.latency.exact.parallel import Solvers
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.planners.latency.modules.chain_exact import ExactChain
from placewright.planners.latency.modules.chain_passed import PassedChain
from placewright.planners.latency.modules.chain_search import MOST_IN_VAIN, ChainSearch
from placewright.planners.latency.modules.chain_tied import TiedChain
from placewright.planners.latency.modules.channel_bound import channel_bounds
from placewright.planners.latency.modules.channels import polished, searched, solve_in_order
from placewright.planners.latency.search.neighbourhoods import Search
from placewright.planners.latency.search.state import State
from placewright.problem import Problem, once_per_problem
from placewright.solvers.bound_callback import BoundReporter
from placewright.solvers.mathopt import SOLVERS

if TYPE_CHECKING:
    from placewright.planners.latency.exact.ray_pool import RayPool

MODULE_SOLVERS = ("cp-sat", *SOLVERS)
SOLVABLE_OPS = 40
"""Modules up to this size are solved in seconds; larger ones are cut at more channels."""

JOINED_OPS = 20  # neighbouring modules of several channels: solved in a tenth of a second
MODULE_SECONDS = 60.0
SPLIT_SECONDS = 10.0  # a graph of 5,000 ops takes a tenth of one
LARGEST_MODULE = 3_000
"""Ops; no solver gets past reading a model of a larger one."""

# Of the time that is left when each begins.
CHAIN_SHARE, TIED_SHARE = 0.8, 0.7
PASSED_SHARE = 0.6
ORDER_SHARE, POLISH_SHARE, BOUND_SHARE = 0.4, 0.2, 0.6


class MilpSplit(LatencyPlanner):
    """Solve modules exactly and put their schedules together.

    With one channel (`chain_exact`) the plan is optimal if every module was solved to the end and
    memory does not bind; its bound holds in any case, for a module alone has all the memory. Where
    it binds, modules are solved again at prices of memory (`chain_tied`).
    With more (`channels`) modules are solved in order and then placed anew two at a time;
    what is proved comes from `channel_bound`. A graph that is a chain of modules but for edges
    which pass by some, as training graphs are, is solved as such a chain first (`chain_passed`). It
    begins with the best of the budget's start, HEFT
    and simpler rules, so there is a plan even if no module was solved in time, or the modules
    together overflow a device. Beside one channel's modules (`chain_search`), or after those of
    more, it searches neighbourhoods of the plan as planner `lns` does, unless there is a start and
    one core: then it is one of several that work on the same plan.

    Options: `channels`, 1 to 4, or ``auto``: the fewest that make modules of at most
    `SOLVABLE_OPS` ops; `max_ops`, up to which neighbouring modules are joined; `solver` of a
    module, CP-SAT or one of `diviml-milp`; `nodes`, a limit on the solver's branch-and-bound
    nodes (CP-SAT: thousandths of its own time) for each module, which unlike a time limit gives
    the same plan on every machine (modules are then solved one by one, and nothing is searched);
    `module_seconds` for one module and pair of devices;
    `processes`, how many modules are solved at the same time, each on a core of its own. The time
    limit is the budget's, and `DEFAULT_SECONDS` if that has none.
    """

    name: ClassVar[str] = "milp-split"

    def __init__(
        self,
        channels: str = "auto",
        max_ops: str = "",
        solver: str = MODULE_SOLVERS[0],
        nodes: str = "",
        module_seconds: str = "",
        processes: str = "",
        ray: str = "",
    ) -> None:
        self.channels = asked_channels(self.name, channels)
        self.max_ops = count_option(self.name, "max_ops", max_ops)
        self.solver = solver_option(self.name, solver, MODULE_SOLVERS)
        self.nodes = count_option(self.name, "nodes", nodes)
        seconds = module_seconds or MODULE_SECONDS
        self.module_seconds = positive_number(self.name, "module_seconds", seconds)
        self.processes = count_option(self.name, "processes", processes)
        self.ray = ray

    def supports(self, problem: Problem) -> str | None:
        if problem.op_count <= LARGEST_MODULE:
            return None
        largest = self.modules(problem, Budget(SPLIT_SECONDS)).largest
        if largest <= LARGEST_MODULE:
            return None
        return (
            f"its largest module has {largest:,} ops, more than the {LARGEST_MODULE:,} that can be "
            "solved together; coarsen the graph or take a heuristic planner"
        )

    def modules(self, problem: Problem, limit: Budget | None = None) -> Modules:
        """The modules that are solved one by one; no more channels are tried after the limit."""
        found = []
        for modules in ever_smaller(problem, self.channels, self._joined_ops, SOLVABLE_OPS):
            found.append(modules)
            if limit is not None and limit.left <= 0:
                break
        return min(found, key=lambda modules: modules.largest)

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        limit = budget.or_at_most(DEFAULT_SECONDS)
        first, reason = first_incumbent(problem, seed, None, limit)
        modules = self.modules(problem, limit.part(SPLIT_SECONDS))
        method = Method(self.solver, self.nodes, seed, self.module_seconds)
        with self._pool() as pool:
            solvers = Solvers(method, 1 if self.nodes else self.processes, pool)
            passed = None
            if self.channels is None and is_chain_but_for_passing(problem):
                passed = PassedChain(problem, solvers)
            search = _Search(modules, passed, first, solvers, limit, on_progress)
            may_search = self.nodes is None and (budget.start is None or self.processes != 1)
            search.run(may_search)
        if search.best is None:
            if search.too_full is not None:
                reason = reason or no_room(problem, *search.too_full, self.name)
            raise reason or InfeasibleError(
                f"planner '{self.name}' found no plan; give it more time or the devices more memory"
            )
        best = search.best
        return Proposal(best.placement, min(search.bound, best.value), self.name)

    def _pool(self) -> AbstractContextManager[RayPool | None]:
        if not self.ray:
            return nullcontext()
        from placewright.planners.latency.exact.ray_pool import ray_pool

        return ray_pool(self.ray, self.processes)

    def _joined_ops(self, channels: int) -> int | None:
        """Up to how many ops neighbouring modules are joined."""
        return self.max_ops or (JOINED_OPS if channels > 1 else None)


class _Search:
    """The best plan and bound so far: what is left of them after Ctrl-C.

    `too_full`, a unit and what is free on each device, if the modules' plans together have too
    much on one.
    """

    def __init__(
        self,
        modules: Modules,
        passed: PassedChain | None,
        best: Incumbent | None,
        solvers: Solvers,
        limit: Budget,
        on_progress: Progress,
    ) -> None:
        self.modules, self.problem, self.passed = modules, modules.problem, passed
        self.best, self.bound = best, 0.0
        self.solvers, self.limit, self.on_progress = solvers, limit, on_progress
        self.reporter = BoundReporter(limit, MilpSplit.name, _known(self.problem, limit.start))
        self.too_full: tuple[int, Floats] | None = None
        if best is not None:
            self._keep(best)

    def run(self, may_search: bool) -> None:
        """Modules first; then, if it `may_search`, neighbourhoods of the plan too."""
        with suppress(KeyboardInterrupt):
            if self.passed is not None:
                is_one_of_several = self.limit.start is not None and not may_search
                share = 1.0 if is_one_of_several else PASSED_SHARE
                self._without_passing(self.passed, self._part(share))
                if is_one_of_several:  # modules of the whole are larger, and the others search it
                    return
            if self.modules.is_exact:
                self._one_channel(may_search)
            else:
                self._channels(may_search)

    def _one_channel(self, may_search: bool) -> None:
        """The chain; if it may not search, first quickly, then from a better plan."""
        exact = ExactChain(self.modules, with_regions=self.solvers.method.may_price)
        if self.problem.may_overflow and self.solvers.method.may_price:
            self._tied(exact)
        search = None
        if may_search and self.best is not None:
            search = Search(State(self.problem, self.best.placement), self.solvers.method.seed)
        chain = ChainSearch(exact, self.solvers, search)
        if search is None:
            self._chain(chain, self._part(CHAIN_SHARE), BOUND_TURN)
            self._improve(polished, self.modules, self._part(POLISH_SHARE))
        self._chain(chain, self.limit)

    def _tied(self, exact: ExactChain) -> None:
        """The chain alone, and then with prices of memory if its best plan has no room."""
        self._chain(ChainSearch(exact, self.solvers, None), self._part(TIED_SHARE))
        if self.too_full is None or self._is_proved() or self.limit.left <= 0:
            return
        tied = TiedChain(exact.chain, self.solvers, self.best)
        try:
            for _ in tied.steps(self.limit):
                self.on_progress("modules solved at prices of memory", 0.5)
                self._take_tied(tied)
        finally:
            self._take_tied(tied)

    def _take_tied(self, tied: TiedChain) -> None:
        self._prove(tied.bound)
        if tied.best is not None and (self.best is None or tied.best.value < self.best.value):
            self._keep(tied.best)

    def _channels(self, may_search: bool) -> None:
        if self.limit.start is None:
            part = self._part(ORDER_SHARE)
            self._offer(solve_in_order(self.modules, self.solvers, part, self.on_progress))
        self._improve(polished, self.modules, self._part(POLISH_SHARE))
        self._bound(self._part(BOUND_SHARE if may_search else 1.0))
        if may_search:
            self._improve(searched, self.limit, MOST_IN_VAIN)

    def _without_passing(self, passed: PassedChain, limit: Budget) -> None:
        offered = None
        for done in passed.steps(limit, self.best.placement if self.best else None):
            self.on_progress("modules solved without what passes by them", done)
            self._prove(passed.bound)
            if passed.placement is not offered:
                offered = passed.placement
                self._offer(offered)
            if self._is_proved():
                break

    def _part(self, share: float) -> Budget:
        return self.limit.part(self.limit.left * share)

    def _chain(self, chain: ChainSearch, limit: Budget, turns: float = math.inf) -> None:
        if self.best is not None:
            chain.take(State(self.problem, self.best.placement))
        try:
            for done in chain.steps(limit, turns):
                self.on_progress("modules solved", done)
                self._take(chain)
        finally:
            self._take(chain)

    def _take(self, chain: ChainSearch) -> None:
        """What has come of it so far; a better plan of either serves the other."""
        self._prove(chain.chain.chain.lower_bound())
        search = chain.search
        if search is not None and (self.best is None or search.best.value < self.best.value):
            self._keep(timed(self.problem, search.best.placement))
        before = self.best
        self._offer(chain.chain.placement())
        if self.best is not before and self.best is not None:
            chain.take(State(self.problem, self.best.placement))

    def _improve(self, improve: Callable[..., Iterator[State]], *given: Any) -> None:
        if self.best is None or self._is_proved() or self.limit.left <= 0:
            return
        state = State(self.problem, self.best.placement)
        for found in improve(state, *given, self.solvers, self.on_progress):
            if found.value < self.best.value:
                self._keep(timed(self.problem, found.placement))

    def _bound(self, limit: Budget) -> None:
        if not self._is_proved() and limit.left > 0:
            for bound in channel_bounds(self.modules, self.solvers, limit, self.on_progress):
                self._prove(bound)

    def _offer(self, found: Placement | None) -> None:
        if found is None:
            return
        self.too_full = _overfull(self.problem, found)
        if self.too_full is None:
            self._keep(shortest(self.problem, self.best, found))

    def _keep(self, best: Incumbent) -> None:
        self.best = best
        self.reporter.tell(best.value, lambda: best.placement)

    def _prove(self, bound: float) -> None:
        self.bound = max(self.bound, bound)
        self.reporter.prove(self.bound)

    def _is_proved(self) -> bool:
        return self.best is not None and self.best.value - self.bound <= PROVED * self.best.value


def is_chain(problem: Problem) -> bool:
    """Whether it falls apart into several modules of one channel that can be solved. O(V + E).

    Where every device could hold all of it, what is found and proved of the modules holds for the
    whole (`chain`); else memory may tie them (`Problem.may_overflow`).
    """
    parts = parts_of(split_modules(problem))
    return len(parts) > 1 and max(len(part.ops) for part in parts) <= SOLVABLE_OPS


@once_per_problem
def is_chain_but_for_passing(problem: Problem) -> bool:
    """Whether it is one (`is_chain`) only without the edges that pass by modules. O(V + E)."""
    return not is_chain(problem) and is_chain(without_passing(problem).problem)


def _known(problem: Problem, start: Placement | None) -> float:
    return timed(problem, start).value if start is not None else math.inf


def _overfull(problem: Problem, placement: Placement) -> tuple[int, Floats] | None:
    """The largest free unit on a device that has too much, and what is free everywhere."""
    unit_device = problem.unit_device(placement.device)
    free = problem.free_memory(unit_device)
    over = np.flatnonzero(free < 0)
    if not len(over):
        return None
    movable = (unit_device == over[0]) & (problem.unit_pinned < 0)
    return int(np.where(movable, problem.unit_memory, -1.0).argmax()), free
