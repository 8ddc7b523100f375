"""A worker process on some machine of a Ray cluster, as if it were on this one.

Ray's own worker only passes on what is said: the work is done in a process beside it. With both in
one process, CP-SAT and Ray's native library crash it now and then, and a kernel that keeps the
interpreter to itself keeps messages too.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Event
from typing import Any

from placewright.errors import reason
from placewright.system.processes import start_worker
from placewright.system.ray_connection import check_program, check_version
from placewright.version import __version__

LOST = "its Ray worker was lost (killed, out of memory, or its machine is gone)"
Work = Callable[..., None]


class RayWorker:
    """A process that does `work`, a function of a module, on a CPU of the cluster.

    `work` is called with a connection, on which it hears what it is given here and tells what is
    heard here, and with what the references `arguments` stand for. All machines must have this
    version of placewright: else OptionError, by `hear`.
    """

    def __init__(self, ray: Any, work: Work, arguments: Sequence[Any] = ()) -> None:
        self._ray = ray
        # On as many machines as there are. Two threads: one is told, one tells.
        actor = ray.remote(_Host).options(
            num_cpus=1, max_concurrency=2, max_restarts=0, scheduling_strategy="SPREAD"
        )
        self._actor = actor.remote()
        self.has_begun, self.is_alive, self.fault = False, True, ""
        # In a list, or Ray would fetch what they stand for before versions are compared.
        self._listening = self._actor.begin.remote(__version__, work, list(arguments))
        self._giving: Any = None

    @property
    def asked(self) -> list[Any]:
        """References to the answers it owes: what it has to tell, and that it was told."""
        if not self.is_alive:
            return []
        return [each for each in (self._listening, self._giving) if each is not None]

    def give(self, what: Any) -> None:
        self._giving = self._actor.give.remote(what)

    def hear(self, answer: Any) -> list[Any]:
        """What an answer that has come says. If that is that it is lost, it `is_alive` no more."""
        if not self.is_alive:  # since the other answer, just now
            return []
        try:
            told = self._ray.get(answer)
        except self._ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            is_lost = isinstance(cause, EOFError | OSError)
            self._lose(error, LOST if is_lost else f"{type(cause).__name__}: {reason(cause)}")
            return []
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            self._lose(error, LOST)
            return []
        if answer == self._giving:
            self._giving = None
            return []
        messages = []
        if self.has_begun:
            messages = told
        else:
            check_version(*told)
            self.has_begun = True
        self._listening = self._actor.hear.remote()
        return list(messages)

    def kill(self) -> None:
        """Stop it, whatever it does."""
        self.is_alive = False
        self._listening = self._giving = None
        # If it is gone already, or Ray is, there is nothing to do.
        with suppress(self._ray.exceptions.RayError, ConnectionError, ValueError):
            self._ray.kill(self._actor, no_restart=True)

    def _lose(self, error: Exception, fault: str) -> None:
        check_program(error)
        self.fault = fault
        self.kill()


def wait_for_answers(ray: Any, answers: list[Any], seconds: float) -> list[Any]:
    """As soon as there is one, all there are, or none after so many seconds.

    ChildProcessError if the connection to Ray is lost.
    """
    try:
        ready, _ = ray.wait(answers, num_returns=1, timeout=max(seconds, 0.0))
        if ready:
            ready, _ = ray.wait(answers, num_returns=len(answers), timeout=0)
    except ConnectionError as error:
        raise ChildProcessError(f"the connection to Ray is lost: {reason(error)}") from None
    return list(ready)


class _Host:
    """The actor on the machine: it starts the process, which ends with it, and passes on."""

    def __init__(self) -> None:
        self._connection: Connection
        self._has_begun = Event()

    def begin(self, version: str, work: Work, arguments: list[Any]) -> tuple[str, str]:
        """Start the process, if the version is this one; which version this is, and where."""
        import ray

        if version == __version__:
            self._connection, theirs = Pipe()
            start_worker(work, theirs, *ray.get(arguments))
            theirs.close()  # so that the end of the process is the end of the pipe
            self._has_begun.set()
        return __version__, platform.node()

    def give(self, what: Any) -> None:
        self._has_begun.wait()  # in the other thread
        self._connection.send(what)

    def hear(self) -> list[Any]:
        """What it has told since it was last asked, as soon as there is something."""
        told = [self._connection.recv()]
        with suppress(EOFError, OSError):  # is said by the next call
            while self._connection.poll():
                told.append(self._connection.recv())
        return told
