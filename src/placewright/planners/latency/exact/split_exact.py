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
from dataclasses import dataclass

import numpy as np

from placewright.analysis.parts import (
    ROUNDING,
    Arc,
    Part,
    joined,
    longest_paths,
    shortest_path,
)
from placewright.analysis.subproblem import Subproblem
from placewright.bounds.latency.paths import lower_bound
from placewright.budget import Budget
from placewright.formulations.latency.incumbent import timed
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.latency.exact.cases import BOUND_TURN, PROVED, Answer, Job
from placewright.planners.latency.exact.parallel import Solvers
from placewright.problem import Problem

GUESSED, BOUNDED, SOLVED = range(3)


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
            arcs, _ = shortest_path(self.guess)
            waiting = self._waiting(arcs, np.inf)
            asked = self._waiting(arcs, turns)
            if not asked:
                break
            self._refine(self._with_others(asked, turns), limit)
            yield 1.0 - len(waiting) / len(self.parts)

    @property
    def is_finished(self) -> bool:
        """Whether no plan is shorter but for what arcs have been given up."""
        arcs, length = shortest_path(self.guess)
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
            arcs, length = shortest_path(cost)
            asked = self._waiting(arcs, turns)
            if not asked or length >= self._best_length():
                break
            found += asked[: self.solvers.at_once - len(found)]
        return found

    def result(self) -> Chained:
        """What is known so far."""
        bound = shortest_path(self.low)[1] * (1 - ROUNDING * len(self.parts))
        return Chained(self._stitched(), bound if np.isfinite(bound) else 0.0)

    # -- bounds of arcs --------------------------------------------------------------------------

    def _paths(self, part: Part) -> Floats:
        """`[source, target]` the longest path, and what bounds the part wherever its ends are."""
        return np.maximum(longest_paths(part), self._bound(part.sub))

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
        return shortest_path(self.value)[1]

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
        arcs, length = shortest_path(self.value)
        if not np.isfinite(length):
            return None
        return joined(self.problem, self.parts, [self.placements[arc] for arc in arcs])
