"""Plans of a chain's parts mixed until they fit, as a linear program: what bytes are worth.

    min Σ value · x   such that   Σ memory · x ≤ capacity,   x a path over devices,

with x ≥ 0 a share of each plan of each part, 1 for each part together (the relaxation of
`knapsack`). The duals of the capacities are prices of bytes. Any prices give valid bounds; these
are the ones at which no mix of the plans known costs less than this one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from placewright.budget import Budget
from placewright.graph import Floats
from placewright.solvers.mathopt import OutOfTimeError, Program, Term, relaxed


class Option(Protocol):
    """A plan of a part between a `pair` of devices: seconds, and ``memory[device]`` bytes."""

    @property
    def pair(self) -> tuple[int, int]: ...
    @property
    def value(self) -> float: ...
    @property
    def memory(self) -> Floats: ...


@dataclass(frozen=True, eq=False)
class Mix:
    """Its `value` in seconds; ``price[device]`` seconds a byte; whether it fits all in all."""

    value: float
    price: Floats
    fits: bool


def mixed(
    rows: Sequence[Sequence[Option]],
    capacity: Floats,
    unit: float,
    dearest: float,
    limit: Budget,
) -> Mix | None:
    """The shortest mix of the options of each part; None if time is up.

    `unit` seconds are what values are measured in. What does not fit costs as if all bytes cost
    `dearest` units, so that there is a mix, and no price is higher.
    """
    try:
        return _mixed(rows, capacity, unit, dearest, limit)
    except OutOfTimeError:  # while the program was written
        return None


def _mixed(
    rows: Sequence[Sequence[Option]],
    capacity: Floats,
    unit: float,
    dearest: float,
    limit: Budget,
) -> Mix | None:
    program = Program(limit)
    total = max(float(sum(row[0].memory.sum() for row in rows if row)), 1.0)
    objective = program.variable(-np.inf, np.inf)
    cost: list[Term] = [(objective, 1.0)]
    used: list[list[Term]] = [[] for _ in capacity]
    shares = []
    for row in rows:
        shares.append([program.variable(0.0, np.inf) for _ in row])
        for option, share in zip(row, shares[-1], strict=True):
            cost.append((share, -option.value / unit))
            for device, here in enumerate(used):
                here.append((share, float(option.memory[device]) / total))
        if row:  # where no plan is known, nothing is of what bytes are worth there
            program.row([(share, 1.0) for share in shares[-1]], lower=1.0, upper=1.0)
    for (before, left), (after, right) in pairwise(zip(rows, shares, strict=True)):
        if before and after:
            _join(program, before, left, after, right)
    over, limits = {}, {}
    for device in np.flatnonzero(np.isfinite(capacity)).tolist():
        over[device] = program.variable(0.0, np.inf)
        cost.append((over[device], -dearest))
        limits[device] = program.row_count
        kept = [*used[device], (over[device], -1.0)]
        program.row(kept, upper=float(capacity[device]) / total)
    program.row(cost, lower=0.0)
    program.minimise(objective)
    answer = relaxed(program, limit)
    if answer is None:
        return None
    price = np.zeros(len(capacity))
    for device, number in limits.items():
        price[device] = max(-float(answer.dual[number]), 0.0) * unit / total
    excess = sum(float(answer.values[variable]) for variable in over.values())
    return Mix(answer.value * unit, price, excess <= 1e-9)


def _join(
    program: Program,
    before: Sequence[Option],
    left: Sequence[int],
    after: Sequence[Option],
    right: Sequence[int],
) -> None:
    """As much of a part begins on a device as of the part before it ends there."""
    flow: dict[int, list[Term]] = defaultdict(list)
    for option, share in zip(before, left, strict=True):
        flow[option.pair[1]].append((share, 1.0))
    for option, share in zip(after, right, strict=True):
        flow[option.pair[0]].append((share, -1.0))
    for terms in flow.values():
        program.row(terms, lower=0.0, upper=0.0)
