"""A device for each unit: a search for any way that they fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from placewright.budget import Budget
from placewright.errors import ProvedInfeasibleError
from placewright.graph import Flags, Floats, Ints
from placewright.problem import ROUNDING, Problem
from placewright.solvers.cp_sat import cp_solver, solve_model

Chosen = list[tuple[int, int]]
"""Units, each with a device."""

EFFORT = 20.0  # of CP-SAT's deterministic time
WHOLE = 2**50  # into how many shares all bytes are cut where some are no whole number


def unit_fit(problem: Problem, seconds: float = math.inf) -> Ints | None:
    """`[unit]` devices that support them and hold all, pinned ones where they are pinned.

    None if the search does not end in time; ProvedInfeasibleError if there are none.
    """
    one_each = np.eye(problem.device_count, dtype=np.bool_)
    choices = [one_each[allowed] for allowed in problem.unit_allowed]
    chosen = fit(problem.unit_memory, choices, problem.device_memory, seconds)
    if chosen is None:
        return None
    devices = [choices[unit][choice].argmax() for unit, choice in enumerate(chosen)]
    return np.array(devices, dtype=np.int32)


def fit(
    need: Floats, choices: Sequence[Flags], capacity: Floats, seconds: float = math.inf
) -> list[int] | None:
    """`[unit]` one of its choices, such that all fit: ``choices[unit][choice, device]``.

    A unit takes its need of every device of its choice. Units that need nothing get their first.
    None if the search does not end in time; ProvedInfeasibleError if there is no way.

    >>> alone = np.eye(2, dtype=bool)
    >>> fit(np.array([2.0, 3.0, 4.0]), [alone] * 3, np.array([5.0, 4.0]))
    [0, 0, 1]
    """
    from ortools.sat.python import cp_model

    if not all(len(each) for each in choices):
        raise _none_fits()
    needs, capacities = _whole(need, capacity)
    model = cp_model.CpModel()
    chosen = {
        unit: [model.new_bool_var("") for _ in choices[unit]]
        for unit in np.flatnonzero(need).tolist()
    }
    for literals in chosen.values():
        model.add_exactly_one(literals)
    for device in np.flatnonzero(np.isfinite(capacity)).tolist():
        taken = [
            needs[unit] * literal
            for unit, literals in chosen.items()
            for literal, devices in zip(literals, choices[unit], strict=True)
            if devices[device]
        ]
        model.add(sum(taken) <= capacities[device])

    def read(solver: Any) -> list[int]:
        picked = {
            u: [solver.boolean_value(x) for x in row].index(True) for u, row in chosen.items()
        }
        return [picked.get(unit, 0) for unit in range(len(need))]

    answer = solve_model(cp_solver(workers=1, effort=EFFORT), model, Budget(seconds), read)
    if answer.infeasible:
        raise _none_fits()
    return answer.values


def overfull(unit: Ints, device: Ints, memory: Floats, capacity: Floats) -> list[Chosen]:
    """Of each device with more than it holds, rounding aside, the units that take it.

    Each ``unit[k]`` keeps its ``memory[unit]`` on ``device[k]``, once however often it is named.
    """
    pairs = np.unique(np.stack([device, unit], axis=1), axis=0)
    used = np.bincount(pairs[:, 0], memory[pairs[:, 1]], len(capacity))
    found = []
    for crowded in np.flatnonzero(used > capacity * (1 + ROUNDING)).tolist():
        there = pairs[pairs[:, 0] == crowded, 1]
        found.append([(u, crowded) for u in there[memory[there] > 0].tolist()])
    return found


def _whole(need: Floats, capacity: Floats) -> tuple[list[int], list[int]]:
    """Needs and capacities as whole numbers; of fractions of a byte, no fit is lost to rounding."""
    finite = np.where(np.isfinite(capacity), capacity, 0.0)
    if (need == np.floor(need)).all() and need.sum() < 2**53:
        return need.astype(np.int64).tolist(), np.minimum(finite, 2.0**53).astype(np.int64).tolist()
    share = need.sum() / WHOLE
    needs = np.floor(need / share).astype(np.int64)
    capacities = np.ceil(np.minimum(finite / share, 2.0 * WHOLE)).astype(np.int64)
    return needs.tolist(), capacities.tolist()


def _none_fits() -> ProvedInfeasibleError:
    return ProvedInfeasibleError(
        "no placement of the ops, those together that must be, fits the devices' memory, as is "
        "proved; give the devices more memory"
    )
