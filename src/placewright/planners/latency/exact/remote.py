"""Cases given to a Ray cluster one after another, as threads are given works (`Crew`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from placewright.budget import Budget
from placewright.planners.latency.exact.cases import Case

if TYPE_CHECKING:
    from placewright.planners.latency.exact.ray_pool import RayPool


class HasCase(Protocol):
    case: Case


W = TypeVar("W", bound=HasCase)


class RemoteCrew(Generic[W]):
    """Workers of a pool; who made it stops them (`RayPool.kill`)."""

    def __init__(self, pool: RayPool, limit: Budget) -> None:
        self._pool, self._limit = pool, limit
        self.working: list[W] = []

    @property
    def idle(self) -> int:
        """How many workers have nothing to do."""
        return self._pool.workers - len(self.working)

    def give(self, work: W) -> None:
        self.working.append(work)
        self._pool.give(work.case)

    def heard(self, seconds: float) -> list[W]:
        """The works that are done, their cases with what is known of them.

        Where no worker starts, all works are over, with no more known than before.
        """
        found = []
        for case, answer in self._pool.heard(self._limit, seconds):
            case.known = answer
            found += [work for work in self.working if work.case is case]
        if not self._pool.has_workers:
            self._pool.kill()
            found = self.working
        self.working = [work for work in self.working if work not in found]
        return found
