"""Exact arcs of a chain of modules, bounded and solved by constraint programs (DiviML, §IV-B1).

DiviML solves every module for every pair of devices. Here an arc costs at first what its longest
path of ops says it cannot be less than, transfers paid; only the arcs of the shortest path are
looked at more closely, first bounded by more arguments, then solved, until that path is as long as
the best plan. An arc is of no use to a shorter plan if it is as long as that less the shortest ways
to it and from it: with this *cutoff* most arcs need not be solved, only excluded. What makes a
module hard are mostly not its ends, so one that is hard is first bounded for all pairs at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from operator import attrgetter

import numpy as np

from placewright.analysis.parts import Part, longest_paths
from placewright.bounds.latency.paths import lower_bound
from placewright.budget import Budget
from placewright.formulations.latency.incumbent import Incumbent
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.latency.exact.cases import BOUND_TURN, PROVED, Answer, Job, Method
from placewright.planners.latency.exact.parallel import Solvers
from placewright.planners.latency.modules.chain import Chain, Pair, Path

GUESSED, BOUNDED, SOLVED = range(3)


class ExactArcs:
    """The arcs of a `part`, and what is known of all of them together.

    `low[source, target]` bounds an arc; `value` is what was found, by one of `placements`;
    `guess` is `low` or, of an arc that has had all its time, `value`. `turns` that arcs have had;
    `turns_of_all`, the whole part with its ends free, of which all is known that so can be
    (`is_exhausted`). `is_hard`: not solved at once.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        self.low = np.maximum(longest_paths(part), lower_bound(part.sub.problem).value)
        self.guess = self.low.copy()
        self.value = np.full(self.low.shape, np.inf)
        self.level = np.full(self.low.shape, GUESSED)
        self.placements: dict[Pair, Placement] = {}
        self.turns: dict[Pair, int] = {}
        self.turns_of_all = 0
        self.is_exhausted = False
        self.is_hard = False

    def offer(self, pair: Pair, found: Incumbent) -> None:
        self._keep(pair, found.placement, found.value)

    def bound(self, pair: Pair) -> None:
        """By more than its longest path."""
        self._raise(pair, lower_bound(self.part.pinned(*pair).problem).value)
        self.level[pair] = BOUNDED

    def is_open(self, pair: Pair, turns: float = math.inf) -> bool:
        """Whether it is not solved, and has had fewer turns."""
        return bool(self.level[pair] < SOLVED) and self._turns(pair) < turns

    def job(self, pair: Pair, cutoff: float) -> Job:
        turns = self._turns(pair)
        low = float(self.low[pair])
        return Job(self.part.pinned(*pair), cutoff, until=turns + 1, first=turns, low=low)

    def take(self, pair: Pair, answer: Answer, method: Method) -> None:
        self.turns[pair] = answer.turns
        if answer.placement is not None:
            self._keep(pair, answer.placement, answer.value)
        self._raise(pair, answer.lower_bound)
        if answer.is_proved or answer.is_exhausted(method):
            self._close(pair)

    # -- all pairs at once -----------------------------------------------------------------------

    @property
    def may_ask_for_all(self) -> bool:
        return self.low.size > 1 and not self.is_exhausted

    def wants_all_before(self, pair: Pair) -> bool:
        """Whether a turn for all pairs is worth more than one for this arc.

        Its first, if another pair is solved: most of the pairs left are as long as that one, which
        then need no turns of their own. Of a hard part, all pairs have each turn before any one.
        """
        if not self.may_ask_for_all:
            return False
        if self.is_hard:
            return self.turns_of_all <= self._turns(pair)
        return self.turns_of_all == 0 and bool((self.level == SOLVED).any())

    def job_of_all(self, cutoffs: Floats) -> Job:
        cutoff = float(cutoffs[self.level < SOLVED].max())
        turns = self.turns_of_all
        return Job(self.part.sub, cutoff, until=turns + 1, first=turns)

    def take_all(self, answer: Answer, method: Method) -> None:
        self.turns_of_all = answer.turns
        self.is_exhausted |= answer.is_proved or answer.is_exhausted(method)
        pair = None if answer.placement is None else self.part.ends(answer.placement)
        if pair is not None and answer.placement is not None:
            self._keep(pair, answer.placement, answer.value)
        for source, target in np.argwhere(self.level < SOLVED).tolist():
            self._raise((source, target), answer.lower_bound)
        if pair is not None and answer.is_proved:
            self._close(pair)

    # -- what is known ---------------------------------------------------------------------------

    def _turns(self, pair: Pair) -> int:
        """Turns that it has had, or needs not have: quick ones, of a module found to be hard."""
        return self.turns.get(pair, BOUND_TURN if self.is_hard else 0)

    def _keep(self, pair: Pair, placement: Placement, value: float) -> None:
        if value < self.value[pair]:
            self.value[pair], self.placements[pair] = value, placement

    def _raise(self, pair: Pair, low: float) -> None:
        self.low[pair] = min(max(low, self.low[pair]), self.value[pair])
        self.guess[pair] = self.low[pair]

    def _close(self, pair: Pair) -> None:
        self.guess[pair], self.level[pair] = self.value[pair], SOLVED


Arc = tuple[ExactArcs, Pair]
GUESS, VALUE, LOW = attrgetter("guess"), attrgetter("value"), attrgetter("low")


class ExactChain:
    """Bounds and solves the arcs of a chain that its shortest path asks for."""

    def __init__(self, chain: Chain[ExactArcs], solvers: Solvers) -> None:
        self.chain, self.solvers = chain, solvers

    def steps(self, limit: Budget, turns: float = math.inf) -> Iterator[float]:
        """Bound and solve arcs until the shortest path is, yielding the share that is done.

        Or until all that are not have had so many turns.
        """
        while limit.left > 0 and not self.is_finished:
            path = self.chain.shortest(GUESS)
            asked = _open(path, turns)
            if not asked:
                break
            waiting = sum(arcs.is_open(pair) for arcs, pair in path.arcs)
            self._refine(self._with_others(asked, turns), limit)
            yield 1.0 - waiting / len(path.arcs)

    @property
    def is_finished(self) -> bool:
        """Whether no plan is shorter but for what arcs have been given up."""
        path = self.chain.shortest(GUESS)
        if not math.isfinite(path.length):
            return True
        return path.length >= self._best_length * (1 - PROVED / 10) or not _open(path)

    def placement(self) -> Placement | None:
        """The parts' plans on the shortest path of solved arcs, one after another."""
        path = self.chain.shortest(VALUE)
        if not math.isfinite(path.length):
            return None
        return self.chain.joined([arcs.placements[pair] for arcs, pair in path.arcs])

    @property
    def _best_length(self) -> float:
        return self.chain.shortest(VALUE).length

    def _with_others(self, asked: list[Arc], turns: float) -> list[Arc]:
        """And arcs that are likely to be asked for next, if there are threads left for them."""
        cost = {arcs: arcs.guess.copy() for arcs in self.chain.arcs}
        found = list(asked)
        while len(found) < self.solvers.at_once:
            for arcs, pair in asked:
                cost[arcs][pair] = np.inf
            path = self.chain.shortest(cost.__getitem__)
            asked = _open(path, turns)
            if not asked or path.length >= self._best_length:
                break
            found += asked[: self.solvers.at_once - len(found)]
        return found

    def _refine(self, asked: list[Arc], limit: Budget) -> None:
        """Bound the arcs that are not, or else solve them."""
        guessed = [(arcs, pair) for arcs, pair in asked if arcs.level[pair] == GUESSED]
        for arcs, pair in guessed:
            arcs.bound(pair)
        if not guessed:
            self._solve(asked, limit)

    def _solve(self, asked: list[Arc], limit: Budget) -> None:
        """Give arcs, or the parts they are of, a turn each; that may rule them out by the next."""
        method, cutoffs = self.solvers.method, self._cutoffs()
        wide = list(dict.fromkeys(arcs for arcs, pair in asked if arcs.wants_all_before(pair)))
        asked = [(arcs, pair) for arcs, pair in asked if arcs not in wide]
        jobs = [arcs.job_of_all(cutoffs[arcs]) for arcs in wide]
        jobs += [arcs.job(pair, float(cutoffs[arcs][pair])) for arcs, pair in asked]
        answers = self.solvers.solve(jobs, limit)
        for arcs, answer in zip(wide, answers, strict=False):
            arcs.take_all(answer, method)
        hard = []
        alone = slice(len(wide), None)
        for (arcs, pair), job, answer in zip(asked, jobs[alone], answers[alone], strict=True):
            arcs.take(pair, answer, method)
            if arcs.level[pair] < SOLVED and not answer.is_done(job.cutoff) and not arcs.is_hard:
                hard.append(arcs)
        self._find_hard(hard, limit)

    def _find_hard(self, hard: Iterable[ExactArcs], limit: Budget) -> None:
        """Of parts that were not solved at once all pairs are bounded first."""
        asked = []
        for arcs in dict.fromkeys(hard):
            arcs.is_hard = True
            if arcs.may_ask_for_all:
                arcs.turns_of_all = max(BOUND_TURN, arcs.turns_of_all)
                asked.append(arcs)
        cutoffs = self._cutoffs()
        jobs = [arcs.job_of_all(cutoffs[arcs]) for arcs in asked]
        for arcs, answer in zip(asked, self.solvers.solve(jobs, limit), strict=True):
            arcs.take_all(answer, self.solvers.method)

    def _cutoffs(self) -> dict[ExactArcs, Floats]:
        """`[source, target]` seconds: an arc that takes as long is on no path to a shorter plan.

        Of equal parts the most that any of them may take.
        """
        best = self._best_length
        found = {arcs: np.zeros(arcs.low.shape) for arcs in self.chain.arcs}
        for arcs, before, after in zip(self.chain.arcs, *self.chain.distances(LOW), strict=True):
            rest = before[:, None] + after[None, :]
            # Where there is no way at all, an infinite best plan says nothing of it either.
            allowed = np.subtract(best, rest, out=np.zeros_like(rest), where=np.isfinite(rest))
            np.maximum(found[arcs], allowed, out=found[arcs])
        return found


def _open(path: Path[ExactArcs], turns: float = math.inf) -> list[Arc]:
    """The arcs of a path that are not solved, and have had fewer turns; each once."""
    return list(dict.fromkeys(arc for arc in path.arcs if arc[0].is_open(arc[1], turns)))
