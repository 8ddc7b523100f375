"""A lower bound and the argument that proves it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placewright.problem import Problem


@dataclass(frozen=True)
class Bound:
    """`value` seconds, and the argument that proves it in words."""

    value: float
    source: str


def nowhere(problem: Problem) -> Bound | None:
    """Infinite seconds if a unit can be on no device, for then there is no plan; else None."""
    if problem.unit_allowed.any(axis=1).all():
        return None
    return Bound(math.inf, "an op that can be on no device")
