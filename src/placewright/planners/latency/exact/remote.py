"""Cases given to a Ray cluster one after another, as threads are given works (`Crew`)."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from placewright.budget import Budget
from placewright.planners.latency.exact.cases import Case

if TYPE_CHECKING:
    from placewright.planners.latency.exact.ray_pool import RayPool


class HasCase(Protocol):
    case: Case


W = TypeVar("W", bound=HasCase)


class RemoteCrew(Generic[W]):
    """Workers of a pool; whatever they still do at the end of the block is stopped."""

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
        """The works that are done, their cases with what is known of them."""
        found = []
        for case, answer in self._pool.heard(self._limit, seconds):
            case.known = answer
            found += [work for work in self.working if work.case is case]
        self.working = [work for work in self.working if work not in found]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.kill()
