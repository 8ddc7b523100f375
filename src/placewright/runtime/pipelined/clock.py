"""The time a rank computes, and the one failure of it for which no op can be named."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class StageError(Exception):
    """A stage's backward failed, for which no op can be named."""


class BusyClock:
    """Adds up the seconds that stages compute, and tells that the rank is alive."""

    def __init__(self, alive: Callable[[], None]) -> None:
        self._seconds = 0.0
        self._alive = alive

    def forward(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._alive()
        started = time.perf_counter()
        try:
            return work(*args, **kwargs)
        finally:
            self._seconds += time.perf_counter() - started

    def backward(self, stage: int, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """StageError where it fails."""
        try:
            return self.forward(work, *args, **kwargs)
        except RuntimeError as error:
            cause = error.__cause__ or error
            raise StageError(f"backward of stage {stage}: {cause}") from error

    def taken(self) -> float:
        """Seconds of computing since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds
