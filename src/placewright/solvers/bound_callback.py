"""Telling a listener of bounds as well as of plans, not too often."""

from __future__ import annotations

import math
import time

from placewright.budget import TELL_SECONDS, Budget, Reporter


class BoundReporter(Reporter):
    """A reporter that tells of better bounds too.

    >>> reporter = BoundReporter(budget, "milp-split", start.value)
    >>> reporter.tell(1.25e-3, lambda: placement)
    >>> reporter.prove(1.2e-3)
    """

    def __init__(self, budget: Budget, source: str, value: float = math.inf) -> None:
        """`source` is what proves the bounds; plans of `value` seconds or more are no news."""
        super().__init__(budget, value)
        self.source = source
        self.bound = 0.0
        self._proved = -math.inf

    def prove(self, lower_bound: float) -> None:
        """That no plan is shorter, if that is news and the last bound told is long ago."""
        now = time.monotonic()
        if lower_bound > self.bound and now - self._proved >= TELL_SECONDS:
            self.bound, self._proved = lower_bound, now
            self.budget.listener.proved(lower_bound, self.source)
