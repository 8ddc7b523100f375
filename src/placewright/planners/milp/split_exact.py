"""The dynamic program over modules that hang together by one channel (DiviML, §IV-B1).

Time is cut at every cut op: all earlier ops and transfers are done when it ends, no later one has
begun. So a schedule is a path over (boundary, device of its cut op), and the shortest path over
the modules' least durations is the optimum, memory aside (modules share it).

DiviML solves every module for every pair of devices. Here an arc costs at first what its longest
path of ops says it cannot be less than, transfers paid; only the arcs of the shortest path are
looked at more closely, first bounded by more arguments, then solved, until that path is as long as
the best plan. An arc is of no use to a shorter plan if it is as long as that less the shortest ways
to it and from it: with this *cutoff* most arcs need not be solved, only excluded. What makes a
module hard are mostly not its ends, so one that is hard is first bounded for all pairs at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placewright.bounds.latency import lower_bound
from placewright.coarsen.modules import Modules
from placewright.graph import Flags, Floats, Ints
from placewright.plan import Placement
from placewright.planners.base import Budget
from placewright.planners.milp.incumbent import timed
from placewright.planners.milp.parallel import BOUND_TURN, PROVED, Answer, Job, Solvers
from placewright.planners.milp.subproblem import Subproblem, subproblem
from placewright.problem import Problem

ROUNDING = 1e-12
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

    def restricted(self, placement: Placement) -> tuple[tuple[int, int], Placement]:
        """What a placement of the whole is here: its pair of devices, and its plan of the part."""
        here = self.sub.restricted(placement)
        return self.ends(here), here

    def ends(self, placement: Placement) -> tuple[int, int]:
        """The pair of devices of a placement of the part; device 0 at an end of the chain."""
        ops = self.sub.ops.tolist()
        source, target = (
            int(placement.device[ops.index(op)]) if op >= 0 else 0
            for op in (self.before, self.after)
        )
        return source, target

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

    `low[part][u, v]` bounds the part's duration; `guess` is that or, of an arc that has had all
    its time, what was found; `value` is what was found. Parts with equal arrays share
    their results.
    """

    def __init__(self, problem: Problem, parts: list[Part], solvers: Solvers) -> None:
        self.problem = problem
        self.parts = parts
        self.solvers = solvers
        self.bounds: dict[tuple[bytes, ...], float] = {}
        self.placements: dict[Arc, Placement] = {}
        self.turns: dict[Arc, int] = {}
        self.hard: set[int] = set()
        self.turns_of_all: dict[int, int] = {}  # pairs of a part at once
        self.whole: set[int] = set()  # parts of which all that so can be known is
        self.low = [self._paths(part) for part in parts]
        self.guess = [each.copy() for each in self.low]
        self.value = [np.full(each.shape, np.inf) for each in self.low]
        self.level = [np.full(each.shape, GUESSED) for each in self.low]

    def learn(self, placement: Placement) -> None:
        """Take over a plan's plans of the parts."""
        for number, part in enumerate(self.parts):
            at, here = part.restricted(placement)
            found = timed(part.sub.problem, here)
            self._offer((number, *at), found.placement, found.value)

    def steps(self, limit: Budget, turns: float = np.inf) -> Iterator[float]:
        """Bound and solve arcs until the shortest path is, yielding the share that is done.

        Or until all that are not have had so many turns.
        """
        while limit.left > 0 and not self.is_finished:
            arcs, _ = _shortest(self.guess)
            waiting = self._waiting(arcs, np.inf)
            asked = self._waiting(arcs, turns)
            if not asked:
                break
            self._refine(self._with_others(asked, turns), limit)
            yield 1.0 - len(waiting) / len(self.parts)

    @property
    def is_finished(self) -> bool:
        """Whether no plan is shorter but for what arcs have been given up."""
        arcs, length = _shortest(self.guess)
        if not np.isfinite(length) or length >= self._best_length() * (1 - PROVED / 10):
            return True
        return not self._waiting(arcs, np.inf)

    def _waiting(self, arcs: list[Arc], turns: float) -> list[Arc]:
        """Those that are not solved, and have had fewer turns."""
        return [
            arc for arc in arcs if self.level[arc[0]][arc[1:]] < SOLVED and self._turns(arc) < turns
        ]

    def _with_others(self, asked: list[Arc], turns: float) -> list[Arc]:
        """And arcs that are likely to be asked for next, if there are threads left for them."""
        cost = [each.copy() for each in self.guess]
        found = list(asked)
        while len(found) < self.solvers.at_once:
            for part, *pair in asked:
                cost[part][tuple(pair)] = np.inf
            arcs, length = _shortest(cost)
            asked = self._waiting(arcs, turns)
            if not asked or length >= self._best_length():
                break
            found += asked[: self.solvers.at_once - len(found)]
        return found

    def result(self) -> Chained:
        """What is known so far."""
        bound = _shortest(self.low)[1] * (1 - ROUNDING * len(self.parts))
        return Chained(self._stitched(), bound if np.isfinite(bound) else 0.0)

    # -- bounds of arcs --------------------------------------------------------------------------

    def _paths(self, part: Part) -> Floats:
        """`[source, target]` the longest path, each op on its best device given what it reads.

        `inf` where a cut op cannot be.
        """
        sub = part.sub
        problem = sub.problem
        time = np.where(problem.unit_allowed[problem.op_unit], problem.op_time, np.inf)
        first = self._open(part.before)
        finish = np.tile(time[:, None, :], (1, len(first), 1))  # [op, source, device]
        if part.before >= 0:
            finish[0] = np.where(np.eye(len(first), dtype=bool), finish[0], np.inf)
        offsets, edges = problem.op_inputs
        for op in problem.topological_order.tolist():
            start = np.zeros(finish.shape[1:])
            for edge in edges[offsets[op] : offsets[op + 1]].tolist():
                done = finish[problem.edge_producer[edge]]
                move = _moves(problem, edge)
                np.maximum(start, (done[:, :, None] + move).min(axis=1), out=start)
            finish[op] += start
        if part.after >= 0:
            cost = finish[int(np.flatnonzero(sub.ops == part.after)[0])]
        else:
            cost = finish.min(axis=2).max(axis=0)[:, None]
        closed = ~(first[:, None] & self._open(part.after)[None, :])
        cost = np.maximum(cost * (1 - ROUNDING * len(sub.ops)), self._bound(sub))
        cost[closed] = np.inf
        return np.asarray(cost)

    def _open(self, cut_op: int) -> Flags:
        """`[device]` whether the cut op can be there; one device for both ends of the chain."""
        if cut_op < 0:
            return np.ones(1, dtype=np.bool_)
        problem, unit = self.problem, self.problem.op_unit[cut_op]
        room = problem.unit_memory[unit] <= problem.device_memory
        open_to: Flags = np.isfinite(problem.unit_time[unit]) & room
        return open_to

    def _bound(self, sub: Subproblem) -> float:
        key = sub.key()
        if key not in self.bounds:
            self.bounds[key] = lower_bound(sub.problem).value
        return self.bounds[key]

    def _raise(self, arc: Arc, low: float) -> None:
        part, at = arc[0], arc[1:]
        low = max(low, float(self.low[part][at]))
        self.low[part][at] = min(low, float(self.value[part][at]))
        self.guess[part][at] = self.low[part][at]

    # -- solving ---------------------------------------------------------------------------------

    def _refine(self, arcs: list[Arc], limit: Budget) -> None:
        """Bound the arcs that are not, or else solve them."""
        guessed = [arc for arc in arcs if self.level[arc[0]][arc[1:]] == GUESSED]
        for arc in guessed:
            self._raise(arc, self._bound(self.parts[arc[0]].pinned(*arc[1:])))
            self.level[arc[0]][arc[1:]] = BOUNDED
        if not guessed:
            self._solve(arcs, limit)

    def _solve(self, arcs: list[Arc], limit: Budget) -> None:
        """Give arcs, or the parts they are of, a turn each; that may rule them out by the next."""
        parts = sorted({arc[0] for arc in arcs if self._comes_after_all_pairs(arc)})
        arcs = [arc for arc in arcs if arc[0] not in parts]
        jobs = [self._job_of_all_pairs(part) for part in parts]
        jobs += [self._job(arc) for arc in arcs]
        answers = self.solvers.solve(jobs, limit)
        for part, answer in zip(parts, answers, strict=False):
            self._take_all_pairs(part, answer)
        hard = set()
        alone = slice(len(parts), None)
        for arc, job, answer in zip(arcs, jobs[alone], answers[alone], strict=True):
            self.turns[arc] = answer.turns
            self._take(arc, answer)
            if self.level[arc[0]][arc[1:]] < SOLVED and not answer.is_done(job.cutoff):
                hard.add(arc[0])
        self._find_hard(sorted(hard - self.hard), limit)

    def _job(self, arc: Arc) -> Job:
        turns = self._turns(arc)
        sub = self.parts[arc[0]].pinned(*arc[1:])
        low = float(self.low[arc[0]][arc[1:]])
        return Job(sub, self._cutoff(arc), until=turns + 1, first=turns, low=low)

    def _turns(self, arc: Arc) -> int:
        """Turns that it has had, or needs not have: quick ones, of a module found to be hard."""
        return self.turns.get(arc, BOUND_TURN if arc[0] in self.hard else 0)

    def _take(self, arc: Arc, answer: Answer) -> None:
        if answer.placement is not None:
            self._offer(arc, answer.placement, answer.value)
        self._raise(arc, answer.lower_bound)
        if answer.is_proved or answer.is_exhausted(self.solvers.method):
            self._close(arc)

    def _close(self, arc: Arc) -> None:
        part, at = arc[0], arc[1:]
        self.guess[part][at], self.level[part][at] = self.value[part][at], SOLVED

    # -- all pairs of a part at once -------------------------------------------------------------

    def _comes_after_all_pairs(self, arc: Arc) -> bool:
        """Whether a turn for all pairs is worth more than one for this arc.

        Its first, if another pair is solved: most of the pairs left are as long as that one, which
        then need no turns of their own. Of a hard part, all pairs have each turn before any one.
        """
        part = arc[0]
        if self.low[part].size == 1 or part in self.whole:
            return False
        turns = self.turns_of_all.get(part, 0)
        if part in self.hard:
            return turns <= self._turns(arc)
        return turns == 0 and bool((self.level[part] == SOLVED).any())

    def _job_of_all_pairs(self, part: int) -> Job:
        turns = self.turns_of_all.get(part, 0)
        waiting = np.argwhere(self.level[part] < SOLVED).tolist()
        cutoff = max(self._cutoff((part, source, target)) for source, target in waiting)
        return Job(self.parts[part].sub, cutoff, until=turns + 1, first=turns)

    def _take_all_pairs(self, part: int, answer: Answer) -> None:
        self.turns_of_all[part] = answer.turns
        if answer.is_proved or answer.is_exhausted(self.solvers.method):
            self.whole.add(part)
        if answer.placement is not None:
            at = self.parts[part].ends(answer.placement)
            self._offer((part, *at), answer.placement, answer.value)
        for source, target in np.ndindex(*self.low[part].shape):
            if self.level[part][source, target] < SOLVED:
                self._raise((part, source, target), answer.lower_bound)
        if answer.placement is not None and answer.is_proved:
            self._close((part, *at))

    def _find_hard(self, parts: list[int], limit: Budget) -> None:
        """Of parts that were not solved at once all pairs are bounded first."""
        self.hard.update(parts)
        parts = [part for part in parts if self.low[part].size > 1 and part not in self.whole]
        for part in parts:
            self.turns_of_all[part] = max(BOUND_TURN, self.turns_of_all.get(part, 0))
        jobs = [self._job_of_all_pairs(part) for part in parts]
        for part, answer in zip(parts, self.solvers.solve(jobs, limit), strict=True):
            self._take_all_pairs(part, answer)

    def _offer(self, arc: Arc, placement: Placement, value: float) -> None:
        part, at = arc[0], arc[1:]
        if value < self.value[part][at]:
            self.value[part][at], self.placements[arc] = value, placement

    def _cutoff(self, arc: Arc) -> float:
        """An arc that takes longer is on no path that is shorter than the best plan."""
        part, source, target = arc
        before, after = self._distances
        rest = before[part][source] + after[part + 1][target]
        return max(0.0, self._best_length() - float(rest))

    # -- the plan --------------------------------------------------------------------------------

    def _best_length(self) -> float:
        return _shortest(self.value)[1]

    @property
    def _distances(self) -> tuple[list[Floats], list[Floats]]:
        """By `low`: from the start to each device before each part, and from there to the end."""
        before = [np.zeros(self.low[0].shape[0])]
        for each in self.low:
            before.append((before[-1][:, None] + each).min(axis=0))
        after = [np.zeros(self.low[-1].shape[1])]
        for each in self.low[::-1]:
            after.append((each + after[-1][None, :]).min(axis=1))
        return before, after[::-1]

    def _stitched(self) -> Placement | None:
        """The parts' plans on the shortest path of solved arcs, one after another."""
        arcs, length = _shortest(self.value)
        if not np.isfinite(length):
            return None
        device = np.full(self.problem.op_count, -1)
        items = []
        for arc in arcs:
            part, placement = self.parts[arc[0]], self.placements[arc]
            device[part.sub.ops] = placement.device
            items.append(part.sub.items(placement, skipped=1 if part.before >= 0 else 0))
        return Placement(device, np.concatenate(items))


def _moves(problem: Problem, edge: int) -> Floats:
    """`[source, target]` seconds of the edge's transfer; `inf` where its ops must be together."""
    size = problem.tensor_bytes[problem.edge_tensor[edge]]
    move: Floats = problem.link_latency + size * problem.link_seconds_per_byte
    unit = problem.op_unit
    if unit[problem.edge_producer[edge]] == unit[problem.consumers[edge]]:
        move = np.full_like(move, np.inf)
    else:
        move = move.copy()
    np.fill_diagonal(move, 0.0)
    return move


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
