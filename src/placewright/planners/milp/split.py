"""The planner `milp-split`: DiviML's MILP-SPLIT (Ghannane and Abdelfattah 2023, §IV-B)."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from placewright.coarsen.modules import MOST_CHANNELS, Modules, split_modules
from placewright.errors import InfeasibleError, OptionError
from placewright.plan import Placement
from placewright.planners.base import (
    Budget,
    LatencyPlanner,
    Progress,
    Proposal,
    no_progress,
    no_room,
)
from placewright.planners.milp.diviml import DivimlMilp
from placewright.planners.milp.incumbent import Incumbent, first_incumbent, timed
from placewright.planners.milp.moirai import MoiraiMilp
from placewright.planners.milp.planner import DEFAULT_SECONDS, Formulation, MilpPlanner
from placewright.planners.milp.solver import SOLVERS, Answer
from placewright.planners.milp.split_channels import solve_in_order
from placewright.planners.milp.split_exact import Chain, parts_of
from placewright.planners.milp.subproblem import subproblem
from placewright.problem import Problem

SOLVABLE_OPS = 40
"""Modules up to this size are solved in seconds; larger ones are cut at more channels."""

MODULE_SECONDS = 60.0


class _Interruptible(MilpPlanner):
    """Remembers Ctrl-C, after which an exact planner returns the best plan it has."""

    interrupted = False

    def _search(
        self, formulation: Formulation, incumbent: Incumbent | None, limit: Budget, seed: int
    ) -> tuple[Incumbent | None, Answer]:
        try:
            return super()._search(formulation, incumbent, limit, seed)
        except KeyboardInterrupt:
            self.interrupted = True
            raise


class _Diviml(_Interruptible, DivimlMilp):
    pass


class _Moirai(_Interruptible, MoiraiMilp):
    pass


class MilpSplit(LatencyPlanner):
    """Solve modules exactly and put their schedules together.

    With one channel (`split_exact`) the plan is optimal if every module was solved to the end and
    memory does not bind; its bound holds in any case, for a module alone has all the memory.
    With more (`split_channels`) modules are solved in order, and nothing is proved. The better of
    that and the first plan of the exact planners (HEFT and simpler rules) is returned, so there
    is one even if no module was solved in time, or the modules together overflow a device.

    Options: `channels`, 1 to 4, or ``auto``: the fewest that make modules of at most
    `SOLVABLE_OPS` ops; `max_ops`, up to which neighbouring modules are joined; `solver` as of
    `diviml-milp`; `module_seconds` for one module and pair of devices. The time limit is the
    budget's, and `DEFAULT_SECONDS` if that has none.
    """

    name: ClassVar[str] = "milp-split"

    def __init__(
        self,
        channels: str = "auto",
        max_ops: str = "",
        solver: str = "highs",
        module_seconds: str = "",
    ) -> None:
        if channels not in ("auto", *(str(n) for n in range(1, MOST_CHANNELS + 1))):
            raise OptionError(
                f"planner 'milp-split': channels is '{channels}'; give auto or 1 to {MOST_CHANNELS}"
            )
        if max_ops and not (max_ops.isdecimal() and int(max_ops) > 0):
            raise OptionError(
                f"planner 'milp-split': max_ops is '{max_ops}'; give a whole number above 0"
            )
        if solver not in SOLVERS:
            raise OptionError(
                f"planner 'milp-split': solver is '{solver}'; choose {', '.join(SOLVERS)}"
            )
        self.channels = int(channels) if channels != "auto" else None
        self.max_ops = int(max_ops) if max_ops else None
        self.solver = solver
        self.module_seconds = _seconds(module_seconds) if module_seconds else MODULE_SECONDS

    def supports(self, problem: Problem) -> str | None:
        modules = self.modules(problem)
        largest = int(np.bincount(modules.op_module).argmax())
        part = subproblem(problem, modules.ops(largest)).problem
        refusal = self._exact(part).supports(part)
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
        found, bound = self._solve_modules(problem, modules, limit, seed, on_progress)
        if found is not None and (overfull := _overfull(problem, found)) is not None:
            reason = reason or no_room(problem, *overfull, self.name)
            found = None
        plans = [] if first is None else [first]
        if found is not None:
            plans += [timed(problem, found), timed(problem, Placement(found.device))]
        if not plans:
            raise reason or InfeasibleError(
                f"planner '{self.name}' found no plan; give it more time or the devices more memory"
            )
        best = min(plans, key=lambda each: each.value)
        return Proposal(best.placement, min(bound, best.value), self.name)

    # -- modules ---------------------------------------------------------------------------------

    def _split(self, problem: Problem, channels: int) -> Modules:
        joined = self.max_ops or (SOLVABLE_OPS if channels > 1 else None)
        return split_modules(problem, channels, joined)

    def _exact(self, problem: Problem) -> MilpPlanner:
        """DiviML's program where it holds, it is the smaller one; else Moirai's."""
        if problem.options.contention == "none":
            return _Diviml(solver=self.solver)
        return _Moirai(solver=self.solver)

    def _solve_modules(
        self, problem: Problem, modules: Modules, limit: Budget, seed: int, on_progress: Progress
    ) -> tuple[Placement | None, float]:
        exact = self._exact(problem)

        def solve(part: Problem, seconds: float) -> tuple[Placement, float]:
            if isinstance(exact, _Interruptible) and exact.interrupted:
                raise KeyboardInterrupt
            proposal = exact.plan(part, Budget(seconds), seed, no_progress)
            return timed(part, proposal.placement).placement, proposal.lower_bound

        if modules.is_exact:
            chain = Chain(problem, parts_of(modules), solve, self.module_seconds)
            done = chain.run(limit, on_progress)
            return done.placement, done.lower_bound
        try:
            return solve_in_order(modules, solve, self.module_seconds, limit, on_progress), 0.0
        except (InfeasibleError, KeyboardInterrupt):
            return None, 0.0


def _largest(modules: Modules) -> int:
    return int(np.bincount(modules.op_module).max())


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


def _overfull(problem: Problem, placement: Placement) -> tuple[int, np.ndarray] | None:
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
