"""Two things that may not overlap if they use the same resource."""

from __future__ import annotations

from dataclasses import dataclass

from placewright.solvers.mathopt import Program, Term


@dataclass(frozen=True, eq=False)
class Interval:
    """An op or a transfer: start variable, duration as terms, and its time window."""

    start: int
    duration: list[Term]
    earliest: float
    """No start before."""
    latest: float
    """No finish after."""


def keep_apart(
    program: Program, one: Interval, two: Interval, together: list[tuple[list[Term], list[Term]]]
) -> tuple[int, int]:
    """Rows that keep two intervals apart where both use a resource; the two order variables.

    `together` has, for each resource, the 0/1 sums that say whether `one` and `two` use it. Both
    use it only if one of the order variables is 1, and these mean "finishes before the other
    starts". A row that an order variable does not switch on is loosened by the least constant
    that the windows need, and no more (the papers' M).
    """
    first, second = program.binary(), program.binary()
    for uses_one, uses_two in together:
        program.row([(first, 1.0), (second, 1.0), *_negated(uses_one + uses_two)], lower=-1.0)
    _before(program, first, one, two)
    _before(program, second, two, one)
    return first, second


def _before(program: Program, order: int, one: Interval, two: Interval) -> None:
    """start(two) ≥ finish(one) − loose · (1 − order)."""
    loose = one.latest - two.earliest
    if loose > 0:
        row = [(two.start, 1.0), (one.start, -1.0), *_negated(one.duration), (order, -loose)]
        program.row(row, lower=-loose)


def _negated(terms: list[Term]) -> list[Term]:
    return [(variable, -coefficient) for variable, coefficient in terms]
