"""A solver at work in a thread of its own, with one rule for Ctrl-C, and what it answers.

Python sees Ctrl-C only between its own instructions, so a solver never works in the thread that
waits for it. After Ctrl-C it is told to stop, whoever listens hears of its best, and
KeyboardInterrupt is raised again.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

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


class Work(Protocol):
    """What a thread does; `stop`, from another thread, ends it soon."""

    def do(self) -> object: ...

    def stop(self) -> None: ...


W = TypeVar("W", bound=Work)


class Crew(Generic[W]):
    """Threads that are given one work after another, none of which waits for the others.

    Who asks what is done (`heard`) is not kept from Ctrl-C. At the end of the block whatever is
    still at work is stopped.

    >>> with Crew(2) as crew:
    ...     crew.give(work)
    ...     done = crew.heard(0.1)
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads)
        self._working: dict[Future[object], W] = {}

    @property
    def idle(self) -> int:
        """How many threads have nothing to do."""
        return self.threads - len(self._working)

    @property
    def working(self) -> list[W]:
        return list(self._working.values())

    def give(self, work: W) -> None:
        self._working[self._pool.submit(work.do)] = work

    def heard(self, seconds: float) -> list[W]:
        """What is done, as soon as something is, or nothing after so many seconds.

        Raises what a work raises.
        """
        done = wait(self._working, timeout=seconds, return_when=FIRST_COMPLETED).done
        found = []
        for future in done:
            found.append(self._working.pop(future))
            future.result()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        interrupted = False
        while self._working:
            try:
                for work in self._working.values():
                    work.stop()
                done = wait(self._working, timeout=POLL_SECONDS).done
                for future in done:
                    del self._working[future]
            except KeyboardInterrupt:
                interrupted = True
        self._pool.shutdown()
        if interrupted and error is None:
            raise KeyboardInterrupt


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
