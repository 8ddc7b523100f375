"""Many small problems solved exactly, in several threads.

Every problem is solved by itself in one thread, so what comes out does not depend on how many
threads there are, unless time runs out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from placewright.budget import Budget

if TYPE_CHECKING:
    from placewright.planners.latency.exact.ray_pool import RayPool

from placewright.planners.latency.exact.cases import NOTHING, Answer, Case, Job, Method, later
from placewright.solvers.running import run_together

MOST_THREADS = 8


class Solvers:
    """Solves parts of a problem, equal ones once, and remembers what is known of each."""

    def __init__(
        self, method: Method, workers: int | None = None, pool: RayPool | None = None
    ) -> None:
        self.method, self.pool = method, pool
        self.workers = workers or min(MOST_THREADS, os.cpu_count() or 1)
        if method.solver != "cp-sat":  # MILP solvers share threads among themselves
            self.workers = 1
        self.at_once = pool.workers if pool else self.workers
        self.known: dict[tuple[bytes, ...], Answer] = {}

    def solve(self, jobs: Sequence[Job], limit: Budget) -> list[Answer]:
        """What is known of each job after its turns, or when time is up."""
        keys = [job.sub.key() for job in jobs]
        asked: dict[tuple[bytes, ...], Job] = {}
        for key, job in zip(keys, jobs, strict=True):
            if key in asked:  # the same for the most that is asked of it
                other = asked[key]
                job = replace(
                    job, cutoff=max(job.cutoff, other.cutoff), low=max(job.low, other.low),
                    until=later(job.until, other.until),
                )  # fmt: skip
            asked[key] = job
        cases = [self.case(job) for job in asked.values()]
        try:
            self._run(cases, limit)
        finally:  # after Ctrl-C too
            for case in cases:
                self.learn(case)
        return [self.known[key] for key in keys]

    def case(self, job: Job) -> Case:
        """A job with what is known of its problem, to be solved in whatever thread."""
        return Case(job, self.method, self.known.get(job.sub.key(), NOTHING))

    def learn(self, case: Case) -> None:
        """Remember what is known after it."""
        self.known[case.job.sub.key()] = case.known

    def _run(self, cases: list[Case], limit: Budget) -> None:
        if self.pool is not None and len(cases) > 1:
            for number, answer in self.pool.run(cases, limit):
                cases[number].known = answer
            return

        def stop() -> None:
            for case in cases:
                case.stop()

        run_together([partial(case.solve, limit) for case in cases], self.workers, stop)
