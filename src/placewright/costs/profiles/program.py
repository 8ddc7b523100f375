"""What profiling asks of a program, whatever runs it, and how often it is run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from placewright.importers.costs import Cost

WARM_UPS = 2  # passes or calls that are not counted: memory and library plans are made in them
FEWEST, MOST = 7, 60  # passes of a program, and calls of one by itself
PASS_SECONDS = 2.0  # after so long a program has been run often enough
CALL_SECONDS = 0.05
FEWEST_LONG = 3  # calls of one that takes longer than that
COLD_BYTES = 96 * 2**20  # of weights' copies that take turns, more than caches hold
MOST_COPIES = 32

Samples = dict[str, list[float]]
"""Seconds of each call that was measured, by signature."""
Heard = Callable[[int, float, Samples], None]
"""Is told how many passes are done, the share of all that is, and the samples there are so far."""


@dataclass(frozen=True)
class Context:
    """What runs in context gave: samples of every call, and seconds of each whole pass.

    `calls` has the samples by the names of the ops, where these are known.
    """

    samples: Samples
    passes: tuple[float, ...]
    calls: Mapping[str, list[float]] = field(default_factory=dict)


class Program(Protocol):
    """A source that can be run, and its calls by their signatures.

    Both ways of measuring run on the cores that the process is on, with `threads` threads, and
    raise ExecutionError for a call that fails.
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
        """By call, the bytes that the one before it reads and writes; the median of all."""

    def in_context(self, threads: int, heard: Heard) -> Context:
        """Every call, as the whole program runs.

        A call without samples could not be seen there: it is to be measured alone.
        """

    def alone(self, call: str, threads: int) -> list[float]:
        """Seconds of one call by itself, on tensors of its own."""


def share_done(passes: int, elapsed: float) -> float:
    """The share of a run in context that is done after so many passes and seconds; 1 at its end."""
    return min(max(passes / MOST, min(elapsed / PASS_SECONDS, passes / FEWEST)), 1.0)


def copies_of(weight_bytes: float) -> int:
    """How many copies of a call's weights take turns, so that they come from memory."""
    if not 0 < weight_bytes <= COLD_BYTES:
        return 1
    return min(int(COLD_BYTES // weight_bytes) + 1, MOST_COPIES)


def samples_of(run: Callable[[int], object]) -> list[float]:
    """Seconds of ``run(number)``, often enough; `number` counts the runs."""
    clock = time.perf_counter
    samples: list[float] = []
    spent = 0.0
    for number in range(WARM_UPS + MOST):
        before = clock()
        run(number)
        seconds = clock() - before
        if number >= WARM_UPS:
            samples.append(seconds)
            spent += seconds
        fewest = FEWEST_LONG if seconds > CALL_SECONDS else FEWEST
        if len(samples) >= fewest and spent >= CALL_SECONDS:
            break
    return samples
