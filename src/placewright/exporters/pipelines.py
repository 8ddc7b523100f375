"""How many data-parallel pipelines share the micro-batches of a step: the best number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from placewright.errors import InfeasibleError

if TYPE_CHECKING:
    from placewright.exporters.planning import EnginePlan

BEST = "best"
"""Instead of a number: the best that there is."""


def best_number(
    planned: Callable[[int], EnginePlan], micro_batches: int, devices: int
) -> EnginePlan:
    """The best of the plans of each number that divides the micro-batches, bounded by all of them.

    InfeasibleError of one pipeline where none has a plan.
    """
    found: list[EnginePlan] = []
    failed: list[InfeasibleError] = []
    for number in range(1, min(micro_batches, devices) + 1):
        if micro_batches % number == 0:
            try:
                found.append(planned(number))
            except InfeasibleError as error:
                failed.append(error)
    if not found:
        raise failed[0]
    best = min(found, key=lambda each: each.plan.value)
    *numbers, last = (str(each.plan.problem.options.data_parallel) for each in found)
    tried = f"{', '.join(numbers)} or {last}" if numbers else last
    least = min(found, key=lambda each: each.plan.lower_bound)
    plan = replace(
        best.plan,
        lower_bound=least.plan.lower_bound,
        bound_source=f"{least.plan.bound_source}; the least of {tried} data-parallel pipelines",
        seconds=sum(each.plan.seconds for each in found),
    )
    free = next((each.free for each in found if each.free is not None), None)
    return replace(best, by_blocks=replace(best.by_blocks, plan=plan), free=free)
