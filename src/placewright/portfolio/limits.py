"""When a portfolio may stop."""

from __future__ import annotations

import math
from dataclasses import dataclass

from placewright.errors import OptionError
from placewright.options import check_seconds
from placewright.plan import OPTIMAL_GAP

DEFAULT_SECONDS = 10.0


@dataclass(frozen=True)
class Limits:
    """Whatever comes first ends a run: `seconds`, `iterations` (rounds of members), or a `gap`.

    A run with `iterations` takes no notice of time but for `seconds`: its members are limited in
    what they count, so that the same seed gives the same plan on every machine.
    """

    seconds: float = math.inf
    iterations: int | None = None
    gap: float = OPTIMAL_GAP

    def __post_init__(self) -> None:
        check_seconds(self.seconds)
        if self.iterations is not None and self.iterations < 1:
            raise OptionError(f"iterations is {self.iterations}; give a whole number above 0")
        if not 0 <= self.gap < 1:
            raise OptionError(f"the gap is {self.gap}; give a share of the value from 0 to below 1")

    @classmethod
    def of(
        cls, seconds: float = math.inf, iterations: int | None = None, gap: float | None = None
    ) -> Limits:
        """What was asked for; `DEFAULT_SECONDS` where nothing says when to end."""
        if math.isinf(seconds) and iterations is None:
            seconds = DEFAULT_SECONDS
        return cls(seconds, iterations, OPTIMAL_GAP if gap is None else gap)
