"""Worker processes that neither run the caller's script again nor mind Ctrl-C.

A spawned process imports the main module of its parent, which does all of a script's work once
more if that has no ``if __name__ == "__main__"``. Ours need nothing of it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from types import ModuleType
from typing import Any


def start_worker(work: Callable[..., None], *arguments: Any) -> SpawnProcess:
    """A process that does `work`, a function of a module, and ends when this one does."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_begin, args=(work, arguments), daemon=True)
    with quiet_start():
        process.start()
    return process


@contextmanager
def quiet_start() -> Iterator[None]:
    """What starts in here does not import the main module; Ctrl-C waits until it has begun."""
    main = sys.modules["__main__"]
    blocked = _block_interrupts()
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def leave_interrupts_to_parent() -> None:
    """In a worker: Ctrl-C is for the parent, and the end of the parent is the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _begin(work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    leave_interrupts_to_parent()
    work(*arguments)


def _block_interrupts() -> Any:
    if not hasattr(signal, "pthread_sigmask"):
        return None
    return signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
