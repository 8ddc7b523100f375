"""Arcs of a chain and neighbourhoods of the best plan, side by side, as threads are idle.

An arc raises the bound, and may lead to a better plan; a neighbourhood makes the plan better, which
lowers the cutoff of every arc after it. Nobody waits for others: whoever is idle is given whichever
of the two has had less than its share of the time. Neighbourhoods have two fifths of it while they
help, and ever less afterwards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError
from placewright.plan import Placement
from placewright.planners.latency.exact.cases import Case
from placewright.planners.latency.exact.parallel import Solvers
from placewright.planners.latency.exact.remote import RemoteCrew
from placewright.planners.latency.modules.chain_exact import ExactChain, Turn
from placewright.planners.latency.search.annealed_start import PER_OP, SHARE, annealed_start
from placewright.planners.latency.search.neighbourhoods import Search, Try
from placewright.planners.latency.search.state import State
from placewright.problem import Problem
from placewright.solvers.running import POLL_SECONDS, Crew

ARCS_FIRST = 1.0  # seconds of arcs alone, which is enough for many a chain
SEARCHING = 0.4  # the share of the time for neighbourhoods, while they help
HALVING = 10  # neighbourhoods in a row that bring nothing, after which their share is half as large
MOST_IN_VAIN = 200  # after which there are no more
SHORT_SECONDS = 0.05  # what a work under way counts for at least


@dataclass(eq=False)
class Work:
    """What a thread does (`solvers.running.Work`)."""

    given: float = field(default_factory=time.monotonic, kw_only=True)

    @property
    def elapsed(self) -> float:
        return max(time.monotonic() - self.given, SHORT_SECONDS)

    def do(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError


@dataclass(eq=False)
class Arc(Work):
    """A turn at an arc."""

    turn: Turn
    case: Case
    limit: Budget

    def do(self) -> None:
        self.case.solve(self.limit)

    def stop(self) -> None:
        self.case.stop()


@dataclass(eq=False)
class Anew(Work):
    """A neighbourhood placed anew."""

    tried: Try

    def do(self) -> None:
        self.tried.do()

    def stop(self) -> None:
        self.tried.stop()


@dataclass(eq=False)
class Start(Work):
    """A plan to search from, found by annealing."""

    problem: Problem
    limit: Budget
    seed: int
    found: Placement | None = None

    def do(self) -> None:
        evaluations = PER_OP * self.problem.op_count
        with suppress(InfeasibleError):  # there are plans, but no simple one
            self.found, _ = annealed_start(
                self.problem, self.limit, evaluations, self.seed, no_progress
            )

    def stop(self) -> None:
        self.limit.seconds = 0.0


class ChainSearch:
    """What a chain's arcs show, with neighbourhoods of the best plan beside them if it searches.

    Arcs are solved by the threads of `solvers`, or on its Ray workers; the rest by threads.
    """

    def __init__(self, chain: ExactChain, solvers: Solvers, search: Search | None) -> None:
        self.chain, self.solvers, self.search = chain, solvers, search
        self._has_begun = self._has_start = search is None
        self._in_vain = 0
        self._spent: dict[type[Work], float] = {Arc: 0.0, Anew: 0.0, Start: 0.0}

    def steps(self, limit: Budget, turns: float = math.inf) -> Iterator[float]:
        """Each time something is done, the share of the shortest path that is.

        Until the shortest path is solved, given up or has had so many `turns`, and no neighbourhood
        is left; or time is up. After Ctrl-C threads are stopped, and KeyboardInterrupt is raised.
        """
        with ExitStack() as stack:
            crew = stack.enter_context(Crew[Work](self.solvers.workers))
            remote = None
            if self.solvers.pool is not None:
                remote = RemoteCrew[Arc](self.solvers.pool, limit)
                stack.callback(self.solvers.pool.kill)
            while limit.left > 0 and not self.chain.is_proved:
                while crew.idle and (work := self._next(crew.working, limit, turns, remote)):
                    crew.give(work)
                while remote and remote.idle and (arc := self._arc(remote.working, limit, turns)):
                    remote.give(arc)
                if not crew.working and not (remote and remote.working):
                    return
                heard = crew.heard(POLL_SECONDS) if crew.working else []
                if remote and remote.working:
                    heard += remote.heard(0.0 if crew.working else POLL_SECONDS)
                for each in heard:
                    self._learn(each)
                if heard:
                    yield self.chain.done

    def take(self, state: State) -> None:
        """A better plan, whoever found it."""
        self.chain.learn(state.placement)
        if self.search is not None:
            self.search.take(state)

    # -- who is given what -----------------------------------------------------------------------

    def _next(
        self, working: Sequence[Work], limit: Budget, turns: float, remote: RemoteCrew[Arc] | None
    ) -> Work | None:
        arc = None
        if remote is None and not (self._owes_start(working) or self._owes_neighbourhood(working)):
            arc = self._arc([each for each in working if isinstance(each, Arc)], limit, turns)
        return arc or self._first(limit) or self._anew(working, limit)

    def _owes_start(self, working: Sequence[Work]) -> bool:
        arcs = self._spent[Arc] + sum(each.elapsed for each in working)
        return not self._has_begun and arcs >= ARCS_FIRST

    def _first(self, limit: Budget) -> Start | None:
        if self._has_begun or self.search is None:
            return None
        self._has_begun = True
        seconds = SHARE * limit.left
        return Start(self.search.best.problem, Budget(seconds), self.solvers.method.seed)

    def _owes_neighbourhood(self, working: Sequence[Work]) -> bool:
        """Whether neighbourhoods have had less than their share of the time."""
        if not self._may_search:
            return False
        spent = dict(self._spent)
        for each in working:
            spent[type(each)] += each.elapsed
        share = SEARCHING * 0.5 ** (self._in_vain / HALVING)
        return bool(spent[Anew] <= share * (spent[Anew] + spent[Arc]))

    @property
    def _may_search(self) -> bool:
        if self.search is None or not self._has_start:
            return False
        return self.search.best.value > 0.0 and self._in_vain < MOST_IN_VAIN

    def _arc(self, working: Sequence[Arc], limit: Budget, turns: float) -> Arc | None:
        self.chain.fill(limit)
        turn = self.chain.next([each.turn for each in working], limit, turns)
        return None if turn is None else Arc(turn, self.solvers.case(turn.job), limit)

    def _anew(self, working: Sequence[Work], limit: Budget) -> Anew | None:
        """A neighbourhood; those that were in vain before are counted so again."""
        beside = [each.tried for each in working if isinstance(each, Anew)]
        while self.search is not None and self._may_search:
            tried = self.search.draw(beside)
            if not tried.known:
                self.search.prepare(tried, limit.left)
                return Anew(tried)
            self._in_vain += 1
            self.search.learn(tried)
        return None

    # -- what comes of it ------------------------------------------------------------------------

    def _learn(self, work: Work) -> None:
        self._spent[type(work)] += work.elapsed
        if isinstance(work, Arc):
            self.solvers.learn(work.case)
            self.chain.take(work.turn, work.case.known, self.solvers.method)
        elif isinstance(work, Anew) and self.search is not None:
            better = self.search.learn(work.tried)
            self._in_vain = 0 if better else self._in_vain + 1
            if better:
                self.chain.learn(self.search.best.placement)
        elif isinstance(work, Start):
            self._has_start = True
            if work.found is not None:
                self.take(State(work.problem, work.found))
