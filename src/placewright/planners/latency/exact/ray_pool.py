"""Modules solved on the machines of a Ray cluster."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection

from placewright.budget import Budget
from placewright.planners.latency.exact.cases import NOTHING, Answer, Case, Job, Method
from placewright.system.ray_connection import connected, import_ray
from placewright.system.ray_worker import RayWorker, wait_for_answers

TRIES = 2  # with a problem whose worker is lost
GRACE = 0.5  # seconds for solvers that should have ended by themselves
LONGEST_WAIT = 60.0  # seconds; Ray knows no wait without an end


@contextmanager
def ray_pool(address: str, workers: int | None = None) -> Iterator[RayPool]:
    """A pool at the address of a Ray cluster, as many `workers` as that has CPUs."""
    with connected(address) as cluster:
        pool = RayPool(workers or cluster.cpus)
        try:
            yield pool
        finally:
            pool.end()


class RayPool:
    """Solves problems on Ray, `workers` at a time, each on a CPU.

    This process must be connected to Ray. Workers start when they are needed first, and stay.
    Machines may come and go: a problem whose worker is lost is solved once more elsewhere, and
    then left, with a warning.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._ray = import_ray()
        self._started: list[RayWorker] = []
        self._waiting: deque[tuple[Case, int]] = deque()  # and at which try
        self._busy: dict[RayWorker, tuple[Case, int]] = {}

    @property
    def cases(self) -> list[Case]:
        """Those given whose answers are not heard yet."""
        return [case for case, _ in (*self._waiting, *self._busy.values())]

    @property
    def has_workers(self) -> bool:
        """Whether there are any, if not all have begun."""
        return bool(self._started)

    def give(self, case: Case) -> None:
        """Have a problem solved as soon as a worker is free."""
        self._waiting.append((case, 1))
        while len(self._started) < min(self.workers, len(self.cases)):
            self._start()

    def heard(self, limit: Budget, seconds: float) -> list[tuple[Case, Answer]]:
        """What is known after cases, as soon as one is over, or nothing after so many seconds.

        Workers have what is left of `limit` for each.
        """
        for worker in self._idle():
            if self._waiting:
                case, _ = self._busy[worker] = self._waiting.popleft()
                worker.give((_sent(case), max(limit.left, 0.0)))
        found = []
        for case, attempt, answer in self._hear(seconds):
            if answer is not None:
                found.append((case, answer))
            elif attempt < TRIES:
                self._waiting.append((case, attempt + 1))
            else:
                found.append((case, _given_up(case)))
        return found

    def run(self, cases: Sequence[Case], limit: Budget) -> Iterator[tuple[int, Answer]]:
        """The numbers of cases and what is known after them, as they come, until time is up.

        No worker is at work when it ends, in whatever way.
        """
        numbers = {id(case): number for number, case in enumerate(cases)}
        for case in cases:
            self.give(case)
        try:
            while self.cases and self._started and limit.left > -GRACE:
                for case, answer in self.heard(limit, limit.left + GRACE):
                    yield numbers[id(case)], answer
        finally:
            self.kill()

    def kill(self) -> None:
        """Stop what is running, and forget what waits."""
        for worker in self._busy:
            worker.kill()
            self._started.remove(worker)
        self._busy.clear()
        self._waiting.clear()

    def end(self) -> None:
        """Stop all workers."""
        for worker in self._started:
            worker.kill()
        self._started.clear()
        self._busy.clear()

    def _start(self) -> None:
        self._started.append(RayWorker(self._ray, solve_cases))

    def _idle(self) -> list[RayWorker]:
        return [each for each in self._started if each.has_begun and each not in self._busy]

    def _hear(self, seconds: float) -> Iterator[tuple[Case, int, Answer | None]]:
        """What workers say to which case at which try; None of one that is lost."""
        asked = {answer: worker for worker in self._started for answer in worker.asked}
        for ref in wait_for_answers(self._ray, list(asked), min(seconds, LONGEST_WAIT)):
            worker = asked[ref]
            told = worker.hear(ref)
            if not worker.is_alive and worker in self._started:
                self._lose(worker)
            if worker in self._busy and (told or not worker.is_alive):
                yield *self._busy.pop(worker), told[0] if told else None

    def _lose(self, worker: RayWorker) -> None:
        """Another takes its place, unless it has never been of use."""
        self._started.remove(worker)
        if worker.has_begun:
            self._start()
        elif not self._started:
            warnings.warn(
                f"modules were left unsolved: no Ray worker starts: {worker.fault}",
                RuntimeWarning,
                stacklevel=4,
            )


def solve_cases(connection: Connection) -> None:
    """In a worker: solve one problem after another."""
    while True:
        (job, method, known), seconds = connection.recv()
        connection.send(Case(job, method, known or NOTHING).solve(Budget(seconds)))


def _sent(case: Case) -> tuple[Job, Method, Answer | None]:
    """What a worker is told of a case; None if nothing is known."""
    return case.job, case.method, None if case.known is NOTHING else case.known


def _given_up(case: Case) -> Answer:
    """What is known after a turn that came to nothing."""
    warnings.warn(
        f"a module of {case.problem.op_count} ops was left unsolved: {TRIES} Ray workers were "
        "lost with it (out of memory?)",
        RuntimeWarning,
        stacklevel=3,
    )
    return replace(case.known, turns=max(case.known.turns, case.job.first) + 1)
