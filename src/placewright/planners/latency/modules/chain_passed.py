"""The chain of a graph that is one but for edges which pass by modules (`analysis.passing`).

Without what its forward modules keep for their gradients a training graph is a chain of modules,
which are solved as those of `chain_exact`. What is proved of it holds for the whole. Its plan's
devices, in an order that sees all transfers, are a plan of the whole, good where these wait for
little.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from placewright.analysis.modules import split_modules
from placewright.analysis.passing import without_passing
from placewright.budget import Budget
from placewright.plan import Placement
from placewright.planners.latency.exact.cases import overfull
from placewright.planners.latency.exact.parallel import Solvers
from placewright.planners.latency.modules.chain_exact import ExactChain
from placewright.planners.latency.modules.chain_search import ChainSearch
from placewright.planners.latency.modules.chain_tied import TiedChain
from placewright.planners.latency.search.state import State
from placewright.problem import Problem


class PassedChain:
    """What is known of it: a `bound` in seconds on the whole, and the `placement` behind it.

    Without a sequence; None where none is known.
    """

    def __init__(self, problem: Problem, solvers: Solvers) -> None:
        self.part, self.solvers = without_passing(problem), solvers
        self.bound = 0.0
        self.placement: Placement | None = None

    def steps(self, limit: Budget, start: Placement | None) -> Iterator[float]:
        """After each `bound` and `placement` are what is known by then; how much is done."""
        exact = ExactChain(
            split_modules(self.part.problem), with_regions=self.solvers.method.may_price
        )
        chain = ChainSearch(exact, self.solvers, None)
        if start is not None:
            chain.take(State(self.part.problem, self.part.restricted(start)))
        begun = time.monotonic()
        for done in chain.steps(limit):
            self._take(exact.chain.lower_bound(), exact.placement())
            yield done
        self._take(exact.chain.lower_bound(), exact.placement())
        if self.solvers.method.may_price and self._is_too_full:
            yield from self._priced(exact, limit.part(time.monotonic() - begun))

    def _priced(self, exact: ExactChain, limit: Budget) -> Iterator[float]:
        """As long as the chain took: full devices take a training graph little longer."""
        tied = TiedChain(exact.chain, self.solvers, None)
        for _ in tied.steps(limit):
            self._take(tied.bound, tied.best.placement if tied.best else None)
            yield 1.0

    @property
    def _is_too_full(self) -> bool:
        return self.placement is not None and overfull(self.part.problem, self.placement)

    def _take(self, bound: float, found: Placement | None) -> None:
        self.bound = max(self.bound, bound)
        known = self.placement
        if found is not None and (known is None or (known.device != found.device).any()):
            self.placement = Placement(found.device)
