"""Regions small enough to be solved: the shortest schedule between two ops on given devices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placewright.bounds.relaxation.paths import Arc
from placewright.bounds.relaxation.regions import GUESSED, Regions
from placewright.planners.base import Budget

MOST_OPS = 70
LONGER = 1.3  # than the bound known: the horizon of a search, unless less is of use
FIRST_UNITS = 0.25  # of CP-SAT's deterministic time, four times as much each time
MOST_TRIES = 5


class Solver:
    """Raises the costs of regions by search, ever longer for the same arc."""

    def __init__(self, regions: Regions, budget: Budget) -> None:
        self.regions = regions
        self.budget = budget
        self.tries: dict[Arc, int] = {}
        self.closed: set[Arc] = set()

    def waiting(self, arcs: list[Arc], effort: float) -> list[Arc]:
        """Those that may yet be raised with no more effort, the ones looked at least so far."""
        open_arcs = [
            arc
            for arc in dict.fromkeys(arcs)
            if arc not in self.closed and self.regions.count[arc[0]] <= MOST_OPS
        ]
        fewest = min((self._effort(arc) for arc in open_arcs), default=0.0)
        most = min(fewest * 2.0, effort)
        return [arc for arc in open_arcs if self._effort(arc) <= most]

    def _effort(self, arc: Arc) -> float:
        return 4.0 ** self.tries.get(arc, 0) * float(self.regions.count[arc[0]])

    def raise_costs(self, arcs: list[Arc]) -> None:
        """Look closer at each of them, as long as there is time."""
        for arc in arcs:
            if self.budget.left <= 0:
                return
            self.raise_cost(arc)

    def _cutoff(self, arc: Arc) -> float:
        """What the arc costs at most in a schedule within the limit."""
        region, a, b = arc
        regions = self.regions
        first, last = int(regions.first[region]), int(regions.last[region])
        return float(regions.limit - regions.before[first, a] - regions.after[last, b])

    def raise_cost(self, arc: Arc) -> None:
        """Search for a schedule of the region within a horizon; what is proved becomes its cost.

        The ends take no time and no memory, each on its device. If there is no schedule within the
        horizon, the horizon is a bound; so is what the search proves for the shortest one.
        """
        from placewright.planners.cp.frame import whole
        from placewright.planners.cp.model import Effort, Model
        from placewright.planners.milp.subproblem import subproblem

        region, a, b = arc
        regions, network = self.regions, self.regions.network
        if regions.level[region] == GUESSED:
            regions.bound(region, self.budget)
        if not np.isfinite(regions.cost[arc]):
            self.closed.add(arc)
            return
        first, last = int(regions.first[region]), int(regions.last[region])
        own = network.net.time[last, b]
        low = float(regions.cost[arc]) - own
        cutoff = max(self._cutoff(arc) - own, 0.0)
        horizon = min(low * LONGER, cutoff)
        ops = network.order[regions.ops(region)]
        part = subproblem(network.problem, ops[ops >= 0]).problem
        inside = regions.ops(region)[ops >= 0]
        time, memory, pins = part.op_time.copy(), part.op_memory.copy(), {}
        time[network.closed[inside]] = np.inf
        for end, place, device in ((first, 0, a), (last, -1, b)):
            if network.order[end] >= 0:
                time[place], memory[place] = 0.0, 0.0
                pins[int(part.op_unit[place])] = device
        part = replace(part, op_time=time, op_memory=memory).with_pins(pins)
        tries = self.tries[arc] = self.tries.get(arc, 0) + 1
        model = Model(whole(part), horizon)
        units = FIRST_UNITS * 4.0 ** (tries - 1)
        answer = model.solve(Effort(max(self.budget.left, 0.0), units=units, level=2))
        if answer.interrupted:
            raise KeyboardInterrupt
        none = answer.complete and answer.times is None
        proved = horizon if none else answer.lower_bound
        if none and horizon >= cutoff:
            proved = np.inf  # no schedule within the limit has it
        rows = slice(None) if first == 0 else a  # start and end are on no device
        columns = slice(None) if last == network.count - 1 else b
        raised = np.maximum(regions.cost[region, rows, columns], max(low, proved) + own)
        regions.cost[region, rows, columns] = raised
        if (answer.complete and answer.times is not None) or tries >= MOST_TRIES:
            self.closed.add(arc)
