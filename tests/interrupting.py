"""Ctrl-C in the middle of what a test does."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """SIGINT after some seconds, unless the block is left by then: it must not hit pytest."""
    at_work = True

    def interrupt(number: int, frame: FrameType | None) -> None:
        if at_work:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    with no_interrupt_lost():
        timer.start()
        try:
            yield
        finally:
            at_work = False
            timer.cancel()
            timer.join()
            signal.signal(signal.SIGINT, before)


@contextmanager
def no_interrupt_lost() -> Iterator[None]:
    """Nothing is called when Python collects garbage.

    Hypothesis has it call a function that counts the time it takes, and an exception in there,
    which may be the KeyboardInterrupt of this moment, is told of and dropped.
    """
    callbacks, gc.callbacks[:] = gc.callbacks[:], []
    try:
        yield
    finally:
        gc.callbacks[:] = callbacks
