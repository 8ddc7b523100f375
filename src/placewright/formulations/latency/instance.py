"""What a formulation starts from: how long things take, and when they can be.

Times are scaled so that the horizon is `solver.HORIZON`: the solver's tolerances are absolute.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from placewright.analysis.precedence import Precedence
from placewright.budget import Budget
from placewright.formulations.latency.incumbent import Incumbent, longest
from placewright.formulations.time_windows import Ways, edge_delays, time_windows
from placewright.graph import Floats
from placewright.problem import Problem
from placewright.solvers.mathopt import HORIZON, LOOSE, OutOfTimeError


class Instance:
    """A problem with a horizon: schedules longer than it are of no interest.

    - `allowed[unit, device]`: some schedule within the horizon may have the unit there;
    - `op_time[op, device]` (`inf` where not allowed);
    - `head[op, device]`: the op cannot start sooner there; `tail[op, device]`: from its finish
      there to the end it is no less; both follow single paths, transfers paid (`inf` where the
      op is not allowed).
    """

    def __init__(
        self, problem: Problem, incumbent: Incumbent | None, limit: Budget | None = None
    ) -> None:
        """OutOfTimeError if `limit` passes, here or while `rival_pairs` are listed."""
        self.problem = problem
        self.incumbent = incumbent
        self.limit = limit or Budget()
        self.precedence = Precedence(problem)
        self.scale = self._longest_of_interest() * (1 + LOOSE) / HORIZON
        edges = np.arange(problem.edge_count, dtype=np.int32)
        self._delay = edge_delays(problem, edges) / self.scale
        ends = problem.edge_producer, problem.consumers
        nothing = np.zeros((problem.op_count, problem.device_count))
        found = time_windows(
            problem.unit_allowed,
            problem.op_time / self.scale,
            problem.op_unit,
            Ways(*ends, self._delay, problem.topological_rank),
            (nothing, nothing),
            HORIZON,
            self._look,
        )
        self.allowed, self.op_time = found.allowed, found.time
        self.head, self.tail = found.head, found.tail

    def _longest_of_interest(self) -> float:
        """The incumbent's makespan, or all ops and transfers in a row, each at its slowest."""
        if self.incumbent:
            return self.incumbent.value
        return longest(self.problem)

    def _look(self) -> None:
        """At the clock."""
        if self.limit.left <= 0:
            raise OutOfTimeError

    def route_time(self, edge: int) -> Floats:
        """`[source, target]` of the edge's transfer; 0 on one device, `inf` within a unit."""
        return np.asarray(self._delay[edge])

    def within_unit(self, edge: int) -> bool:
        unit = self.problem.op_unit
        producer, consumer = self.problem.edge_producer[edge], self.problem.consumers[edge]
        return bool(unit[producer] == unit[consumer])

    def routes(self, edge: int) -> list[tuple[int, int]]:
        """`(source, target)` pairs, one device twice included, that the horizon leaves open."""
        producer, consumer = (
            int(self.problem.edge_producer[edge]),
            int(self.problem.consumers[edge]),
        )
        before = self.head[producer] + self.op_time[producer]
        after = self.op_time[consumer] + self.tail[consumer]
        length = before[:, None] + self.route_time(edge) + after[None, :]
        return [(int(a), int(b)) for a, b in np.argwhere(length <= HORIZON)]

    # Windows of ops on whatever device.

    @cached_property
    def earliest_start(self) -> Floats:
        return np.asarray(self.head.min(axis=1))

    @cached_property
    def earliest_finish(self) -> Floats:
        return np.asarray((self.head + self.op_time).min(axis=1))

    @cached_property
    def latest_start(self) -> Floats:
        return np.asarray(HORIZON - (self.op_time + self.tail).min(axis=1))

    @cached_property
    def latest_finish(self) -> Floats:
        return np.asarray(HORIZON - self.tail.min(axis=1))

    @cached_property
    def rival_pairs(self) -> list[tuple[int, int]]:
        """Pairs of ops that may contend for a device: no path and no window orders them."""
        order = np.array(self.precedence.order)
        possible = self.allowed[self.problem.op_unit[order]]
        start, finish = self.earliest_start[order], self.latest_finish[order]
        pairs = []
        for place, first in enumerate(order.tolist()):
            self._look()
            meets = (possible & possible[place]).any(axis=1)
            meets &= (finish[place] > start) & (finish > start[place])
            after = self.precedence.after[first]
            pairs += [
                (first, int(order[later]))
                for later in np.flatnonzero(meets).tolist()
                if later > place and not after >> later & 1
            ]
        return pairs
