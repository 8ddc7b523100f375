"""Noticing Ctrl-C where what it interrupts makes the best of it and goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType


@contextmanager
def noticed_interrupt() -> Iterator[list[bool]]:
    """A list that Ctrl-C fills: planners that stop early keep the interrupt to themselves.

    Only where Ctrl-C raises KeyboardInterrupt, as it does in the main thread by default.
    """
    seen: list[bool] = []
    before = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: FrameType | None) -> None:
        seen.append(True)
        signal.default_int_handler(number, frame)

    ours = before is signal.default_int_handler and current_thread() is main_thread()
    if ours:
        signal.signal(signal.SIGINT, handle)
    try:
        yield seen
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
