"""Noticing Ctrl-C and SIGTERM where what they interrupt makes the best of it and goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import current_thread, main_thread
from types import FrameType

USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
_printing: ContextVar[bool] = ContextVar("_printing", default=False)


class Interrupts:
    """Whether one came. `raising`: raise KeyboardInterrupt where it comes, for work done here.

    Planners that stop early keep the exception to themselves; `came` is what tells. `terminating`
    if it was SIGTERM.
    """

    def __init__(self, raising: bool) -> None:
        self.came = self.terminating = False
        self.raising = raising

    def handle(self, number: int, frame: FrameType | None) -> None:
        impatient, self.came = self.came, True
        self.terminating |= number == signal.SIGTERM
        if self.raising or impatient:
            raise KeyboardInterrupt


@contextmanager
def noticed_interrupts(raising: bool = True) -> Iterator[Interrupts]:
    """Interrupts are noted, where that is this thread's to decide.

    A handler that the caller has set stays in force, but for one of these: then the inner notes
    what comes, and the outer knows of it in the end. Who was told to terminate does when the
    outermost has ended, by SystemExit, but for a command, which `prints_when_interrupted`.
    """
    interrupts = Interrupts(raising)
    before = {number: signal.getsignal(number) for number in USUAL}
    outer = {number: _noticing(handler) for number, handler in before.items()}
    ours = [number for number in USUAL if outer[number] or before[number] is USUAL[number]]
    if current_thread() is not main_thread():
        ours = []
    for number in ours:
        signal.signal(number, interrupts.handle)
    try:
        yield interrupts
    finally:
        for number in ours:
            signal.signal(number, before[number])
            if (noticing := outer[number]) is not None:
                noticing.came |= interrupts.came
                noticing.terminating |= interrupts.terminating
        outermost = not any(outer.values())
        if interrupts.terminating and outermost and not _printing.get():
            raise SystemExit(128 + signal.SIGTERM)


@contextmanager
def prints_when_interrupted() -> Iterator[None]:
    """What SIGTERM ends within goes on to say and write what it has, and ends by itself."""
    token = _printing.set(True)
    try:
        yield
    finally:
        _printing.reset(token)


def _noticing(handler: object) -> Interrupts | None:
    """What handles a signal, if it is an `Interrupts`."""
    found = getattr(handler, "__self__", None)
    return found if isinstance(found, Interrupts) else None
