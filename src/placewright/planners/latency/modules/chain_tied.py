"""A chain whose parts share memory: bounds and plans where the parts' best plans do not all fit.

By itself each part has all the memory, so the chain of what its parts take at least (`chain_exact`)
says nothing of what full devices cost. Here bytes get prices, and each part is solved for its
makespan and what its bytes cost (`exact.priced`), which is a bound on the part at any other bytes
too, a cut. In turns:

1. What bytes are worth: the duals of the linear program that mixes the plans known of all parts
   until they fit (`chain_mix`).
2. Along the cheapest path at those prices the parts are solved, and each part between whatever
   devices: cuts, and more plans. Less what all the memory is worth, the cheapest path by what is
   proved is a lower bound (the Lagrangian relaxation).
3. `chain_memory` chooses a path, and bytes for each of its parts, by all cuts: a better bound.
   Where devices are equal, no price says that one must be left when it is full, but a path does.
4. The same prices and cuts for that path alone, by the plans of its parts.

One plan for each part of a path, such that all fit, is a plan of the whole (`knapsack`). A bound
that hardly rises asks for more turns at the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from placewright.budget import Budget
from placewright.formulations.latency.chain_memory import PartOfChain, Path, shortest_path
from placewright.formulations.latency.chain_mix import Mix, mixed
from placewright.formulations.latency.incumbent import (
    Incumbent,
    interchangeable_devices,
    longest,
    timed,
)
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.latency.exact.cases import PROVED, overfull
from placewright.planners.latency.exact.parallel import Solvers
from placewright.planners.latency.exact.priced import TURNS, Priced
from placewright.planners.latency.modules.arcs_exact import ExactArcs
from placewright.planners.latency.modules.chain import Chain, Pair
from placewright.planners.latency.modules.knapsack import Choice, fitted
from placewright.planners.latency.modules.priced_arcs import PricedArcs
from placewright.problem import LONG_ROUNDING, ROUNDING
from placewright.solvers.running import POLL_SECONDS, Crew

FIRST_TURNS = 2  # at a part
RISE = 1e-3  # of the bound; less is hardly any
CONVERGED = 1e-4  # of the bound
DEAREST, MOST_DEAR = 1.0, 1000.0  # makespans that all bytes cost where no plans known fit: at first
PATHS = 2  # at the same prices of the whole, and of single paths after that
FITTING_SECONDS = 2.0
PROGRAM_SECONDS, PROGRAM_SHARE = 3.0, 0.1  # of one, or of the time that is left
MOST_SHARES = 20_000  # pairs of devices of all parts · devices, of a program


class TiedChain:
    """What is known of a chain at prices of memory: the `best` plan, and a `bound` in seconds.

    `best` is None where no plan that fits is known.
    """

    def __init__(self, chain: Chain[ExactArcs], solvers: Solvers, best: Incumbent | None) -> None:
        self.chain, self.solvers, self.best = chain, solvers, best
        self.problem, self.bound = chain.problem, chain.lower_bound()
        self._groups = interchangeable_devices(self.problem)
        of = {arcs: PricedArcs(arcs) for arcs in dict.fromkeys(chain.arcs)}
        self._arcs = [of[arcs] for arcs in chain.arcs]
        self._turns, self._dearest = FIRST_TURNS, DEAREST
        self._is_unsolved = False  # whether some part was not solved to the end lately
        if best is not None:
            self._learn(best.placement)

    @property
    def is_proved(self) -> bool:
        best = self.best
        return best is not None and best.value - self.bound <= PROVED * best.value

    def steps(self, limit: Budget) -> Iterator[None]:
        """After each, `bound` and `best` are what is known by then; until neither gets better."""
        while limit.left > 0 and not self.is_proved:
            before, self._is_unsolved = self.bound, False
            may_rise = self._at_prices_of_all(limit)
            yield
            for _ in range(PATHS):
                path = None if self.is_proved else self._program(limit)
                if path is None or path.pairs is None or self.is_proved or limit.left <= 0:
                    break
                may_rise |= self._at_prices_of(path.pairs, path.bound, limit)
                yield
            if self.bound - before < RISE * self.bound:
                if self._is_unsolved and self._turns < len(TURNS):
                    self._turns += 1
                elif not may_rise:
                    break
        self._fit([arcs.all_choices for arcs in self._arcs], limit)
        yield

    # -- at prices -------------------------------------------------------------------------------

    def _at_prices_of_all(self, limit: Budget) -> bool:
        """At the prices of the whole chain; whether the bound may yet rise by such."""
        mix = self._mixed([arcs.all_choices for arcs in self._arcs], limit)
        if mix is None or (mix.fits and mix.value <= self.bound * (1 + RISE)):
            return False
        solved = self._solve([(arcs, None) for arcs in self._arcs], mix.price, limit)
        for _ in range(PATHS):
            along = list(zip(self._arcs, self._cheapest(mix.price), strict=True))
            solved += self._solve(along, mix.price, limit)
        self._fit_along(self._cheapest(mix.price), limit)
        return solved > 0

    def _at_prices_of(self, pairs: Sequence[Pair], bound: float, limit: Budget) -> bool:
        """The same, at the prices of a path, of which so much is proved."""
        along = list(zip(self._arcs, pairs, strict=True))
        mix = self._mixed([arcs.choices[pair] for arcs, pair in along], limit)
        if mix is None:
            return False
        solved = self._solve(along, mix.price, limit)
        self._fit_along(pairs, limit)
        if mix.fits:
            return solved > 0 and mix.value > bound * (1 + CONVERGED)
        if not solved:  # all is known at the dearest prices: only dearer ones say more
            self._dearest *= 2
        return self._dearest <= MOST_DEAR

    def _cheapest(self, price: Floats) -> list[Pair]:
        """A path by what is proved at these prices, which bounds all plans of the whole."""
        of = dict(zip(self.chain.arcs, self._arcs, strict=True))
        path = self.chain.shortest(lambda arcs: of[arcs].low_at(price))
        dear = price > 0
        paid = float(price[dear] @ self.problem.device_memory[dear])
        bound = path.length * (1 - ROUNDING * len(self._arcs)) - paid * (1 + LONG_ROUNDING)
        self._prove(bound)
        return [pair for _, pair in path.arcs]

    def _mixed(self, rows: Sequence[Sequence[Choice]], limit: Budget) -> Mix | None:
        return mixed(rows, self.problem.device_memory, self._horizon, self._dearest, limit)

    def _solve(
        self, asked: Sequence[tuple[PricedArcs, Pair | None]], price: Floats, limit: Budget
    ) -> int:
        """Solve each at these prices, once, but for what is known; how many those were."""
        seed = self.solvers.method.seed
        works = {}
        for arcs, pair in dict.fromkeys(asked):
            work = arcs.work(pair, price, self._turns, limit, seed)
            if work is not None:
                works[id(work)] = work, arcs, pair
        waiting = [work for work, _, _ in works.values()][::-1]
        with Crew[Priced](self.solvers.workers) as crew:
            while (waiting or crew.working) and limit.left > 0:
                while waiting and crew.idle:
                    crew.give(waiting.pop())
                for work in crew.heard(POLL_SECONDS):
                    _, arcs, pair = works[id(work)]
                    arcs.take(pair, work)
        self._is_unsolved |= any(not work.is_proved for work, _, _ in works.values())
        return len(works)

    # -- what is proved of all -------------------------------------------------------------------

    @property
    def _horizon(self) -> float:
        return longest(self.problem) if self.best is None else self.best.value

    def _program(self, limit: Budget) -> Path | None:
        """A path and the bound by all cuts; None where the program would be too large."""
        parts = [
            PartOfChain(arcs.memory, low, arcs.cuts)
            for arcs, low in zip(self._arcs, self._useful(), strict=True)
        ]
        pairs = sum(int(np.isfinite(part.low).sum()) for part in parts)
        if pairs * self.problem.device_count > MOST_SHARES:
            return None
        capacity = np.maximum(self.problem.device_memory, 0.0)
        part = limit.part(max(PROGRAM_SECONDS, PROGRAM_SHARE * limit.left))
        path = shortest_path(parts, capacity, self._groups, self._horizon, part)
        self._prove(path.bound)
        return path

    def _useful(self) -> list[Floats]:
        """The arcs' least seconds; `inf` for those on no path to a shorter plan than the best."""
        found = []
        most = self._horizon * (1 + LONG_ROUNDING)
        before, after = self.chain.distances(lambda arcs: arcs.low)
        for arcs, source, target in zip(self._arcs, before, after, strict=True):
            through = source[:, None] + arcs.low + target[None, :]
            found.append(np.where(through <= most, arcs.low, np.inf))
        return found

    def _prove(self, bound: float) -> None:
        self.bound = max(self.bound, min(bound, self._horizon))

    # -- plans of the whole ----------------------------------------------------------------------

    def _fit_along(self, pairs: Sequence[Pair], limit: Budget) -> None:
        along = zip(self._arcs, pairs, strict=True)
        self._fit([arcs.choices[pair] for arcs, pair in along], limit)

    def _fit(self, rows: Sequence[Sequence[Choice]], limit: Budget) -> None:
        """The best whole of these plans of the parts, if it is better than the best known."""
        if limit.left <= 0 or not all(rows):
            return
        seconds = min(FITTING_SECONDS, limit.left)
        found = fitted(rows, self.problem.device_memory, seconds)
        if found is None or sum(each.value for each in found) >= self._horizon:
            return
        whole = timed(self.problem, self.chain.joined([each.placement for each in found]))
        if whole.value < self._horizon and not overfull(self.problem, whole.placement):
            self.best = whole
            self._learn(whole.placement)

    def _learn(self, placement: Placement) -> None:
        for part, arcs in zip(self.chain.parts, self._arcs, strict=True):
            arcs.learn(part.restricted(placement)[1])
