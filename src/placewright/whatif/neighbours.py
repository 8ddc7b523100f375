"""Plans carried over from one variant of a sweep to the next.

Two variants that hardly differ, planned each for itself, may come out in the wrong order: one
device more and a worse plan, by the luck of the searches. But a plan on some devices is a plan
where there are more, and one for slow links a plan for quick ones. So a variant's plan is tried on
its neighbours: those that differ in one thing, by one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from placewright.analysis.warm_start import starting_placement
from placewright.bounds import lower_bound
from placewright.errors import GraphError, InputError
from placewright.outcome import Outcome
from placewright.plan import Placement, Plan
from placewright.problem import LONG_ROUNDING, Problem
from placewright.simulate import evaluate
from placewright.verify import verify
from placewright.whatif.variants import Variant


def neighbours(variants: Sequence[Variant]) -> list[list[int]]:
    """`[variant]` the numbers of those beside it on one axis (`Variant.at`), else in the list."""
    number = {variant.at: k for k, variant in enumerate(variants)}
    if len(number) < len(variants):  # variants made by hand have no axes
        return [[k for k in (j - 1, j + 1) if 0 <= k < len(variants)] for j in range(len(variants))]
    found = []
    for variant in variants:
        beside = [
            (*variant.at[:axis], place + step, *variant.at[axis + 1 :])
            for axis, place in enumerate(variant.at)
            for step in (-1, 1)
        ]
        found.append([number[at] for at in beside if at in number])
    return found


def carried_over(plan: Plan, problem: Problem, most: float | None = None) -> Plan | None:
    """The plan's placement on `problem`, judged; None where it does not hold there.

    Devices are matched by name and kind, else by kind, in their order. None also where it takes
    `most` seconds or more.
    """
    placement = _placement(plan, problem)
    if placement is None:
        return None
    timed = _timed(problem, placement)
    if timed is None or (most is not None and timed[1].value >= most * (1 - LONG_ROUNDING)):
        return None
    kept, outcome = timed
    bound = lower_bound(problem)
    found = replace(
        plan,
        problem=problem,
        placement=replace(kept, sequence=None),
        outcome=outcome,
        value=outcome.value,
        lower_bound=min(bound.value, outcome.value),
        bound_source=bound.source,
        history=None,
    )
    return found if verify(found).ok else None


def _timed(problem: Problem, placement: Placement) -> tuple[Placement, Outcome] | None:
    """The placement and what it comes to: in its own order, or a new one if that is better."""
    tries = [placement]
    if placement.sequence is not None:
        tries.append(replace(placement, sequence=None))
    found = []
    for each in tries:
        try:
            found.append((each, evaluate(problem, each)))
        except GraphError:  # an order, or subgraphs, that wait for each other
            continue
    finite = [pair for pair in found if np.isfinite(pair[1].value)]
    return min(finite, key=lambda pair: pair[1].value, default=None)


def _placement(plan: Plan, problem: Problem) -> Placement | None:
    """The plan's placement with the problem's numbers; None where a device or an op is missing."""
    names = _renamed_devices(plan, problem)
    if names is None:
        return None
    if names != plan.problem.device_names:
        plan = replace(plan, problem=replace(plan.problem, device_names=names))
    resized = problem.options.row.by_input and plan.problem.options.batch != problem.options.batch
    if resized:
        plan = _for_batch(plan, problem.options.batch)
    try:
        found = starting_placement(plan, problem, ordered=not resized)
    except InputError:
        return None
    if problem.options.row.by_input:
        return found
    runs = np.isfinite(problem.op_time[np.arange(problem.op_count), found.device]).all()
    return found if runs else None


def _renamed_devices(plan: Plan, problem: Problem) -> tuple[str, ...] | None:
    """The names that the plan's devices have in `problem`; None if one in use has none.

    Those that are not used, and have no such name, keep one that the problem lacks.
    """
    mine, used = plan.problem, set(plan.used_devices)
    kind_of = dict(zip(problem.device_names, problem.device_kinds, strict=True))
    names: dict[int, str] = {
        device: mine.device_names[device]
        for device in used
        if kind_of.get(mine.device_names[device]) == mine.device_kinds[device]
    }
    free = [name for name in problem.device_names if name not in names.values()]
    for device in sorted(used - set(names)):
        name = next((each for each in free if kind_of[each] == mine.device_kinds[device]), None)
        if name is None:
            return None
        names[device] = name
        free.remove(name)
    return tuple(
        names.get(device, f"unused device {device}") for device in range(mine.device_count)
    )


def _for_batch(plan: Plan, batch: int) -> Plan:
    """The same places for a batch of another size: those of its inputs over and over.

    The outcome stays that of its own size, and is none of the new one.
    """
    device = plan.placement.device[:, np.arange(batch) % plan.problem.options.batch]
    options = replace(plan.problem.options, batch=batch)
    return replace(
        plan,
        placement=Placement(device),
        problem=replace(plan.problem, options=options),
    )
