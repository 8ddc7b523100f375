"""Worker processes that neither run the caller's script again nor mind Ctrl-C.

A new process imports the main module of its parent, which does all of a script's work once more if
that has no ``if __name__ == "__main__"``. Ours need nothing of it.

Where the system can fork, workers are forked from a server process that has imported what they
need, so that only the first waits for that. The parent itself is never forked: it may have threads.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

SERVER = "forkserver"


def start_worker(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process that does `work`, a function of a module, and ends when this one does."""
    return _started("spawn", work, arguments)


def fork_worker(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """The same for one of several, from the server process: what that knows each has at once."""
    return _started(SERVER if _can_fork() else "spawn", work, arguments)


def expect_workers(*modules: str) -> None:
    """Have the server process import modules now, before the first worker is started.

    It does so once in the life of this process, beside what this one does meanwhile.
    """
    if not _can_fork():
        return
    from multiprocessing.forkserver import ensure_running

    multiprocessing.get_context(SERVER).set_forkserver_preload(list(modules))
    with quiet_start():
        ensure_running()


def _started(method: str, work: Callable[..., None], arguments: tuple[Any, ...]) -> BaseProcess:
    context: Any = multiprocessing.get_context(method)
    process: BaseProcess = context.Process(target=_begin, args=(work, arguments), daemon=True)
    with quiet_start():
        try:
            process.start()
        except EOFError:  # the server process is gone
            raise ChildProcessError("the server of worker processes has ended") from None
    return process


def _can_fork() -> bool:
    return SERVER in multiprocessing.get_all_start_methods()


@contextmanager
def quiet_start() -> Iterator[None]:
    """What starts in here does not import the main module; Ctrl-C waits until it has begun."""
    _start_tracker()
    main = sys.modules["__main__"]
    blocked = _block_interrupts()
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _start_tracker() -> None:
    """The process that Python starts beside the first worker: it ends with signals unblocked."""
    if _can_fork():
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()


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
