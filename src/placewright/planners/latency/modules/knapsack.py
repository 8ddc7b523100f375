"""Multiple-choice knapsack: a plan for each part where the shortest path takes too much memory.

Bytes get prices, which rise where a device has too much and fall where it has room (subgradient
steps): at these prices the shortest path over all plans says which chain is best and which further
arcs are worth a try. Equal parts all choose the same at given prices, so which of them have
which plan, such that all fit, is the program

    min Σ value · x   such that   x is a path over devices,   Σ memory · x ≤ capacity,

with x one plan of one arc of each part, which CP-SAT solves.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from placewright.budget import Budget
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.latency.modules.arcs_annealed import AnnealedArcs, cheapest
from placewright.planners.latency.modules.chain import Chain, Pair
from placewright.solvers.cp_sat import cp_solver, solve_model

STEPS = 40
UNITS = 1_000_000  # of CP-SAT's numbers, for the largest value and the capacity
DETERMINISTIC_SECONDS = 1.0


def prices_of(chains: list[Chain[AnnealedArcs]], capacity: Floats, goal: float) -> Floats:
    """`[device]` seconds for each byte.

    At these prices no plan that fits is shorter than a bound, which is to come as near to `goal`
    as it can.
    """
    price = np.zeros(len(capacity))
    best = (-math.inf, price)
    for _ in range(STEPS):
        arcs, length = min((cheapest(chain, price) for chain in chains), key=itemgetter(1))
        if math.isinf(length):
            break
        bound = length - float(price @ capacity)
        if bound > best[0]:
            best = (bound, price)
        excess = np.sum([arc.memory(arc.cheapest(price)) for arc in arcs], axis=0) - capacity
        if bound >= goal or not excess.any():
            break
        price = np.maximum(price + (goal - bound) / (excess**2).sum() * excess, 0.0)
    return best[1]


@dataclass(frozen=True, eq=False)
class Choice:
    """A plan of a part between a pair of devices: `value` seconds, ``memory[device]`` bytes."""

    pair: Pair
    value: float
    memory: Floats
    placement: Placement

    def cost(self, price: Floats) -> float:
        """Seconds, with those that its bytes cost."""
        return self.value + float(price @ self.memory)

    def is_as_good_as(self, other: Choice) -> bool:
        """Whether it is as short and takes as little on every device."""
        return self.value <= other.value and bool((self.memory <= other.memory).all())


def fitted(
    rows: Sequence[Sequence[Choice]], capacity: Floats, seconds: float
) -> list[Choice] | None:
    """One of the choices of each part, such that they fit; None if none were found."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    chosen = [[(model.new_bool_var(""), choice) for choice in row] for row in rows]
    for row in chosen:
        model.add_exactly_one(x for x, _ in row)
    for before, after in pairwise(chosen):
        flow: dict[int, list[Any]] = defaultdict(list)  # a device's arcs to it less those from it
        for x, choice in before:
            flow[choice.pair[1]].append(x)
        for x, choice in after:
            flow[choice.pair[0]].append(-x)
        for terms in flow.values():
            model.add(sum(terms) == 0)
    everything = [each for row in chosen for each in row]
    for device, most in enumerate(np.maximum(capacity, 1.0).tolist()):
        memory = [
            min(math.ceil(float(choice.memory[device]) / most * UNITS), UNITS + 1) * x
            for x, choice in everything
        ]
        model.add(sum(memory) <= UNITS)
    longest = max((choice.value for _, choice in everything), default=0.0)
    scale = UNITS / longest if longest > 0 else 1.0
    model.minimize(sum(round(choice.value * scale) * x for x, choice in everything))

    def read(solver: Any) -> list[Choice]:
        return [next(choice for x, choice in row if solver.value(x)) for row in chosen]

    solver = cp_solver(workers=1, effort=DETERMINISTIC_SECONDS)
    return solve_model(solver, model, Budget(seconds), read).values
