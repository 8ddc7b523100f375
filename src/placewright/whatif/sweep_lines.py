"""The lines of a sweep: what a variant comes to, which pay, and which differences are proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from placewright.plan import Plan
from placewright.problem import LONG_ROUNDING
from placewright.serving.served import ServingPlan

Compared = Literal["", "better", "worse", "equal", "open"]


@dataclass(frozen=True)
class SweepLine:
    """One variant: its plan, or why it has none.

    `devices` are those of its cluster, used or not; `price` is what they cost, USD per hour, if
    prices were given. `front`: no other variant is as good for less, or better for as much.
    `served` is what requests come to, where the sweep is for a mix of them. `carried` is the
    variant whose plan this is, where that was the better one here too.

    `better_than` are the variants that it is proved to be better than, whatever plans these may
    still get: its score is above what their bounds allow. `than_previous` says so of the line
    before it that has a plan: ``better``, ``worse``, ``equal``, or ``open`` where the scores differ
    by less than what the search leaves open; empty where there is none.
    """

    name: str
    devices: int
    price: float | None
    plan: Plan | None
    error: str = ""
    front: bool = False
    served: ServingPlan | None = None
    carried: str = ""
    better_than: tuple[str, ...] = ()
    than_previous: Compared = ""

    @property
    def price_of_tokens(self) -> float | None:
        """USD per million tokens of the output, if prices were given and tokens are made."""
        if self.served is None or self.price is None:
            return None
        return self.price / 3600.0 / self.served.tokens_per_second * 1e6

    @property
    def cost(self) -> float:
        """What the front weighs against the value: the price if known, else the devices."""
        return float(self.devices) if self.price is None else self.price

    @property
    def score(self) -> float:
        """What the front wants large: tokens or samples per second, or minus a latency."""
        if self.plan is None:
            return -float("inf")
        if self.served is not None:
            return self.served.tokens_per_second
        throughput = self.plan.throughput
        return -self.plan.value if throughput is None else throughput

    @property
    def highest_score(self) -> float:
        """What the score of no plan of the variant can be above, by the lower bound."""
        if self.plan is None:
            return float("inf")
        plan = self.plan if self.served is None else self.served
        if self.served is None and self.plan.throughput is None:
            return -plan.lower_bound
        return self.score * plan.value / plan.lower_bound if plan.lower_bound else float("inf")


def with_front(lines: Sequence[SweepLine]) -> list[SweepLine]:
    """The lines, those on the Pareto front of cost and score marked."""
    planned = [line for line in lines if line.plan is not None]

    def beaten(line: SweepLine) -> bool:
        return any(
            other.cost <= line.cost
            and other.score >= line.score
            and (other.cost, other.score) != (line.cost, line.score)
            for other in planned
        )

    return [replace(line, front=line.plan is not None and not beaten(line)) for line in lines]


def with_certainty(lines: Sequence[SweepLine]) -> list[SweepLine]:
    """The lines with what is proved of each beside the others (`better_than`, `than_previous`)."""
    found: list[SweepLine] = []
    previous: SweepLine | None = None
    highest = [line.highest_score for line in lines]
    for line in lines:
        score = line.score
        margin = 0.0 if line.plan is None else LONG_ROUNDING * abs(score)
        better = tuple(
            other.name for other, most in zip(lines, highest, strict=True) if score - most > margin
        )
        than = "" if previous is None or line.plan is None else compared(line, previous)
        found.append(replace(line, better_than=better, than_previous=than))
        previous = line if line.plan is not None else previous
    return found


def compared(line: SweepLine, other: SweepLine) -> Compared:
    """What is known of two lines with plans: which is better whatever is still found, if one is.

    Lines of equal scores are equal as far as was found, though better plans may still tell them
    apart.
    """
    if abs(line.score - other.score) <= LONG_ROUNDING * abs(other.score):
        return "equal"
    if _proved(line, other):
        return "better"
    return "worse" if _proved(other, line) else "open"


def _proved(line: SweepLine, other: SweepLine) -> bool:
    """Whether the line's score is above all that the other variant can come to."""
    return line.score - other.highest_score > LONG_ROUNDING * abs(line.score)
