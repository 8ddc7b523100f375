"""How long a problem takes at least, with two of its ops on given devices: by paths over regions.

A part of a chain has an arc for each pair of devices of its ends. Small regions between two ops are
the same for most pairs, so what is bounded or solved of them for one counts for the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from placewright.bounds.latency.relaxation.network import Network, network_of
from placewright.bounds.latency.relaxation.paths import settle
from placewright.bounds.latency.relaxation.regions import Regions
from placewright.bounds.latency.relaxation.solving import Solver
from placewright.budget import Budget
from placewright.problem import LONG_ROUNDING, Problem

SIZES = (8.0, 16.0)  # of regions solved, one after another; larger ones take longer than they help
EFFORT = 32.0  # of one of them, see `Solver.waiting`


class Between:
    """Bounds on one problem with ops pinned in different ways; memory may be what it is.

    >>> Between(problem).bound({0: 1, 9: 0}, Budget(1.0))     # op 0 on device 1, op 9 on device 0
    """

    def __init__(self, problem: Problem) -> None:
        self.network = network_of(problem)
        self.place = {op: place for place, op in enumerate(self.network.order.tolist())}
        self.regions = Regions.of(self.network)
        self.solver = Solver(self.regions, Budget())

    def bound(self, pins: Mapping[int, int], budget: Budget) -> float:
        """Seconds that no schedule with ops on these devices is shorter than."""
        network, best = self._pinned(pins), 0.0
        self.solver.budget = budget
        for largest in SIZES:
            while True:
                reach = settle(network, self.regions, budget, largest)
                best = max(best, reach.value)
                arcs = self.solver.waiting(reach.arcs(self.solver.closed), EFFORT)
                if not arcs or budget.left <= 0:
                    break
                self.solver.raise_costs(arcs)
        return best * (1 - LONG_ROUNDING)

    def _pinned(self, pins: Mapping[int, int]) -> Network:
        closed = self.network.closed.copy()
        for op, device in pins.items():
            closed[self.place[op]] |= np.arange(self.network.device_count) != device
        return replace(self.network, closed=closed)
