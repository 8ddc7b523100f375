"""The plan that others start from: the best of some that are made in no time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError, OptionError
from placewright.formulations.latency.incumbent import Incumbent, fitting, interchangeable_devices
from placewright.plan import Placement
from placewright.planners.base import NoRoomError, Planner
from placewright.planners.latency.construct.list_scheduling import Heft, MEtf
from placewright.planners.latency.construct.simple import MinimumExecutionTime, SingleDevice
from placewright.problem import Problem

STARTS: tuple[Callable[[], Planner], ...] = (Heft, MEtf, MinimumExecutionTime, SingleDevice)


def first_incumbent(
    problem: Problem, seed: int, another: Planner | None, budget: Budget
) -> tuple[Incumbent | None, InfeasibleError | None]:
    """The shortest of the budget's start and the plans of HEFT, simpler rules and `another`.

    Or why there is none.
    """
    best = fitting(problem, [_relabelled(problem, budget.start)]) if budget.start else None
    reason: InfeasibleError | None = None
    for planner in [create() for create in STARTS] + ([another] if another else []):
        if best is not None and budget.left <= 0:
            break
        refusal = planner.supports(problem)
        if refusal:
            raise OptionError(f"start '{planner.name}' cannot take this problem: {refusal}")
        try:
            proposal = planner.plan(problem, budget, seed, no_progress)
        except NoRoomError as error:
            reason = reason or error
            continue
        except InfeasibleError:  # such as: no single device has everything
            continue
        best = fitting(problem, [_relabelled(problem, proposal.placement)], best)
    return best, reason


def simple_start(problem: Problem, seed: int, budget: Budget, planner: str) -> Incumbent:
    """The same for a search, which needs one; InfeasibleError if there is none."""
    best, reason = first_incumbent(problem, seed, None, budget)
    if best is None:
        raise reason or InfeasibleError(f"planner '{planner}' found no plan to start from")
    return best


def _relabelled(problem: Problem, placement: Placement) -> Placement:
    """The same plan with twin devices named in the order in which units first use them."""
    unit_device = problem.unit_device(placement.device)
    used = list(dict.fromkeys(unit_device.tolist()))
    renamed = np.arange(problem.device_count, dtype=np.int32)
    for group in interchangeable_devices(problem):
        by_use = sorted(group, key=lambda d: used.index(d) if d in used else len(used))
        renamed[by_use] = group
    return Placement(renamed[placement.device], placement.sequence)
