"""Value against bytes moved: what `replan` trades, and which states are worth keeping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

MOST_ARCHIVED = 400


class Traded(Protocol):
    """Something with a value in seconds, and the bytes that move to get there."""

    @property
    def value(self) -> float: ...

    @property
    def moved(self) -> float: ...


T = TypeVar("T", bound=Traded)


class Archive(list[T]):
    """States by rising bytes, none of which another beats or equals in both."""

    def offer(self, state: T) -> None:
        """Keep the state if none kept is as good in both."""
        if any(kept.value <= state.value and kept.moved <= state.moved for kept in self):
            return
        self[:] = [kept for kept in self if kept.value < state.value or kept.moved < state.moved]
        self.append(state)
        self.sort(key=lambda kept: kept.moved)
        if len(self) > MOST_ARCHIVED:
            self[:] = thinned(self, MOST_ARCHIVED // 2)

    def wants(self, value: float, moved: float) -> bool:
        """Whether a state that comes to this would be kept."""
        return not any(kept.value <= value and kept.moved <= moved for kept in self)


def thinned(states: Sequence[T], count: int) -> list[T]:
    """At most `count` of states by rising bytes: the ends, and those that save the most seconds.

    A state's saving is what it is better than the one before it.
    """
    if len(states) <= count:
        return list(states)
    saving = [states[k - 1].value - states[k].value for k in range(1, len(states) - 1)]
    by_saving = sorted(range(1, len(states) - 1), key=lambda k: -saving[k - 1])
    kept = sorted({0, len(states) - 1, *by_saving[: count - 2]})
    return [states[k] for k in kept]
