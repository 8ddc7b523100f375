"""A solver at work in a thread of its own, with one rule for Ctrl-C, and what it answers.

Python sees Ctrl-C only between its own instructions, so a solver never works in the thread that
waits for it. After Ctrl-C it is told to stop, whoever listens hears of its best, and
KeyboardInterrupt is raised again.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from placewright.budget import Budget

GRACE_SECONDS = 0.5  # for a solver to stop when its time is up; then it is left behind
HAND_OVER_SECONDS = 2.0  # after Ctrl-C, if it can be told to stop
LAST_SECONDS = 10.0  # that the process waits, at its end, for those left behind
POLL_SECONDS = 0.02

T = TypeVar("T")
Solution = TypeVar("Solution")


@dataclass(frozen=True)
class Answer(Generic[Solution]):
    """The best solution found, or None; the dual bound; whether nothing better is left.

    `complete` without a solution: there is none.
    """

    values: Solution | None
    bound: float
    complete: bool = False

    @property
    def infeasible(self) -> bool:
        return self.complete and self.values is None


def run_aside(
    name: str,
    work: Callable[[], T],
    limit: Budget,
    stop: Callable[[], None] | None = None,
    look: Callable[[], None] = lambda: None,
) -> T | None:
    """What `work` returns, or None if it does not heed the end of `limit` and is left behind.

    Another thread may bring that end forward. `stop` tells the work to end, None if it cannot be
    told. `look` is called now and then while it runs, and once after, by the calling thread.
    """
    outcome: list[T | BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # handed to the caller's thread
            outcome.append(error)
        done.set()

    thread = threading.Thread(target=run, daemon=True, name=f"placewright-{name}")
    thread.start()
    try:
        # Not `join`: interrupted, it takes a thread that runs for one that has ended.
        while not done.wait(POLL_SECONDS) and limit.left > -GRACE_SECONDS:
            look()
            if limit.left <= 0 and stop is not None:
                stop()
        look()
    except BaseException as error:
        if stop is not None:
            stop()
            done.wait(HAND_OVER_SECONDS)
        if isinstance(error, KeyboardInterrupt):
            look()
        raise
    finally:
        if not done.is_set():  # solvers abort a process that ends while they run
            atexit.register(thread.join, LAST_SECONDS)
    if not outcome:
        return None
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def run_together(
    tasks: Sequence[Callable[[], object]], threads: int, stop: Callable[[], None]
) -> None:
    """All tasks, in so many threads. After Ctrl-C `stop` tells them to end; then it is raised."""
    if threads == 1 or len(tasks) <= 1:
        for task in tasks:
            task()
        return
    interrupted = False
    with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
        futures = [pool.submit(task) for task in tasks]
        waiting = set(futures)
        while waiting:
            try:
                waiting = wait(waiting, timeout=POLL_SECONDS).not_done
            except KeyboardInterrupt:
                interrupted = True
            if interrupted:
                stop()
    if interrupted:
        raise KeyboardInterrupt
    for future in futures:
        future.result()
