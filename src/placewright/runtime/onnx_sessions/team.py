"""A thread for each device: what they do together, and how all end when one fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from placewright.errors import ExecutionError
from placewright.runtime.onnx_sessions.sessions import run_options
from placewright.system.pinning import pin_thread

T = TypeVar("T")
_END_SECONDS = 5.0  # for the op at hand to end; a thread that is later is left to itself


@dataclass(frozen=True)
class Device:
    """A device of this machine: its name, its threads, the cores it is pinned to (none: any)."""

    name: str
    threads: int
    cores: tuple[int, ...] = ()


class StoppedError(Exception):
    """The run has been given up: another thread has failed, or nobody waits for it any more."""


class Team:
    """One thread per device, for as long as the ``with`` block lasts.

    `options` are to be those of every run of a session, so that the end of the block ends it too.
    """

    def __init__(self, devices: Sequence[Device], timeout: float) -> None:
        self.devices = devices
        self.options = run_options()
        self.lock = threading.Lock()
        self.arrived = threading.Condition(self.lock)
        self._ended = threading.Condition(self.lock)
        self._timeout = timeout
        self._latest = time.monotonic()
        self._stopped = False
        self._error: BaseException | None = None
        self._results: dict[int, Any] = {}
        self._running: dict[int, str] = {}
        self._waiting: dict[int, str] = {}
        self._jobs: list[SimpleQueue[Callable[[int], Any] | None]] = [
            SimpleQueue() for _ in devices
        ]
        self._threads = [
            threading.Thread(target=self._work, args=(rank,), name=device.name, daemon=True)
            for rank, device in enumerate(devices)
        ]

    def __enter__(self) -> Team:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self.lock:
            self._stop()
        for jobs in self._jobs:
            jobs.put(None)
        deadline = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def each(self, job: Callable[[int], T]) -> list[T]:
        """What `job` returns for each rank, called in the rank's thread, all at once.

        Raises what the first to fail raises. ExecutionError if no rank has got on for as long as
        the timeout.
        """
        with self.lock:
            self._results.clear()
            self._latest = time.monotonic()
        for jobs in self._jobs:
            jobs.put(job)
        with self.lock:
            while len(self._results) < len(self.devices):
                if self._error is not None:
                    raise self._error
                left = self._latest + self._timeout - time.monotonic()
                if left <= 0:
                    self._stop()
                    raise ExecutionError(self._stuck())
                self._ended.wait(left)
            return [self._results[rank] for rank in range(len(self.devices))]

    # -- in the threads ----------------------------------------------------------------------------

    def check(self) -> None:
        """StoppedError, where nothing need be done any more."""
        if self._stopped:
            raise StoppedError

    def begins(self, rank: int, what: str) -> None:
        """Say what a rank does: ``runs op 'a'``; `StoppedError` as of `check`."""
        self.check()
        self._running[rank] = what

    def goes_on(self, rank: int) -> None:
        """Say that it has done so; the lock is held."""
        self._latest = time.monotonic()
        self._running.pop(rank, None)

    def wait(self, rank: int, what: str, until: Callable[[], bool]) -> None:
        """Wait for something that has `arrived`; the lock is held, and let go meanwhile."""
        self._waiting[rank] = what
        self.arrived.wait_for(lambda: self._stopped or until())
        del self._waiting[rank]
        self.check()

    def _work(self, rank: int) -> None:
        pinned = False
        while (job := self._jobs[rank].get()) is not None:
            try:
                if not pinned and self.devices[rank].cores:
                    pin_thread(self.devices[rank].cores)
                    pinned = True
                result = job(rank)
            except StoppedError:
                continue
            except BaseException as error:
                with self.lock:
                    self._error = self._error or error
                    self._stop()
            else:
                with self.lock:
                    self._results[rank] = result
                    self._ended.notify_all()
            job = result = None

    def _stop(self) -> None:
        self._stopped = True
        self.options.terminate = True
        self.arrived.notify_all()
        self._ended.notify_all()

    def _stuck(self) -> str:
        doing = list((self._waiting or self._running).items())
        rank, what = doing[0] if doing else (0, "does not answer")
        return (
            f"device '{self.devices[rank].name}' {what}, and nothing has come to an end for "
            f"{self._timeout:g} s; give it longer with --timeout"
        )
