"""What is still to be done after each ideal, at least: from tables that tell few kinds apart."""

from __future__ import annotations

import math

import numpy as np

from placewright.bounds.prices import HopedFor
from placewright.budget import Budget
from placewright.graph import Floats, Wide
from placewright.planners.invocation.ideals.blocks import Blocks
from placewright.planners.invocation.ideals.kinds import Kinds
from placewright.planners.invocation.ideals.listing import Ideals
from placewright.planners.invocation.ideals.table import CPU, Table
from placewright.problem import LONG_ROUNDING

MOST_PRICES = 20
SHARE_OF_PRICES = 0.1  # of the time that is left


class Floors:
    """Lower bounds by accelerators in use and ideal, of tables whose kinds are `kinds` of a pace.

    `proved` seconds bound the whole plan. Empty, and nothing is proved, where kinds of one pace are
    the same kind, or where time is up.
    """

    def __init__(self, ideals: Ideals, kinds: Kinds, blocks: Blocks, budget: Budget) -> None:
        self.kinds = kinds
        self.pace = kinds.paces
        self.proved = 0.0
        self._floors: list[tuple[Floats, Floats]] = []
        number = int(self.pace.max()) + 1
        if number == len(kinds):
            return
        members = [np.flatnonzero(self.pace == each).tolist() for each in range(number)]
        self._paces = Kinds(
            kinds.problem, [[d for kind in group for d in kinds.devices[kind]] for group in members]
        )
        self._backwards, order = ideals.backwards()
        self._blocks = blocks.backwards(order)
        prices = [np.zeros(number)]
        if number > 1:
            prices.append(self._best_price(budget.part(SHARE_OF_PRICES * budget.left)))
        for price in prices:
            self._add(price, budget)

    def at(self, code: int) -> Floats | float:
        """`[ideal]` seconds from there to the end with what is left beside these in use."""
        left = np.bincount(self.pace, self.kinds.slots - self.kinds.used(code))
        place = int(left @ self._paces.step) if self._floors else 0
        room = self._room(self.kinds.slots - self.kinds.used(code))
        floors = [rest[place] - float(price @ room) for rest, price in self._floors]
        return np.maximum.reduce(floors) if floors else 0.0

    def _room(self, number: Wide) -> Floats:
        """`[pace]` bytes that so many of each kind hold."""
        held = np.bincount(self.pace, self.kinds.room * number)
        return np.asarray(held * (1 + LONG_ROUNDING))

    def _filled(self, price: Floats, budget: Budget, blocks: Blocks | None) -> Table | None:
        table = Table(self._backwards, self._paces, price, blocks)
        for code in range(1, self._paces.codes):
            if budget.left <= 0:
                return None
            table.fill(code, table.fitting(code))
        return table

    def _add(self, price: Floats, budget: Budget) -> None:
        """One more floor, at these seconds per byte."""
        table = self._filled(price, budget, self._blocks)
        if table is None:
            return
        rest = table.value[:, ::-1].reshape(*(self._paces.slots[::-1] + 1), -1)
        for axis in range(rest.ndim - 1):  # with so many or fewer
            rest = np.minimum.accumulate(rest, axis=axis)
        rest = rest.reshape(table.value.shape) * (1 - LONG_ROUNDING)
        self._floors.append((rest, price))
        total = float(rest[-1, 0] - price @ self._room(self.kinds.slots))
        self.proved = max(self.proved, total)

    def _best_price(self, budget: Budget) -> Floats:
        """Seconds per byte that bring rows of subgraphs to keep no more than there is room for."""
        price, best = np.zeros(len(self._paces)), (-math.inf, np.zeros(len(self._paces)))
        room = self._room(self.kinds.slots)
        hope = HopedFor(MOST_PRICES)
        while not hope.given_up and budget.left > 0:
            table = self._filled(price, budget, None)
            if table is None:
                break
            code = int(table.value[:, -1].argmin())
            value = float(table.value[code, -1] - price @ room)
            if not math.isfinite(value):
                break
            best = max(best, (value, price), key=lambda each: each[0])
            kept = np.zeros(len(price))
            for piece in [each for each in table.pieces(code) if each.kind != CPU]:
                kept[piece.kind] += table.memory[piece.high] - table.memory[piece.low]
            price = hope.next_prices(price, value, kept - room)
        return best[1]
