"""Lower bounds: what no plan can beat, per objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placewright.bounds.bound import Bound, nowhere
from placewright.system.references import referred

if TYPE_CHECKING:
    from placewright.problem import Problem

__all__ = ["Bound", "lower_bound"]


def lower_bound(problem: Problem) -> Bound:
    """The best bound that takes no search, for the problem's own objective and options.

    Infinite where an op can be on no device. That of another problem without any plan is finite.
    """
    if none := nowhere(problem):
        return none
    from placewright.analysis.usable_memory import with_usable_memory

    bound: Bound = referred(problem.options.row.bound)(with_usable_memory(problem))
    return bound
