"""The planner `milp-split`: DiviML's MILP-SPLIT (Ghannane and Abdelfattah 2023, §IV-B)."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from placewright.coarsen.modules import MOST_CHANNELS, Modules, split_modules
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.base import (
    Budget,
    LatencyPlanner,
    Progress,
    Proposal,
    no_room,
)
from placewright.planners.milp.diviml import DivimlMilp
from placewright.planners.milp.incumbent import Incumbent, first_incumbent
from placewright.planners.milp.moirai import MoiraiMilp
from placewright.planners.milp.parallel import PROVED, Method, Solvers, shortest
from placewright.planners.milp.planner import DEFAULT_SECONDS
from placewright.planners.milp.solver import SOLVERS
from placewright.planners.milp.split_bound import channel_bounds
from placewright.planners.milp.split_channels import polished, solve_in_order
from placewright.planners.milp.split_exact import Chain, parts_of
from placewright.planners.milp.subproblem import subproblem
from placewright.problem import Problem

MODULE_SOLVERS = ("cp-sat", *SOLVERS)
SOLVABLE_OPS = 40
"""Modules up to this size are solved in seconds; larger ones are cut at more channels."""

JOINED_OPS = 20  # neighbouring modules of several channels: solved in a tenth of a second
POLISHED_OPS = 1500  # of the whole; two modules placed anew take a program of it all

MODULE_SECONDS = 60.0


class MilpSplit(LatencyPlanner):
    """Solve modules exactly and put their schedules together.

    With one channel (`split_exact`) the plan is optimal if every module was solved to the end and
    memory does not bind; its bound holds in any case, for a module alone has all the memory.
    With more (`split_channels`) modules are solved in order and then placed anew two at a time;
    what is proved comes from `split_bound`. The better of that and the first plan of the exact
    planners (HEFT and simpler rules) is returned, so there is one even if no module was solved in
    time, or the modules together overflow a device.

    Options: `channels`, 1 to 4, or ``auto``: the fewest that make modules of at most
    `SOLVABLE_OPS` ops; `max_ops`, up to which neighbouring modules are joined; `solver` of a
    module, CP-SAT or one of `diviml-milp`; `nodes`, a limit on the solver's branch-and-bound
    nodes (CP-SAT: conflicts) for each module, which unlike a time limit gives the same plan on
    every machine; `module_seconds` for one module and pair of devices; `processes` to solve
    modules in, which changes nothing but the time. The time limit is the budget's, and
    `DEFAULT_SECONDS` if that has none.
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
    ) -> None:
        if channels not in ("auto", *(str(n) for n in range(1, MOST_CHANNELS + 1))):
            raise OptionError(
                f"planner 'milp-split': channels is '{channels}'; give auto or 1 to {MOST_CHANNELS}"
            )
        if solver not in MODULE_SOLVERS:
            raise OptionError(
                f"planner 'milp-split': solver is '{solver}'; choose {', '.join(MODULE_SOLVERS)}"
            )
        self.channels = int(channels) if channels != "auto" else None
        self.max_ops = _count("max_ops", max_ops)
        self.solver = solver
        self.nodes = _count("nodes", nodes)
        self.module_seconds = _seconds(module_seconds) if module_seconds else MODULE_SECONDS
        self.processes = _count("processes", processes)

    def supports(self, problem: Problem) -> str | None:
        modules = self.modules(problem)
        largest = int(np.bincount(modules.op_module).argmax())
        part = subproblem(problem, modules.ops(largest)).problem
        exact = DivimlMilp() if part.options.contention == "none" else MoiraiMilp()
        refusal = exact.supports(part)
        return f"its largest module has {part.op_count:,} ops: {refusal}" if refusal else None

    def modules(self, problem: Problem) -> Modules:
        """The modules that are solved one by one."""
        if self.channels is not None:
            return self._split(problem, self.channels)
        fewest: Modules | None = None
        for channels in range(1, MOST_CHANNELS + 1):
            modules = self._split(problem, channels)
            if _largest(modules) <= SOLVABLE_OPS:
                return modules
            if fewest is None or _largest(modules) < _largest(fewest):
                fewest = modules
        assert fewest is not None
        return fewest

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        limit = Budget(budget.left if math.isfinite(budget.left) else DEFAULT_SECONDS)
        first, reason = first_incumbent(problem, seed, None, limit)
        modules = self.modules(problem)
        search = _Search(modules, first, self.module_seconds, limit, on_progress)
        with Solvers(Method(self.solver, self.nodes, seed), self.processes) as solvers:
            search.run(solvers)
        if search.best is None:
            if search.too_full is not None:
                reason = reason or no_room(problem, *search.too_full, self.name)
            raise reason or InfeasibleError(
                f"planner '{self.name}' found no plan; give it more time or the devices more memory"
            )
        best = search.best
        return Proposal(best.placement, min(search.bound, best.value), self.name)

    # -- modules ---------------------------------------------------------------------------------

    def _split(self, problem: Problem, channels: int) -> Modules:
        joined = self.max_ops or (JOINED_OPS if channels > 1 else None)
        return split_modules(problem, channels, joined)


class _Search:
    """The best plan and bound so far: what is left of them after Ctrl-C.

    `too_full`, a unit and what is free on each device, if the modules' plans together have too
    much on one.
    """

    def __init__(
        self,
        modules: Modules,
        best: Incumbent | None,
        seconds: float,
        limit: Budget,
        on_progress: Progress,
    ) -> None:
        self.modules, self.problem = modules, modules.problem
        self.best, self.bound = best, 0.0
        self.seconds, self.limit, self.on_progress = seconds, limit, on_progress
        self.too_full: tuple[int, Floats] | None = None

    def run(self, solvers: Solvers) -> None:
        try:
            if self.modules.is_exact:
                self._chain(solvers)
            else:
                self._offer(self._in_order(solvers))
            if not self._is_proved() and self.problem.op_count <= POLISHED_OPS:
                self._polish(solvers.method.seed)
            if not self.modules.is_exact and not self._is_proved():
                self._bound(solvers)
        except KeyboardInterrupt:
            pass

    def _chain(self, solvers: Solvers) -> None:
        chain = Chain(self.problem, parts_of(self.modules), solvers, self.seconds)
        try:
            chain.refine(self.limit, self.on_progress)
        finally:
            done = chain.result()
            self.bound = done.lower_bound
            self._offer(done.placement)

    def _in_order(self, solvers: Solvers) -> Placement | None:
        share = Budget(self.limit.left / 2)
        return solve_in_order(self.modules, solvers, self.seconds, share, self.on_progress)

    def _polish(self, seed: int) -> None:
        if self.best is not None:
            share = Budget(self.limit.left / 2)
            for better in polished(self.modules, self.best, seed, share, self.on_progress):
                self.best = better

    def _bound(self, solvers: Solvers) -> None:
        for bound in channel_bounds(
            self.modules, solvers, self.seconds, self.limit, self.on_progress
        ):
            self.bound = max(self.bound, bound)

    def _offer(self, found: Placement | None) -> None:
        if found is None:
            return
        self.too_full = _overfull(self.problem, found)
        if self.too_full is None:
            self.best = shortest(self.problem, self.best, found)

    def _is_proved(self) -> bool:
        return self.best is not None and self.best.value - self.bound <= PROVED * self.best.value


def _largest(modules: Modules) -> int:
    return int(np.bincount(modules.op_module).max())


def _count(option: str, text: str) -> int | None:
    if not text:
        return None
    if not (text.isdecimal() and int(text) > 0):
        raise OptionError(
            f"planner 'milp-split': {option} is '{text}'; give a whole number above 0"
        )
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise OptionError(
            f"planner 'milp-split': module_seconds is '{text}'; give a number above 0"
        )
    return seconds


def _overfull(problem: Problem, placement: Placement) -> tuple[int, Floats] | None:
    """The largest free unit on a device that has too much, and what is free everywhere."""
    free = problem.device_memory - np.bincount(
        placement.device, problem.op_memory, problem.device_count
    )
    over = np.flatnonzero(free < 0)
    if not len(over):
        return None
    unit_device = np.full(problem.unit_count, -1)
    unit_device[problem.op_unit] = placement.device
    movable = (unit_device == over[0]) & (problem.unit_pinned < 0)
    return int(np.where(movable, problem.unit_memory, -1.0).argmax()), free
