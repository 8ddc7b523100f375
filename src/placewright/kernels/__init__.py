"""Compiled inner loops: functions of arrays and scalars, compiled nowhere else.

Most have a slow, obvious twin among the tests (``tests/naive/``); ``tests/kernels/test_twins.py``
says what each kernel is compared with. A kernel is compiled when it is first used and kept on disk
by numba, so that only the first run on a machine waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache


@cache
def before_compiling(tell: Callable[[], None]) -> None:
    """Call `tell` once, when the first kernel that is not on disk yet is about to be compiled.

    Asking again with the same function changes nothing.
    """
    from numba.core import event

    class Reporter(event.Listener):
        told = False

        def on_start(self, event: object) -> None:
            if not self.told:
                self.told = True
                tell()

        def on_end(self, event: object) -> None:
            pass

    event.register("numba:compile", Reporter())


@contextmanager
def compiling() -> Iterator[Callable[[], float]]:
    """Gives a function that says how many seconds have gone into compiling since."""
    from numba.core import event

    timer = event.TimingListener()
    with event.install_listener("numba:compile", timer):
        yield lambda: timer.duration if timer.done else 0.0
