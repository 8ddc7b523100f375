"""Who does the tasks: this process itself, or worker processes beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import Protocol

from placewright.portfolio.work import Ended, Message, Task, perform
from placewright.problem import Problem
from placewright.system.processes import expect_workers, fork_worker

READY = "ready"
STDOUT = 1  # a file descriptor


class Workers(Protocol):
    """Workers, numbered from 0, each of which does one task at a time."""

    def idle(self) -> list[int]:
        """Workers that are ready for a task."""

    def give(self, worker: int, task: Task) -> None:
        """Have an idle worker do a task."""

    def hear(self, seconds: float) -> list[tuple[int, Message]]:
        """What workers tell, as soon as one does, or nothing after so many seconds."""

    def end(self) -> None:
        """Stop all workers, whatever they do."""


class Alone:
    """This process: one worker, whose task is done when it is given.

    What it tells on the way goes to `listener`, if there is one; the rest is heard afterwards.
    """

    def __init__(self, problem: Problem, listener: Callable[[Message], None] | None = None) -> None:
        self.problem, self.listener = problem, listener
        self.told: list[tuple[int, Message]] = []

    def idle(self) -> list[int]:
        return [0]

    def give(self, worker: int, task: Task) -> None:
        perform(self.problem, task, self._tell)

    def hear(self, seconds: float) -> list[tuple[int, Message]]:
        told, self.told = self.told, []
        return told

    def end(self) -> None:
        pass

    def _tell(self, message: Message) -> None:
        if self.listener is None or isinstance(message, Ended):
            self.told.append((0, message))
        else:
            self.listener(message)


def expect_processes() -> None:
    """Begin to prepare for `Processes`, which are ready the sooner then."""
    expect_workers(__name__)


class Processes:
    """Worker processes on this machine. They begin to be idle after a second or so."""

    def __init__(self, problem: Problem, count: int) -> None:
        expect_processes()
        self._workers = [_Worker(problem) for _ in range(count)]

    def idle(self) -> list[int]:
        return [number for number, worker in enumerate(self._workers) if worker.is_idle]

    def give(self, worker: int, task: Task) -> None:
        self._workers[worker].give(task)

    def hear(self, seconds: float) -> list[tuple[int, Message]]:
        alive = {worker.connection: n for n, worker in enumerate(self._workers) if worker.is_alive}
        told: list[tuple[int, Message]] = []
        for connection in wait(list(alive), timeout=max(seconds, 0.0)):
            number = alive[connection]  # type: ignore[index]
            told += [(number, message) for message in self._workers[number].hear()]
        if not alive:
            raise ChildProcessError("every worker process was killed (out of memory?)")
        return told

    def end(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()


class _Worker:
    """One process and what is known of it."""

    def __init__(self, problem: Problem) -> None:
        self.connection, theirs = Pipe()
        self.process: BaseProcess = fork_worker(serve_connected, theirs)
        theirs.close()  # so that the end of the worker is the end of the pipe
        self.is_idle, self.is_alive = False, True
        # A pipe takes little of it before the worker reads, a second later: nobody waits for that.
        Thread(target=self._send, args=(problem,), daemon=True).start()

    def give(self, task: Task) -> None:
        self.is_idle = False
        self._send(task)

    def _send(self, what: Problem | Task) -> None:
        with suppress(OSError):  # its end is heard of
            self.connection.send(what)

    def hear(self) -> Iterable[Message]:
        """What lies in the pipe."""
        try:
            while self.connection.poll():
                message = self.connection.recv()
                if message == READY or isinstance(message, Ended):
                    self.is_idle = True
                if message != READY:
                    yield message
        except (EOFError, OSError):
            self.is_idle = self.is_alive = False
            yield Ended(error="its worker process was killed (out of memory?)", lost=True)


def serve_connected(connection: Connection) -> None:
    """In a worker process: `serve` the problem that is sent first.

    What solvers print there, whatever they are told (HiGHS does), is for nobody.
    """
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), STDOUT)
    serve(connection, connection.recv())


def serve(connection: Connection, problem: Problem) -> None:
    """In a worker: do one task after another."""
    connection.send(READY)
    while True:
        perform(problem, connection.recv(), connection.send)
