"""A closer look at regions between two ops on given devices, for what bounds have left open.

Small ones are searched for their shortest schedule, large ones bounded with more effort. Those in
the middle that begin with a tensor for many are bounded first: a search hardly gets anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placewright.bounds.latency.relaxation.fan_out import (
    bound_by_arrivals,
    bound_by_copies,
    fan_out_of,
)
from placewright.bounds.latency.relaxation.paths import MOST_SEARCHED, Arc
from placewright.bounds.latency.relaxation.regions import ENOUGH, GUESSED, STEPS, Place, Regions
from placewright.budget import Budget
from placewright.kernels.latency.dual_ascent import region_bound
from placewright.problem import Problem

CLOSER = 0.125  # what it takes to bound a region closer, for what a search would take
CLOSER_STEPS = 480
CLOSER_WORK = 30_000_000  # steps · edges · pairs of devices
CLOSER_TRIES = 3  # by prices, by who gets copies, by when
MOST_PLACES = 256  # ops · devices of a region with a fan-out that is searched at once
LONGER = 1.3  # than the bound known: the horizon of a search, unless less is of use
FIRST_UNITS = 0.25  # of CP-SAT's deterministic time, four times as much each time
MOST_TRIES = 5
# Without, the bound of some regions rises by one tick of millions at each conflict, for minutes
# that the solver's deterministic time hardly counts.
HALVING = 100


@dataclass
class Found:
    """Of all twins: the least time `proved`, the longest that none is within, how often sought."""

    proved: float = 0.0
    excluded: float = -np.inf
    tries: int = 0
    done: bool = False


class Solver:
    """Raises the costs of arcs, with ever more effort for the same.

    What is found holds for all twins (`isomorphic`), and is not sought again for another of them.
    """

    def __init__(self, regions: Regions, budget: Budget) -> None:
        self.regions = regions
        self.budget = budget
        self.tries: dict[Arc, int] = {}
        self.closed: set[Arc] = set()
        self.found: dict[Place, Found] = {}
        self.fan_outs: dict[int, bool] = {}

    def waiting(self, arcs: list[Arc], effort: float) -> list[Arc]:
        """Those that may yet be raised with no more effort, the ones looked at least so far."""
        open_arcs = [arc for arc in dict.fromkeys(arcs) if arc not in self.closed]
        fewest = min((self._effort(arc) for arc in open_arcs), default=0.0)
        most = min(fewest * 2.0, effort)
        return [arc for arc in open_arcs if self._effort(arc) <= most]

    def _effort(self, arc: Arc) -> float:
        tries, count = self.tries.get(arc, 0), float(self.regions.count[arc[0]])
        return 4.0**tries * (count if self._is_searched(arc[0], tries) else count * CLOSER)

    def _is_searched(self, region: int, tries: int) -> bool:
        """Or else bounded closer, when it has been looked at so often."""
        count = int(self.regions.count[region])
        if count > MOST_SEARCHED:
            return False
        is_large = count * self.regions.network.device_count > MOST_PLACES
        return tries >= CLOSER_TRIES or not (is_large and self._has_fan_out(region))

    def _has_fan_out(self, region: int) -> bool:
        if region not in self.fan_outs:
            ops = self.regions.ops(region)
            part = self.regions.part(ops)
            self.fan_outs[region] = fan_out_of(self.regions.network, ops, part) is not None
        return self.fan_outs[region]

    def raise_costs(self, arcs: list[Arc]) -> None:
        """Look closer at each of them, as long as there is time; at twins once."""
        sought: set[Place] = set()
        for arc in arcs:
            if self.budget.left <= 0:
                return
            self.raise_cost(arc, sought)

    def raise_cost(self, arc: Arc, sought: set[Place]) -> None:
        """Take what is known of a twin, or search; `sought` gets the places that were searched."""
        region = arc[0]
        regions = self.regions
        if regions.level[region] == GUESSED:
            regions.bound(region, self.budget)
        if not np.isfinite(regions.cost[arc]):
            self.closed.add(arc)
            return
        place = regions.place(*arc)
        found = self.found.setdefault(place, Found())
        if self._take(arc, found) or place in sought:
            return
        if self._is_searched(region, found.tries):
            self._search(arc, found)
        else:
            self._bound_closer(arc, found)
        sought.add(place)
        self._take(arc, found)

    def _cutoff(self, arc: Arc) -> float:
        """What the ops between take at most in a schedule within the limit."""
        region, a, b = arc
        regions = self.regions
        first, last = int(regions.first[region]), int(regions.last[region])
        cost = regions.limit - regions.before[first, a] - regions.after[last, b]
        return max(float(cost - regions.network.net.time[last, b]), 0.0)

    def _take(self, arc: Arc, found: Found) -> bool:
        """Raise the arc's cost to what is found; whether it is more than it was."""
        region, a, b = arc
        regions, network = self.regions, self.regions.network
        first, last = int(regions.first[region]), int(regions.last[region])
        # No schedule within the limit has it, if none is as short as the limit leaves room for.
        proved = np.inf if found.excluded >= self._cutoff(arc) else found.proved
        rows = slice(None) if first == 0 else a  # start and end are on no device
        columns = slice(None) if last == network.count - 1 else b
        known = float(regions.cost[arc])
        raised = np.maximum(regions.cost[region, rows, columns], proved + network.net.time[last, b])
        regions.cost[region, rows, columns] = raised
        self.tries[arc] = max(self.tries.get(arc, 0), found.tries)
        if found.done or self.tries[arc] >= MOST_TRIES:
            self.closed.add(arc)
        return bool(regions.cost[arc] > known)

    def _bound_closer(self, arc: Arc, found: Found) -> None:
        """First with more steps, then by who gets copies of the tensor that it begins with."""
        region, a, b = arc
        regions, network = self.regions, self.regions.network
        ops = regions.ops(region)
        part = regions.part(ops)
        first = a if ops[0] > 0 else -1
        last = b if ops[-1] < network.count - 1 else -1
        found.tries += 1
        fan_out = fan_out_of(network, ops, part)
        if found.tries == 1:
            work = len(part.tail) * network.device_count**2
            steps = max(STEPS, min(CLOSER_STEPS, CLOSER_WORK // max(work, 1)))
            found.proved, _ = region_bound(part, network.routes, first, last, steps, ENOUGH)
        elif fan_out is not None:
            bound = bound_by_copies if found.tries < CLOSER_TRIES else bound_by_arrivals
            found.proved = bound(fan_out, network, first, last, found.proved, self.budget)
        is_last = fan_out is None or found.tries >= CLOSER_TRIES
        found.done = is_last and regions.count[region] > MOST_SEARCHED

    def _search(self, arc: Arc, found: Found) -> None:
        """Search for a schedule of the region within a horizon.

        The ends take no time and no memory, each on its device. If there is no schedule within the
        horizon, the horizon is a bound; so is what the search proves for the shortest one.
        """
        from placewright.formulations.latency.cp_frame import whole
        from placewright.formulations.latency.cp_model import Effort, Model

        region, _, b = arc
        regions = self.regions
        low = float(regions.cost[arc] - regions.network.net.time[regions.last[region], b])
        horizon = min(low * LONGER, self._cutoff(arc))
        found.tries = max(found.tries, self.tries.get(arc, 0)) + 1
        model = Model(whole(self._alone(arc)), horizon)
        units = FIRST_UNITS * 4.0 ** (found.tries - 1)
        effort = Effort(max(self.budget.left, 0.0), units=units, level=2, halving=HALVING)
        answer = model.solve(effort)
        if answer.infeasible:
            found.excluded = max(found.excluded, horizon)
            found.proved = max(found.proved, horizon)
        else:
            found.proved = max(found.proved, answer.bound)
        found.done = answer.complete and answer.values is not None

    def _alone(self, arc: Arc) -> Problem:
        """The region as a problem of its own, its ends on their devices."""
        from placewright.analysis.subproblem import subproblem

        region, a, b = arc
        regions, network = self.regions, self.regions.network
        ops = regions.ops(region)
        inside = ops[network.order[ops] >= 0]
        part = subproblem(network.problem, network.order[inside]).problem
        time, memory, pins = part.op_time.copy(), part.op_memory.copy(), {}
        time[network.closed[inside]] = np.inf
        for end, place, device in ((ops[0], 0, a), (ops[-1], -1, b)):
            if network.order[end] >= 0:
                time[place], memory[place] = 0.0, 0.0
                pins[int(part.op_unit[place])] = device
        return replace(part, op_time=time, op_memory=memory).with_pins(pins)
