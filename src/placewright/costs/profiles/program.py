"""What profiling asks of a program, whatever runs it, and how often it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from placewright.costs.profiles.steady import Passes, Watch
from placewright.importers.costs import Cost
from placewright.system.accelerators.places import CpuPlace, Moments, Place

WARM_UPS = 2  # passes or calls that are not counted: memory and library plans are made in them
FEWEST, MOST = 7, 60  # passes of a program, and calls of one by itself
PASS_SECONDS = 2.0  # after so long a program has been run often enough
CALL_SECONDS = 0.05
FEWEST_LONG = 3  # calls of one that takes longer than that
BURST_CALLS = 10  # one after the other, for a time on a device that queues
COLD_BYTES = 96 * 2**20  # of weights' copies that take turns, more than caches hold
MOST_COPIES = 32
THIS_PROCESS = CpuPlace(())  # wherever it is pinned

Samples = dict[str, list[float]]
"""Seconds of each call that was measured, by signature."""
Heard = Callable[[int, float, Callable[[], Samples]], None]
"""Is told how many passes are done, the share of all that is, and, if asked, the samples so far."""


@dataclass(frozen=True)
class Context:
    """What runs in context gave: samples of every call, and seconds of each whole pass.

    Both are of the passes that count: of those that `ran`, the `steady` ones, or all where these
    are too few. `calls` has the samples by the names of the ops, where these are known. `memory`
    is the bytes that each call needs beyond its inputs and outputs, where the device tells.
    """

    samples: Samples
    passes: tuple[float, ...]
    calls: Mapping[str, list[float]] = field(default_factory=dict)
    ran: int = 0
    steady: int = 0
    memory: Mapping[str, float] = field(default_factory=dict)


class Program(Protocol):
    """A source that can be run, and its calls by their signatures.

    Both ways of measuring run on a `place` that was entered, and raise ExecutionError for a call
    that fails.
    """

    @property
    def name(self) -> str:
        """The source, as written."""

    @property
    def library(self) -> str:
        """What runs it, such as ``torch 2.13.0``."""

    @property
    def calls(self) -> Mapping[str, int]:
        """Every distinct call, in the program's order, and how often it is made."""

    @property
    def bytes_in_context(self) -> float:
        """The most bytes that a run as a whole holds."""

    def work(self, call: str) -> Cost:
        """What a call computes and moves."""

    @property
    def bytes_before(self) -> Mapping[str, float]:
        """By call, what `reuse.median_before` says of the whole program."""

    def in_context(self, place: Place, heard: Heard) -> Context:
        """Every call, as the whole program runs.

        A call without samples could not be seen there: it is to be measured alone.
        """

    def alone(self, call: str, place: Place) -> list[float]:
        """Seconds of one call by itself, on tensors of its own."""


def share_done(passes: int, elapsed: float) -> float:
    """The share of a run in context that is done after so many passes and seconds; 1 at its end."""
    return min(max(passes / MOST, min(elapsed / PASS_SECONDS, passes / FEWEST)), 1.0)


def calls_done(calls: int, elapsed: float) -> float:
    """The share of a call's runs by itself that is done, as `share_done`."""
    fewest = FEWEST_LONG if elapsed > CALL_SECONDS * calls else FEWEST
    return min(max(calls / MOST, min(elapsed / CALL_SECONDS, calls / fewest)), 1.0)


def at_least(count: int) -> Callable[[int, float], float]:
    """Done after `count` passes, whatever they take."""
    return lambda passes, elapsed: min(passes / count, 1.0)


def copies_of(weight_bytes: float) -> int:
    """How many copies of a call's weights take turns, so that they come from memory."""
    if not 0 < weight_bytes <= COLD_BYTES:
        return 1
    return min(int(COLD_BYTES // weight_bytes) + 1, MOST_COPIES)


def samples_of(run: Callable[[int], object], watch: Watch) -> list[float]:
    """Seconds of ``run(number)``, often enough, while it is steady; `number` counts the runs."""
    clock = watch.clock

    def once(number: int) -> float:
        before = clock()
        run(number)
        return clock() - before

    return steady_values(once, watch)


def burst_samples(
    run: Callable[[int], object], watch: Watch, place: Place, moments: Moments
) -> list[float]:
    """As `samples_of`, on a place that queues: a sample is the mean of a burst of calls.

    So it is the time at which calls follow each other, whichever takes longer: giving one to the
    device, or the device doing it. The call before a burst gives the device something to do until
    the first of these is there.
    """

    def once(number: int) -> float:
        first = number * (BURST_CALLS + 1)
        moments.clear()
        run(first)
        moments.mark()
        for call in range(1, BURST_CALLS + 1):
            run(first + call)
        moments.mark()
        place.settle()
        return sum(moments.intervals()) / BURST_CALLS

    return steady_values(once, watch)


def samples_at(place: Place, run: Callable[[int], object], watch: Watch) -> list[float]:
    """`burst_samples` on a place that queues, `samples_of` elsewhere."""
    if place.queues:
        return burst_samples(run, watch, place, place.moments())
    return samples_of(run, watch)


def steady_values(
    run: Callable[[int], float], watch: Watch, *, fewest: int | None = None
) -> list[float]:
    """What ``run(number)`` gives after it has warmed up, of the runs that count.

    There are `fewest` of them, or as many as calls are given.
    """
    for number in range(WARM_UPS):
        run(number)
    values: list[float] = []
    passes = Passes(watch, calls_done if fewest is None else at_least(fewest))
    while passes.share < 1.0:
        values.append(run(WARM_UPS + passes.ran))
        passes.passed()
    return [values[number] for number in passes.counted]
