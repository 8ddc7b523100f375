"""How long a planner may take, at what pace it evaluates, and who hears of what it finds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from placewright.plan import Placement

TELL_SECONDS = 0.5  # between two plans that a listener is told of
CHUNK_SECONDS = 0.08  # between two looks at the clock
FIRST_CHUNK = 16
LEAST_SECONDS = 1e-9  # of an evaluation that is over before the clock moves

Progress = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done (0 … 1)."""


def no_progress(what: str, done: float) -> None:
    pass


class Listener(Protocol):
    """Who hears, while a planner runs, of what it has found and proved so far.

    What is told must hold for the problem that the planner was asked about: a placement fits
    its memory and pins, and a bound is below the value of every plan.
    """

    def found(self, placement: Placement) -> None:
        """A placement better than those this planner told of before."""

    def proved(self, lower_bound: float, source: str) -> None:
        """Seconds that no plan can beat, and which argument says so."""


class Silence:
    """A `Listener` that does not care."""

    def found(self, placement: Placement) -> None:
        pass

    def proved(self, lower_bound: float, source: str) -> None:
        pass


@dataclass(frozen=True)
class Lesson:
    """A point of the learning curve of a planner that learns.

    `seconds` since it began, `episodes` so far, and `value`, the best plan so far (seconds; None
    before there is one); `mean` and `spread` (standard deviation) of what the latest episodes came
    to, in seconds.
    """

    seconds: float
    episodes: int
    value: float | None
    mean: float
    spread: float


def unheard(lesson: Lesson) -> None:
    pass


@dataclass
class Budget:
    """How long a planner may take, what it may start from, and who wants to hear on the way.

    A planner that cannot stop early ignores the time; one that does not search ignores `start`,
    a placement that fits (with its sequence, if it has one), which a planner that searches
    never returns worse than. Telling the `listener` is up to the planner too; one that learns
    tells `on_lesson` besides.
    """

    seconds: float = float("inf")
    start: Placement | None = None
    listener: Listener = field(default_factory=Silence)
    on_lesson: Callable[[Lesson], None] = unheard
    _started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self._started)

    def part(self, seconds: float) -> Budget:
        """At most `seconds` of what is left, with the same start and listeners."""
        return Budget(min(seconds, self.left), self.start, self.listener, self.on_lesson)

    def or_at_most(self, seconds: float) -> Budget:
        """What is left; `seconds` if there is no limit."""
        return self.part(seconds if math.isinf(self.seconds) else math.inf)


class Pace:
    """Counts evaluations up to a limit, within a budget of time."""

    def __init__(self, budget: Budget, limit: float) -> None:
        self.budget = budget
        self.limit = limit
        self.done = 0
        self.seconds_per_evaluation = 0.0

    def chunks(self, what: str, on_progress: Progress) -> Iterator[int]:
        """Numbers of evaluations to do next, each for about `CHUNK_SECONDS`, until the end.

        Who needs fewer takes the rest off `done`.
        """
        size = FIRST_CHUNK
        while self.done < self.limit and self.budget.left > 0:
            on_progress(what, self.progress)
            count = max(1, int(min(size, self.limit - self.done)))
            started = time.perf_counter()
            yield count
            self.done += count
            self.seconds_per_evaluation = max(
                (time.perf_counter() - started) / count, LEAST_SECONDS
            )
            until_end = min(CHUNK_SECONDS, max(self.budget.left, 0.0))
            size = max(1, min(4 * size, int(until_end / self.seconds_per_evaluation)))

    @property
    def progress(self) -> float:
        seconds = self.budget.seconds
        elapsed = 1.0 - self.budget.left / seconds if 0 < seconds < math.inf else 0.0
        return min(1.0, max(self.done / self.limit, elapsed))

    @property
    def evaluations_left(self) -> float:
        """How many the time leaves at the pace so far."""
        return max(self.budget.left, 0.0) / max(self.seconds_per_evaluation, LEAST_SECONDS)

    def cooling(self, temperature: float, hot: float, cold: float) -> float:
        """Factor per evaluation that takes `temperature` from `hot` to `cold` by the end.

        The same throughout if there is a limit, so that how evaluations are cut changes nothing.
        """
        if self.limit < math.inf:
            return float((cold / hot) ** (1.0 / self.limit))
        if not self.done:  # the pace is not known yet
            return 1.0
        return float(min(1.0, (cold / temperature) ** (1.0 / max(self.evaluations_left, 1.0))))


class Reporter:
    """Tells the budget's listener of better plans, but not too often."""

    def __init__(self, budget: Budget, value: float = math.inf) -> None:
        """Plans of `value` seconds or more are no news."""
        self.budget = budget
        self.value = value
        self._told = -math.inf

    def tell(self, value: float, placement: Callable[[], Placement]) -> None:
        """That there is a plan of `value` seconds, if that is news and the last is long ago."""
        now = time.monotonic()
        if value < self.value and now - self._told >= TELL_SECONDS:
            self.value, self._told = value, now
            self.budget.listener.found(placement())
