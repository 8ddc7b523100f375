"""Workers on the machines of a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator

from placewright.portfolio.work import Ended, Message, Task
from placewright.portfolio.workers import READY, serve
from placewright.problem import Problem
from placewright.system.ray_connection import import_ray
from placewright.system.ray_worker import RayWorker, wait_for_answers

STARTING = 60.0  # seconds by which at least one worker must have begun


class RayWorkers:
    """A `Workers` on Ray, each worker on a CPU, for which the problem is sent to a machine once.

    This process must be connected to Ray (`ray_connection.connected`). Workers begin to be idle
    when Ray has started them, which takes seconds; more than there are free CPUs wait for the
    cluster to have them. All must run this version of placewright: else OptionError.
    """

    def __init__(self, problem: Problem, count: int) -> None:
        self._ray = import_ray()
        self._problem = self._ray.put(problem)
        self._workers = [RayWorker(self._ray, serve, [self._problem]) for _ in range(count)]
        self._idle: set[int] = set()
        self._deadline = time.monotonic() + STARTING

    def idle(self) -> list[int]:
        return sorted(self._idle)

    def give(self, worker: int, task: Task) -> None:
        self._idle.remove(worker)
        self._workers[worker].give(task)

    def hear(self, seconds: float) -> list[tuple[int, Message]]:
        self._check_any()
        asked = {each: n for n, worker in enumerate(self._workers) for each in worker.asked}
        told: list[tuple[int, Message]] = []
        for answer in wait_for_answers(self._ray, list(asked), seconds):
            number = asked[answer]
            told += [(number, message) for message in self._messages(number, answer)]
        return told

    def end(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._idle.clear()
        del self._problem  # so that Ray drops it

    def _messages(self, number: int, answer: object) -> Iterator[Message]:
        worker = self._workers[number]
        was_alive = worker.is_alive
        for message in worker.hear(answer):
            if message == READY or isinstance(message, Ended):
                self._idle.add(number)
            if message != READY:
                yield message
        if was_alive and not worker.is_alive:
            self._idle.discard(number)
            yield Ended(error=worker.fault, lost=True)

    def _check_any(self) -> None:
        """ChildProcessError if there is nobody to hear of."""
        if not any(worker.is_alive for worker in self._workers):
            raise ChildProcessError(f"no Ray worker is left: {self._workers[-1].fault}")
        has_begun = any(worker.has_begun for worker in self._workers)
        if not has_begun and time.monotonic() > self._deadline:
            raise ChildProcessError(
                f"no Ray worker has started within {STARTING:g} s; the cluster's CPUs may be taken"
            )
