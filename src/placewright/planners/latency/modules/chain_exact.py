"""A chain of modules solved exactly, arc by arc, as its shortest path asks (DiviML, §IV-B1).

DiviML solves every module for every pair of devices. Here only the arcs of the shortest path are
looked at more closely, until that path is as long as the best plan. An arc is of no use to a
shorter plan if it is as long as that less the shortest ways to it and from it: with this *cutoff*
most arcs need not be solved, only excluded.

Arcs have turns, one after another, as many at a time as somebody is idle for; nobody waits for the
turns of others, and what one shows counts for the next that is asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from placewright.analysis.modules import Modules
from placewright.budget import Budget
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.latency.exact.cases import PROVED, Answer, Job, Method
from placewright.planners.latency.modules.arcs_exact import GUESSED, ExactArcs
from placewright.planners.latency.modules.chain import Chain, Pair, Path, chain_of
from placewright.planners.latency.modules.device_twins import DeviceTwins

Arc = tuple[ExactArcs, Pair]
REGIONS_FIRST, REGIONS_SHARE = 1.0, 0.5  # seconds for regions, then of the time since the start
GUESS, VALUE, LOW = attrgetter("guess"), attrgetter("value"), attrgetter("low")


@dataclass(frozen=True, eq=False)
class Turn:
    """A turn at an arc, or with `pair` None at all arcs of a part; `key` of what is solved."""

    arcs: ExactArcs
    pair: Pair | None
    job: Job
    key: tuple[bytes, ...]

    @property
    def what(self) -> tuple[ExactArcs, Pair | None]:
        return self.arcs, self.pair


class ExactChain:
    """Which arcs of a chain are to be solved next, and what is known of the whole.

    Arcs are bounded by regions too if it is built `with_regions`, for part of the time that passes:
    so what comes out depends on the clock.
    """

    def __init__(self, modules: Modules, with_regions: bool = True) -> None:
        twins = DeviceTwins.by_part(modules.problem)
        self.chain: Chain[ExactArcs] = chain_of(modules, lambda part: ExactArcs(part, twins(part)))
        self._begun, self._on_regions, self._with_regions = time.monotonic(), 0.0, with_regions
        self._unfilled = list(dict.fromkeys(self.chain.arcs))

    def next(
        self, under_way: Collection[Turn], limit: Budget, turns: float = math.inf
    ) -> Turn | None:
        """The most useful turn beside those under way; None if there is none, or no time.

        Of arcs that have had fewer than so many `turns`, those of the shortest path; if all of that
        are under way, of what is likely to be asked for next: the shortest path without them, if a
        plan along it could be better than the best. Arcs of a part of which all pairs are under way
        wait for what comes of that, unless nothing else is left.
        """
        self._bound_shortest(limit)
        if limit.left <= 0:
            return None
        return self._next(under_way, turns, True) or self._next(under_way, turns, False)

    def learn(self, placement: Placement) -> None:
        """Take over what a plan of the whole does with each part."""
        self.chain.learn(placement)

    def fill(self, limit: Budget) -> None:
        """Have a plan for every arc of each part that there is one of, as far as time allows."""
        waiting = self._unfilled
        while waiting and limit.left > 0 and waiting[-1].placements:
            waiting.pop().fill()

    def take(self, turn: Turn, answer: Answer, method: Method) -> None:
        """What a turn has shown."""
        if turn.pair is None:
            turn.arcs.take_all(answer, method)
        else:
            turn.arcs.take(turn.pair, answer, turn.job.cutoff, method)

    @property
    def is_finished(self) -> bool:
        """Whether no plan is shorter but for what arcs have been given up."""
        path = self.chain.shortest(GUESS)
        return not self._could_be_better(path) or not _open(path)

    @property
    def is_proved(self) -> bool:
        """Whether no plan is shorter than the best."""
        best = self.chain.shortest(VALUE).length
        return self.chain.shortest(LOW).length >= best * (1 - PROVED / 10)

    @property
    def done(self) -> float:
        """The share of the shortest path that is solved."""
        path = self.chain.shortest(GUESS)
        return 1.0 - sum(arcs.is_open(pair) for arcs, pair in path.arcs) / len(path.arcs)

    def placement(self) -> Placement | None:
        """The parts' plans on the shortest path of solved arcs, one after another."""
        path = self.chain.shortest(VALUE)
        if not math.isfinite(path.length):
            return None
        return self.chain.joined([arcs.placement(pair) for arcs, pair in path.arcs])

    # -- what is next ----------------------------------------------------------------------------

    def _bound_shortest(self, limit: Budget) -> None:
        """By more than their longest paths: all arcs of what is the shortest path after that."""
        while limit.left > 0:
            arcs_of_path = self.chain.shortest(GUESS).arcs
            guessed = {
                (arcs, arcs.first_like(pair))
                for arcs, pair in arcs_of_path
                if arcs.level[pair] == GUESSED
            }
            for arcs, pair in guessed:
                if limit.left > 0:
                    arcs.bound(pair)
            if not guessed and not self._bound_by_regions(arcs_of_path, limit):
                return

    def _bound_by_regions(self, path: Collection[Arc], limit: Budget) -> bool:
        """The arcs of a path not bounded so yet, while there is time; whether there were any."""
        is_any = False
        for arcs, pair in path:
            if arcs.with_regions[pair] or not (arcs.is_open(pair) and arcs.has_regions):
                continue
            started = time.monotonic()
            allowed = max(REGIONS_FIRST, REGIONS_SHARE * (started - self._begun))
            if not self._with_regions or self._on_regions >= allowed or limit.left <= 0:
                break
            arcs.bound_by_regions(pair, limit)
            self._on_regions += time.monotonic() - started
            is_any = True
        return is_any

    def _next(self, under_way: Collection[Turn], turns: float, waits: bool) -> Turn | None:
        cost = {arcs: arcs.guess for arcs in self.chain.arcs}
        while True:
            path = self.chain.shortest(cost.__getitem__)
            asked = _open(path, turns)
            if not asked or not self._could_be_better(path):
                return None
            for arcs, pair in asked:
                turn = self._turn(arcs, pair, under_way, waits)
                if turn is not None:
                    return turn
            for arcs, pair in asked:
                cost[arcs] = cost[arcs].copy()
                cost[arcs][arcs.cells(pair)] = np.inf

    def _turn(
        self, arcs: ExactArcs, pair: Pair, under_way: Collection[Turn], waits: bool
    ) -> Turn | None:
        """A turn at the arc, or at all of its part, unless that is under way, or an equal one."""
        busy = {turn.what for turn in under_way}
        if (arcs, pair) in busy or (waits and (arcs, None) in busy):
            return None
        cutoffs = self._cutoffs(arcs, LOW)
        for_all = arcs.wants_all_before(pair) and (arcs, None) not in busy
        if arcs.level[pair] == GUESSED:
            arcs.bound(pair)
        if arcs.low[pair] >= cutoffs[pair]:
            return None
        # At least this much must be shown of it in the end; beyond, it depends on the others.
        needed = np.minimum(self._cutoffs(arcs, VALUE), cutoffs)
        cutoffs = np.where(needed > arcs.low * (1 + PROVED), needed, cutoffs)
        job = arcs.job_of_all(cutoffs) if for_all else arcs.job(pair, float(cutoffs[pair]))
        turn = Turn(arcs, None if for_all else pair, job, job.sub.key())
        return None if turn.key in {each.key for each in under_way} else turn

    def _could_be_better(self, path: Path[ExactArcs]) -> bool:
        return path.length < self.chain.shortest(VALUE).length * (1 - PROVED / 10)

    def _cutoffs(self, arcs: ExactArcs, table: Callable[[ExactArcs], Floats]) -> Floats:
        """`[source, target]` seconds: an arc that takes as long is on no path to a shorter plan.

        If all other arcs take what `table` says. Of equal parts the most that any of them may take.
        """
        best = self.chain.shortest(VALUE).length
        found = np.zeros(arcs.low.shape)
        for each, before, after in zip(self.chain.arcs, *self.chain.distances(table), strict=True):
            if each is not arcs:
                continue
            rest = before[:, None] + after[None, :]
            # Where there is no way at all, an infinite best plan says nothing of it either.
            allowed = np.subtract(best, rest, out=np.zeros_like(rest), where=np.isfinite(rest))
            np.maximum(found, allowed, out=found)
        return found


def _open(path: Path[ExactArcs], turns: float = math.inf) -> list[Arc]:
    """The arcs of a path that are not solved and have had fewer turns, of twins one.

    Those of the fewest turns first.
    """
    if not math.isfinite(path.length):
        return []
    waiting = [(arcs, pair) for arcs, pair in path.arcs if arcs.is_open(pair, turns)]
    asked = dict.fromkeys((arcs, arcs.first_like(pair)) for arcs, pair in waiting)
    return sorted(asked, key=lambda arc: arc[0].turns_of(arc[1]))
