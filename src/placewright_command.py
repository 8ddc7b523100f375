"""The console script. It is no part of the package, whose import takes a moment: Ctrl-C in that
moment is told in a sentence too."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType

INTERRUPTED = 130
STDERR = 2


def main() -> None:
    """Import the command line, and run it; its exit code, or that of an interrupt."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored
    if heard:
        signal.signal(signal.SIGINT, _end)
    from placewright.cli import main as command

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command()
    except KeyboardInterrupt:
        _say()
        sys.exit(INTERRUPTED)


def _end(number: int, frame: FrameType | None) -> None:
    """End at once: libraries turn an exception that comes while they load into one of their own."""
    _say()
    os._exit(INTERRUPTED)


def _say() -> None:
    with suppress(OSError):  # nobody may read it
        os.write(STDERR, b"placewright: interrupted\n")
