"""Units to place before all others, where a planner ran out of room for them."""

from __future__ import annotations

import numpy as np

from placewright.budget import Budget
from placewright.errors import InfeasibleError
from placewright.formulations import fit
from placewright.graph import Ints
from placewright.planners.base import NoRoomError
from placewright.problem import Problem

MAX_FIRST = 64
LEAST_SECONDS = 1.0  # for the search, also where time is up


class FirstPlaced:
    """Units to place before all others, for planners that ran out of room for them: `device[unit]`.

    Each on the device with most room or, once that leads nowhere, where a placement of all units
    has it (`fit.unit_fit`); in the end all units, so that none is refused for want of room.
    """

    def __init__(self, problem: Problem, budget: Budget) -> None:
        self.problem, self.budget = problem, budget
        self.device: dict[int, int] = {}
        self._fit: Ints | None = None
        self._reason: InfeasibleError | None = None

    def after(self, error: InfeasibleError) -> None:
        """Place what found no room too; InfeasibleError if that cannot help.

        It says what the planner said at first: later it spoke of the problem with these pins.
        """
        self._reason = self._reason or InfeasibleError(str(error))
        unit = error.unit if isinstance(error, NoRoomError) else None
        if unit is None and not self.device:
            raise self._reason from None
        if self._fit is None and unit is not None and self._place_emptiest(unit):
            return
        units = {*self.device, *(() if unit is None else (unit,))}
        if self._fit is not None and (len(units) == len(self.device) or len(units) > MAX_FIRST):
            units = set(range(self.problem.unit_count))
            if len(self.device) == len(units):
                raise self._reason from None
        self._fit = self._search() if self._fit is None else self._fit
        self.device = {unit: int(self._fit[unit]) for unit in sorted(units)}

    def _place_emptiest(self, unit: int) -> bool:
        """On the device with the most memory left beside the others; False if it does not fit."""
        if unit in self.device or len(self.device) >= MAX_FIRST:
            return False
        placed = self.problem.unit_pinned.copy()
        placed[list(self.device)] = list(self.device.values())
        free = self.problem.free_memory(placed)
        free = np.where(np.isfinite(self.problem.unit_time[unit]), free, -np.inf)
        best = int(free.argmax())
        fits = bool(self.problem.unit_memory[unit] <= free[best])
        if fits:
            self.device[unit] = best
        return fits

    def _search(self) -> Ints:
        assert self._reason is not None
        found = fit.unit_fit(self.problem, max(self.budget.left, LEAST_SECONDS))
        if found is None:
            raise self._reason from None
        return found
