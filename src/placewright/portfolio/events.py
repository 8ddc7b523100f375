"""What happens while a portfolio runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from placewright.plan import gap_of

Kind = Literal["plan", "bound", "failure", "absence", "end", "episodes"]


@dataclass(frozen=True)
class Event:
    """A better plan or bound, a member that failed, members that sit out, the end, or episodes.

    `seconds` since the start; `value` and `lower_bound` (seconds) as they stand then, None
    before there is one; `source`: which member it comes from, or why the run ends; `message`:
    what a member that failed had to say, or who sits out and why.

    Of planners that learn there are only `episodes`: how many so far, and the `mean` and `spread`
    of what the latest came to, in seconds.
    """

    kind: Kind
    seconds: float
    value: float | None
    lower_bound: float
    source: str
    message: str = ""
    episodes: int | None = None
    mean: float | None = None
    spread: float | None = None

    @property
    def gap(self) -> float | None:
        """(value - lower_bound) / value; None before there is a plan."""
        if self.value is None:
            return None
        return gap_of(self.value, self.lower_bound)

    def to_document(self) -> dict[str, Any]:
        learning = ("episodes", "mean", "spread")
        fields = {
            name: value
            for name, value in asdict(self).items()
            if name not in learning or self.kind == "episodes"
        }
        return fields | {"gap": self.gap}


Observer = Callable[[Event], None]


def warn_of_failures(event: Event) -> None:
    """What is told where nobody listens: who failed or sits out is nothing to keep quiet about."""
    if event.kind == "failure":
        warnings.warn(f"planner '{event.source}': {event.message}", RuntimeWarning, stacklevel=2)
    elif event.kind == "absence":
        warnings.warn(event.message, RuntimeWarning, stacklevel=2)
