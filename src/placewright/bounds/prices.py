"""Prices of a Lagrangian relaxation, found by steps towards a value that is hoped for."""

from __future__ import annotations

import math

import numpy as np

from placewright.graph import Floats
from placewright.problem import LONG_ROUNDING

STEPS = 80
DILATION = 2.0  # of the space along a change of the slope, inverted
PATIENCE = 3  # steps without a better bound, after which less is hoped for


class HopedFor:
    """Polyak's step: along the excess, as far as would bring the value to the one hoped for.

    That is the best so far and `more`, at first as much again. Every vector of prices gives a valid
    bound; what is hoped for only says where to look.

    Between two slopes that differ the best prices lie on a ridge, which steps along the excess only
    cross to and fro. So the space is made narrower along the change from one slope to the next, and
    steps are taken in that space (Shor's r-algorithm: N. Z. Shor, Minimization Methods for
    Non-differentiable Functions, 1985, ch. 3).
    """

    def __init__(self, steps: int = STEPS) -> None:
        self.best, self.more = -math.inf, math.nan
        self.idle, self.left = 0, steps
        self.given_up = False
        self._space: Floats = np.eye(0)
        self._slope: Floats | None = None

    def next_prices(self, price: Floats, value: float, excess: Floats) -> Floats:
        """The next prices, after these gave `value` and demand exceeded supply by `excess`.

        `given_up` where there are none better, or where the steps are used up.
        """
        if math.isnan(self.more):
            self.more = abs(value)
        self.idle = 0 if value > self.best else self.idle + 1
        self.best = max(self.best, value)
        if self.idle == PATIENCE:
            self.more, self.idle = self.more / 2, 0
        self.left -= 1
        slope = np.where((excess > 0) | (price > 0), excess, 0.0)
        if self.left <= 0 or not slope.any() or self.more <= LONG_ROUNDING * abs(self.best):
            self.given_up = True
            return price
        self._dilate(slope)
        turned = self._space.T @ slope
        step = (self.best + self.more - value) / float(turned @ turned)
        following: Floats = np.maximum(price + step * (self._space @ turned), 0.0)
        return following

    def _dilate(self, slope: Floats) -> None:
        """Make the space narrower along the latest change of the slope."""
        if self._slope is None:
            self._space = np.eye(len(slope))
        else:
            change = self._space.T @ (slope - self._slope)
            length = float(np.linalg.norm(change))
            if length > LONG_ROUNDING * float(np.linalg.norm(self._space.T @ slope)):
                along = change / length
                self._space -= (1 - 1 / DILATION) * np.outer(self._space @ along, along)
        self._slope = slope
