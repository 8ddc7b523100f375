"""The best plan so far, in a file every few seconds: what is left after ``kill -9``."""

from __future__ import annotations

import time
from pathlib import Path

from placewright.portfolio.incumbent import Incumbent

SECONDS = 2.0
MOST_SHARE = 0.1  # of the time, spent on writing


class Checkpoint:
    """Writes the plan to `path` (nothing if None) when it has changed, not too often.

    A file is written beside and renamed, so that there is always a whole one.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._written: tuple[float, float] | None = None
        self._next = 0.0

    def tick(self, incumbent: Incumbent) -> None:
        now = time.monotonic()
        state = (incumbent.value, incumbent.bound.value)
        if self.path is None or state == self._written or now < self._next:
            return
        plan = incumbent.plan()
        if plan is None:
            return
        plan.save(self.path)
        self._written = state
        done = time.monotonic()
        self._next = done + max(SECONDS, (done - now) / MOST_SHARE)
