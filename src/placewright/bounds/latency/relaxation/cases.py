"""Cases by the devices of ops that the chain shares with the ops beside it.

A case says where some ops of the chain are; `lagrangian` bounds the schedules of each. All cases
together cover every schedule, so the least of their bounds holds in general. The case with the
least bound is looked at again: first its arcs are solved more closely, then it is split by the
device of a further op, until there is none left, or time is up, or all cases are as long as the
best plan known. Of devices that can change names, as far as the case says, one stands for all.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

import numpy as np

from placewright.bounds.latency.relaxation.isomorphic import like_throughout
from placewright.bounds.latency.relaxation.lagrangian import (
    Chain,
    Prices,
    Pricing,
    chain_alone,
    mixed,
)
from placewright.bounds.latency.relaxation.solving import Solver
from placewright.budget import Budget

STEPS = 150
AGAIN = 20
MOST_BYTES = 512 * 2**20  # that all open cases take


class Cases:
    """The open cases of a chain, the least first."""

    def __init__(self, chain: Chain, solver: Solver, budget: Budget, incumbent: float) -> None:
        self.chain = chain
        self.solver = solver
        self.budget = budget
        self.incumbent = incumbent
        self.boundary = chain.boundary()
        self.number = count()
        self.open: list[tuple[float, int, Pricing]] = []
        self.chain_value = float("inf")  # no better chain makes room

    def bounds(self, effort: float) -> Iterator[float]:
        """What is proved, ever higher, with arcs worth no more effort; nothing without room."""
        if self.chain.case_bytes > MOST_BYTES:
            return
        if not self.open:
            root = Pricing(self.chain, self.chain.durations(), {})
            self.chain_value = root.value(chain_alone(self.chain.network))[0]
            self._improve(root, None, STEPS)
            self._add(root)
        yield self.open[0][0]
        while self.budget.left > 0:
            value, _, case = self.open[0]
            if value >= self.incumbent:
                break
            heapq.heappop(self.open)
            if not (self._tighten(case, effort) or self._split(case)):
                self._add(case)
                break
            yield self.open[0][0]

    def _add(self, case: Pricing) -> None:
        heapq.heappush(self.open, (case.best, next(self.number), case))

    def _improve(self, case: Pricing, prices: Prices | None, steps: int) -> None:
        """From given prices or, without, the chain alone and then a mixture of all."""
        if prices is None:
            case.improve(chain_alone(self.chain.network), 1, self.incumbent, self.budget)
        start = prices or mixed(self.chain.network)
        case.improve(start, steps, self.incumbent, self.budget)

    def _tighten(self, case: Pricing, effort: float) -> bool:
        """Solve the arcs of its cheapest chain; whether there were any worth no more effort."""
        arcs = self.solver.waiting(case.arcs(), effort)
        if not arcs:
            return False
        self.solver.raise_costs(arcs)
        case.renew(self.chain.durations())
        self._improve(case, case.best_prices, AGAIN)
        self._add(case)
        return True

    def _split(self, case: Pricing) -> bool:
        """By the device of the op that shares most with free ops; whether there is one and room."""
        cases = len(self.open) + self.chain.network.device_count
        if cases * self.chain.case_bytes > MOST_BYTES:
            return False
        op = next((op for op in self.boundary if op not in case.pins), -1)
        if op < 0:
            return False
        durations = self.chain.durations()
        for device in self._choices(case, op):
            child = Pricing(self.chain, durations, {**case.pins, op: device})
            child.best = case.best
            self._improve(child, None, STEPS)
            self._add(child)
        return True

    def _choices(self, case: Pricing, op: int) -> list[int]:
        """Devices for an op, of those that can change names the first."""
        network = self.chain.network
        names = like_throughout(network)
        pinned = list(case.pins.values())
        names[pinned] = network.device_count + np.array(pinned, dtype=np.int64)
        devices = np.flatnonzero(~network.closed[op])
        _, first = np.unique(names[devices], return_index=True)
        found: list[int] = devices[np.sort(first)].tolist()
        return found
