"""The dynamic program over modules that hang together by one channel (DiviML, §IV-B1).

Time is cut at every cut op: all earlier ops and transfers are done when it ends, no later one has
begun. So a schedule is a path over (boundary, device of its cut op), and the shortest path over
the modules' least durations is the optimum, memory aside (modules share it).

DiviML solves every module for every pair of devices. Here an arc costs at first what a bound says
it cannot be less than; only the arcs of the shortest path are looked at more closely, first
bounded with their pins, then solved, until the shortest path has solved arcs only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placewright.bounds.latency import lower_bound
from placewright.coarsen.modules import Modules
from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.planners.base import Budget, Progress
from placewright.planners.milp.parallel import PROVED, Solvers
from placewright.planners.milp.subproblem import Subproblem, subproblem
from placewright.problem import Problem

ROUNDING = 1e-12
FIRST_SECONDS = 0.5  # for an arc; twice that each time the shortest path needs it again
GUESSED, BOUNDED, SOLVED = range(3)

Arc = tuple[int, int, int]
"""A part, the device of the cut op before it and that of its own."""


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive modules between two cut ops, -1 for none at the ends of the chain."""

    whole: Problem
    ops: Ints
    before: int
    after: int

    @cached_property
    def sub(self) -> Subproblem:
        """Its ops, after the cut op before it, which has ended: no time, no memory."""
        if self.before < 0:
            return subproblem(self.whole, self.ops)
        sub = subproblem(self.whole, np.concatenate([[self.before], self.ops]))
        time, memory = sub.problem.op_time.copy(), sub.problem.op_memory.copy()
        time[0], memory[0] = 0.0, 0.0
        return replace(sub, problem=replace(sub.problem, op_time=time, op_memory=memory))

    def pinned(self, source: int, target: int) -> Subproblem:
        """With the cut op before it on device `source`, its own on `target`."""
        pins = {}
        if self.before >= 0:
            pins[int(self.sub.problem.op_unit[0])] = source
        if self.after >= 0:
            op = int(np.flatnonzero(self.sub.ops == self.after)[0])
            pins[int(self.sub.problem.op_unit[op])] = target
        return replace(self.sub, problem=self.sub.problem.with_pins(pins))


def parts_of(modules: Modules) -> list[Part]:
    """The modules, joined where ops that must be together lie in several of them."""
    problem = modules.problem
    unit, module = problem.op_unit, modules.op_module
    first = np.full(problem.unit_count, modules.count)
    last = np.zeros(problem.unit_count, dtype=np.int64)
    np.minimum.at(first, unit, module)
    np.maximum.at(last, unit, module)
    spans = np.bincount(first, minlength=modules.count) - np.bincount(last, minlength=modules.count)
    kept = np.flatnonzero(np.cumsum(spans)[:-1] == 0)
    ends = [*kept.tolist(), modules.count - 1]
    parts, begin, before = [], 0, -1
    for end in ends:
        ops = np.concatenate([modules.ops(t) for t in range(begin, end + 1)])
        after = int(modules.cut_op[end]) if end < modules.count - 1 else -1
        parts.append(Part(problem, ops, before, after))
        begin, before = end + 1, after
    return parts


@dataclass(frozen=True, eq=False)
class Chained:
    """The stitched placement with its sequence, or None, and the bound on every plan."""

    placement: Placement | None
    lower_bound: float


class Chain:
    """The shortest path over the parts' arcs; see the module's docstring.

    `low[part][u, v]` bounds the part's duration, `guess` is that or, once solved, what was
    found. Parts with equal arrays share their results.
    """

    def __init__(
        self, problem: Problem, parts: list[Part], solvers: Solvers, seconds: float
    ) -> None:
        self.problem = problem
        self.parts = parts
        self.solvers = solvers
        self.seconds = seconds
        self.bounds: dict[tuple[bytes, ...], float] = {}
        self.placements: dict[Arc, Placement | None] = {}
        self.low = [self._cheap(part) for part in parts]
        self.guess = [each.copy() for each in self.low]
        self.value = [np.full(each.shape, np.inf) for each in self.low]
        self.tries: dict[Arc, int] = {}
        self.level = [np.full(each.shape, GUESSED) for each in self.low]

    def refine(self, limit: Budget, on_progress: Progress) -> None:
        """Bound and solve arcs until the shortest path is solved, or time is up."""
        while limit.left > 0:
            arcs, length = _shortest(self.guess)
            waiting = [arc for arc in arcs if self.level[arc[0]][arc[1:]] < SOLVED]
            if not waiting or not np.isfinite(length):
                break
            self._refine(waiting, limit)
            done = sum(int((each == SOLVED).any()) for each in self.level)
            on_progress("modules solved", done / len(self.parts))

    def result(self) -> Chained:
        """What is known so far."""
        bound = _shortest(self.low)[1] * (1 - ROUNDING * len(self.parts))
        return Chained(self._stitched(), bound if np.isfinite(bound) else 0.0)

    # -- arcs ------------------------------------------------------------------------------------

    def _cheap(self, part: Part) -> Floats:
        """`[source, target]` a bound for all pairs of devices; `inf` where a cut op cannot be."""
        value = self._bound(part.sub)
        before, after = self._open(part.before), self._open(part.after)
        cost: Floats = np.where(before[:, None] & after[None, :], value, np.inf)
        return cost

    def _open(self, cut_op: int) -> Ints:
        """`[device]` whether the cut op can be there; one device for both ends of the chain."""
        if cut_op < 0:
            return np.ones(1, dtype=bool)
        problem, unit = self.problem, self.problem.op_unit[cut_op]
        room = problem.unit_memory[unit] <= problem.device_memory
        open_to: Ints = np.isfinite(problem.unit_time[unit]) & room
        return open_to

    def _bound(self, sub: Subproblem) -> float:
        key = sub.key()
        if key not in self.bounds:
            self.bounds[key] = lower_bound(sub.problem).value
        return self.bounds[key]

    def _refine(self, arcs: list[Arc], limit: Budget) -> None:
        """Bound the arcs that are not, or else solve them."""
        guessed = [arc for arc in arcs if self.level[arc[0]][arc[1:]] == GUESSED]
        for part, *pair in guessed:
            source, target = pair
            at = source, target
            low = max(self._bound(self.parts[part].pinned(*at)), float(self.low[part][at]))
            self.low[part][at] = self.guess[part][at] = low
            self.level[part][at] = BOUNDED
        if not guessed:
            self._solve(arcs, limit)

    def _solve(self, arcs: list[Arc], limit: Budget) -> None:
        """Solve arcs, for longer than last time; what is proved may rule them out by then."""
        share = min(self.seconds, max(limit.left, 0.0) * self.solvers.processes / len(arcs))
        tries = max(self.tries.get(arc, 0) for arc in arcs)
        seconds = share if self.solvers.method.nodes else min(share, FIRST_SECONDS * 2.0**tries)
        subs = [self.parts[part].pinned(source, target) for part, source, target in arcs]
        for arc, answer in zip(arcs, self.solvers.solve(subs, seconds, limit), strict=True):
            part, at = arc[0], arc[1:]
            self.tries[arc] = tries + 1
            if answer.value <= self.value[part][at]:
                self.value[part][at], self.placements[arc] = answer.value, answer.placement
            value = float(self.value[part][at])
            low = min(max(answer.lower_bound, float(self.low[part][at])), value)
            self.low[part][at] = low
            if seconds >= share or value - low <= PROVED * value:
                self.guess[part][at], self.level[part][at] = value, SOLVED
            else:
                self.guess[part][at] = low

    # -- the plan --------------------------------------------------------------------------------

    def _stitched(self) -> Placement | None:
        """The parts' plans on the shortest path of solved arcs, one after another."""
        arcs, length = _shortest(self.value)
        if not np.isfinite(length):
            return None
        device = np.full(self.problem.op_count, -1)
        items = []
        for arc in arcs:
            part, placement = self.parts[arc[0]], self.placements[arc]
            assert placement is not None  # its duration is finite
            device[part.sub.ops] = placement.device
            items.append(part.sub.items(placement, skipped=1 if part.before >= 0 else 0))
        return Placement(device, np.concatenate(items))


def _shortest(cost: list[Floats]) -> tuple[list[Arc], float]:
    """The arcs `(part, source, target)` of a shortest path, and its length."""
    total = np.zeros(cost[0].shape[0])
    choices = []
    for each in cost:
        lengths = total[:, None] + each
        choices.append(lengths.argmin(axis=0))
        total = lengths.min(axis=0)
    at = int(total.argmin())
    length = float(total[at])
    arcs = []
    for part in range(len(cost) - 1, -1, -1):
        source = int(choices[part][at])
        arcs.append((part, source, at))
        at = source
    return arcs[::-1], length
