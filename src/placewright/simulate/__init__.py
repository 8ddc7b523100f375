"""What a placement comes to: one evaluator per objective, none of which decides a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placewright.system.references import referred

if TYPE_CHECKING:
    from placewright.outcome import Outcome
    from placewright.plan import Placement
    from placewright.problem import Problem


def evaluate(problem: Problem, placement: Placement) -> Outcome:
    """The outcome of a placement under the problem's objective (see `outcome`)."""
    outcome: Outcome = referred(problem.options.row.evaluate)(problem, placement)
    return outcome
