"""Passes that count: those that run while the machine is as fast as it has been.

The speed of a machine swings, by up to a factor of two and for seconds at a time: clocks are raised
and lowered, neighbours take cores and caches. So work that is always the same, a reference, is
timed before and after some passes; where it took longer than it usually does at best, by more than
a tolerance, the passes between are not steady, and others are run in their place, for a limited
time. What a part takes at best is its 20th percentile, not its shortest time: on two cores, clocks
that are a fifth faster now and then are the exception, and nearly no pass would be as fast. Where
few are steady all the same, the next steadiest count too, if they are not much slower: a median of
three passes varies more than one of many.

The reference has parts. Computing tells much and swings little by itself: the best of a few runs
lies within 3 % half of the time. Copying tells when others use the memory, and varies by 20 % with
no one else there; so its tolerance is wide.

>>> seconds = iter([1.0, 1.0, 1.0, 1.5])  # of a reference in one part; the last, when it is slow
>>> watch = Watch(lambda: (next(seconds),), (0.08,), burst=1, clock=lambda: 0.0)
>>> passes = Passes(watch, lambda count, elapsed: count / 2, most_seconds=0.0)
>>> for _ in range(2):
...     passes.passed(close=True)
>>> passes.steady
[0]
"""

from __future__ import annotations

import math
import time
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Readings = tuple[float, ...]
"""Seconds of each part of a reference."""
Clock = Callable[[], float]

COMPUTING, COPYING = 0.08, 0.5  # by how much a part may take longer than at best
BURST = 25  # readings from which it is known at first what a part takes
PART_SECONDS = 2e-4  # a part is repeated until it takes so long
USUAL = 0.2  # of all readings of a part, those that are shorter than what it takes at best
REPEATS = 4  # runs of a part for a reading, which is the shortest of them
LONG_SECONDS = 5e-3  # after so long no more are made: the machine is busy
PASSES_TO_READING = 15.0  # passes between two readings take so many times as long as one
STEADY_ENOUGH = 3  # passes that count, where there are so many; else all do
LEAST_SHARE = 0.3  # of all passes that count, if so many are nearly steady
NEARLY = 6.0  # tolerances
MOST_TIMES, MOST_SECONDS = 3.0, 6.0  # the normal time that may be taken, and beyond it


class Reference:
    """Work that is always the same, in parts; calling it gives the seconds of each."""

    def __init__(
        self, parts: Sequence[Callable[[], object]], clock: Clock = time.perf_counter
    ) -> None:
        self._clock = clock
        once = [(part, self._shortest(part, 1)) for part in parts]
        self._parts = [
            (part, max(math.ceil(PART_SECONDS / max(seconds, 1e-9)), 1)) for part, seconds in once
        ]

    def __call__(self) -> Readings:
        return tuple(self._shortest(part, count) for part, count in self._parts)

    def _shortest(self, part: Callable[[], object], count: int) -> float:
        shortest, spent = math.inf, 0.0
        for _ in range(REPEATS):
            started = self._clock()
            for _ in range(count):
                part()
            seconds = self._clock() - started
            shortest, spent = min(shortest, seconds), spent + seconds
            if spent > LONG_SECONDS:
                break
        return shortest


class Watch:
    """Knows what a reference has taken so far, and so which readings of it are slow.

    `read` times the reference; a part may take longer than at best by its share of `tolerances`.
    """

    def __init__(
        self,
        read: Callable[[], Readings],
        tolerances: Sequence[float],
        *,
        burst: int = BURST,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._read, self._tolerances, self.clock = read, tuple(tolerances), clock
        self._sorted: list[list[float]] = [[] for _ in self._tolerances]  # by part
        self.seconds = math.inf  # that a reading takes at least
        for _ in range(burst):
            self.look()

    def look(self, *, waiting: bool = False) -> Readings:
        """Read the reference now. What is read while `waiting` does not make slowness usual."""
        started = self.clock()
        found = self._read()
        self.seconds = min(self.seconds, self.clock() - started)
        if not waiting:
            for known, seconds in zip(self._sorted, found, strict=True):
                insort(known, seconds)
        return found

    def is_steady(self, readings: Readings) -> bool:
        """Whether the machine was about as fast then as it is at best, as far as is known now."""
        return self.slowness(readings) <= 1.0

    def slowness(self, readings: Readings) -> float:
        """By how many tolerances the slowest part took longer than at best; below 0 if less."""
        return max(
            (seconds / known[int(USUAL * len(known))] - 1) / tolerance
            for seconds, known, tolerance in zip(
                readings, self._sorted, self._tolerances, strict=True
            )
        )


@dataclass(frozen=True)
class _Block:
    """Passes one after the other, the readings around them, and what all of them took."""

    before: Readings
    after: Readings
    count: int
    seconds: float


class Passes:
    """Which passes of a measurement are steady, and when there are enough of them.

    ``share(passes, seconds)`` of the measurement is done after so many passes and seconds, 1 at its
    end. It is asked about the steady ones. Those that lack are made while the machine is steady,
    until the measurement takes `MOST_TIMES` as long as it would without, or `most_seconds` more.
    """

    def __init__(
        self,
        watch: Watch,
        share: Callable[[int, float], float],
        *,
        most_seconds: float = MOST_SECONDS,
    ) -> None:
        self._watch, self._share_of, self._most_seconds = watch, share, most_seconds
        self._blocks: list[_Block] = []
        self._limit = math.inf
        self.share, self.ran = 0.0, 0
        self._spent = 0.0  # on passes
        self._steady = 0, 0.0  # passes, and their seconds
        self._last = watch.look()
        self._began = self._since = watch.clock()
        self._count, self._seconds = 0, 0.0  # of the passes since the last reading

    def passed(self, *, close: bool = False) -> None:
        """A pass has ended; read the reference if it is time, or to `close` the measurement."""
        now = self._watch.clock()
        self._count, self._seconds = self._count + 1, self._seconds + now - self._since
        self.ran, self._spent = self.ran + 1, self._spent + now - self._since
        if math.isinf(self._limit) and self._share_of(self.ran, self._spent) >= 1.0:
            normal = now - self._began
            self._limit = min(normal * MOST_TIMES, normal + self._most_seconds)
        if close or self._is_due(now):
            self._close()
            self._wait()
            self._count, self._seconds = 0, 0.0
        self._since = self._watch.clock()

    @property
    def steady(self) -> list[int]:
        """The numbers of those that were steady, as far as is known by now."""
        return [number for number, slowness in enumerate(self._slowness()) if slowness <= 1.0]

    @property
    def counted(self) -> list[int]:
        """The numbers of the passes that count: the steady ones, and if few, nearly steady ones.

        All, where these are too few.
        """
        slowness = np.array(self._slowness())
        steadiest = np.argsort(slowness, kind="stable")
        count = int(np.count_nonzero(slowness <= 1.0))
        if self._share_of(*self._steady) < 1.0:
            nearly = int(np.count_nonzero(slowness <= NEARLY))
            count = max(count, min(nearly, math.ceil(LEAST_SHARE * self.ran)))
            if count < STEADY_ENOUGH:
                return list(range(self.ran))
        return sorted(steadiest[:count].tolist())

    def _slowness(self) -> list[float]:
        """`[pass]` that of the slower of the readings around it (`Watch.slowness`)."""
        return [
            slowness
            for block in self._blocks
            for slowness in [max(map(self._watch.slowness, (block.before, block.after)))]
            * block.count
        ]

    def _is_due(self, now: float) -> bool:
        """Whether passes since the last reading took long enough, or would be the last."""
        count, seconds = self._steady
        return (
            self._seconds >= PASSES_TO_READING * self._watch.seconds
            or self._share_of(count + self._count, seconds + self._seconds) >= 1.0
            or now - self._began >= self._limit
        )

    def _close(self) -> None:
        before, self._last = self._last, self._watch.look()
        self._blocks.append(_Block(before, self._last, self._count, self._seconds))
        steady = [block for block in self._blocks if self._is_steady(block)]
        self._steady = sum(each.count for each in steady), sum(each.seconds for each in steady)
        self.share = min(self._share_of(*self._steady), 1.0)

    def _wait(self) -> None:
        """Once there are as many passes as there would be without, until another can be steady."""
        while not self._watch.is_steady(self._last) and 0.0 < self._waited() < 1.0:
            self._last = self._watch.look(waiting=True)
        self.share = max(self.share, self._waited())

    def _waited(self) -> float:
        """The share of the time that has gone by, 0 before the normal end."""
        if math.isinf(self._limit):
            return 0.0
        elapsed = self._watch.clock() - self._began
        return elapsed / self._limit if elapsed < self._limit else 1.0

    def _is_steady(self, block: _Block) -> bool:
        return self._watch.is_steady(block.before) and self._watch.is_steady(block.after)
