"""A small problem whose bytes cost something: the least of makespan and what all bytes cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from placewright.budget import Budget
from placewright.formulations.latency.cp_frame import whole
from placewright.formulations.latency.cp_model import Effort, Model
from placewright.formulations.latency.incumbent import Incumbent, longest, timed
from placewright.graph import Floats
from placewright.planners.latency.exact.cases import PROVED, Turn, overfull
from placewright.planners.latency.exact.cp_sat import placement_of
from placewright.problem import LONG_ROUNDING, Problem

# Which of the two kinds ends soon is luck, and another try often does where none did: hence short
# ones first.
TURNS = (
    Turn(0, False, 0.1),
    Turn(2, True, 0.3),
    Turn(0, False, 1.0),
    Turn(2, True, 2.0),
    Turn(0, False, 5.0),
    Turn(2, True, 10.0),
    Turn(0, False, 30.0),
)


@dataclass(eq=False)
class Priced:
    """The first few `turns` of CP-SAT at it, for a thread (`solvers.running.Work`).

    `price[device]` seconds for each byte there. No plan is shorter than `least` seconds, as is
    known from elsewhere. `start`, a plan that fits. Afterwards no plan costs less than `low`;
    `found`, the cheapest plan that came up, if any.
    """

    problem: Problem
    price: Floats
    turns: int
    limit: Budget
    seed: int = 0
    least: float = 0.0
    start: Incumbent | None = None
    low: float = field(init=False)
    found: Incumbent | None = field(init=False, default=None)
    _model: Model | None = field(init=False, default=None)
    _stopped: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.low = self.least + self._least_paid

    def do(self) -> None:
        """Look for the cheapest plan, and prove what none costs less than."""
        for number, turn in enumerate(TURNS[: self.turns]):
            if self._stopped or self.limit.left <= 0 or self.is_proved:
                return
            self._take(turn, self.seed + number)

    @property
    def is_proved(self) -> bool:
        best = self.found or self.start
        return best is not None and self.cost(best) - self.low <= PROVED * self.cost(best)

    def stop(self) -> None:
        self._stopped = True
        if self._model is not None:
            self._model.stop()

    def cost(self, plan: Incumbent) -> float:
        """Seconds, with those that its bytes cost."""
        device = plan.placement.device
        return plan.value + float((self.price[device] * self.problem.op_memory).sum())

    def _take(self, turn: Turn, seed: int) -> None:
        best, most = self.found or self.start, longest(self.problem)
        if best is not None:
            most = min(most, self.cost(best) - self._least_paid)
        most = max(most, self.least) * (1 + LONG_ROUNDING)  # so that rounding excludes nothing
        frame = replace(whole(self.problem), floor=self.least, price=self.price)
        model = self._model = Model(frame, most, is_linear=turn.is_linear)
        if self._stopped:
            return
        if best is not None:
            model.hint(best.placement.device, best.schedule.op_start)
        answer = model.solve(Effort(self.limit.left, turn.units, level=turn.level, seed=seed))
        if answer.infeasible:
            bound = math.inf if best is None else self.cost(best)
        else:
            bound = answer.bound
        self.low = max(self.low, bound)
        if answer.values is not None:
            self._offer(timed(self.problem, placement_of(frame, answer.values)))

    def _offer(self, found: Incumbent) -> None:
        best = self.found or self.start
        is_cheaper = best is None or self.cost(found) < self.cost(best)
        if is_cheaper and not overfull(self.problem, found.placement):
            self.found = found

    @cached_property
    def _least_paid(self) -> float:
        """Seconds that the bytes of all units cost, each where they are cheapest."""
        allowed = self.problem.unit_allowed
        cheapest = np.where(allowed, self.price[None, :], np.inf).min(axis=1)
        cheapest[~allowed.any(axis=1)] = 0.0
        return float((cheapest * self.problem.unit_memory).sum())
