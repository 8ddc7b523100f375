"""Ctrl-C and SIGTERM while a portfolio runs: it stops and keeps what it has."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Whether one came. `raising`: raise KeyboardInterrupt where it comes, for work done here."""

    def __init__(self) -> None:
        self.came = False
        self.raising = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        impatient, self.came = self.came, True
        if self.raising or impatient:
            raise KeyboardInterrupt


@contextmanager
def noticed_interrupts() -> Iterator[Interrupts]:
    """Interrupts are noted instead of ending the process, where that is this thread's to decide.

    A handler that the caller has set stays in force.
    """
    interrupts = Interrupts()
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {each: signal.getsignal(each) for each in SIGNALS}
    ours = [each for each in SIGNALS if before[each] is usual[each]]
    if current_thread() is not main_thread():
        ours = []
    for each in ours:
        signal.signal(each, interrupts.handle)
    try:
        yield interrupts
    finally:
        for each in ours:
            signal.signal(each, before[each])
