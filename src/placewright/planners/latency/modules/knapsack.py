"""Which plan each module has where the shortest path takes more memory than there is.

Bytes get prices, which rise where a device has too much and fall where it has room (subgradient
steps): at these prices the shortest path over all plans says which line is best and which further
arcs are worth a try. Equal modules all choose the same at given prices, so which of them have
which plan, such that all fit, is the program

    min Σ value · x   such that   x is a path over devices,   Σ memory · x ≤ capacity,

with x one plan of one arc of each module, which CP-SAT solves.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from placewright.formulations.latency.incumbent import Incumbent
from placewright.graph import Floats
from placewright.planners.latency.modules.arc import Arc
from placewright.planners.latency.modules.line import Line
from placewright.solvers.cp_sat import cp_solver

STEPS = 40
UNITS = 1_000_000  # of CP-SAT's numbers, for the largest value and the capacity
DETERMINISTIC_SECONDS = 1.0


def prices_of(lines: list[Line], capacity: Floats, goal: float) -> Floats:
    """`[device]` seconds for each byte.

    At these prices no plan that fits is shorter than a bound, which is to come as near to `goal`
    as it can.
    """
    price = np.zeros(len(capacity))
    best = (-math.inf, price)
    for _ in range(STEPS):
        choice = min((line.path(price) for line in lines), key=lambda each: each.length)
        if math.isinf(choice.length):
            break
        bound = choice.length - float(price @ capacity)
        if bound > best[0]:
            best = (bound, price)
        arcs = choice.line.arcs(choice.path)
        excess = np.sum([arc.memory(arc.cheapest(price)) for arc in arcs], axis=0) - capacity
        if bound >= goal or not excess.any():
            break
        price = np.maximum(price + (goal - bound) / (excess**2).sum() * excess, 0.0)
    return best[1]


def fitted(
    line: Line, capacity: Floats, seconds: float
) -> tuple[list[Arc], list[Incumbent]] | None:
    """An arc and a plan of it for each module, such that they fit; None if none were found."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    longest = max(
        (arc.value for kind in line.kinds for arc in kind.arcs.values() if arc.plans), default=0.0
    )
    scale = UNITS / longest if longest > 0 else 1.0
    chosen: list[list[tuple[Any, Arc, Incumbent]]] = []
    cost: list[Any] = []
    memory: list[list[Any]] = [[] for _ in capacity]
    leaving: dict[int, list[Any]] = {}
    for number, kind in enumerate(line.kinds):
        row, arriving = [], leaving
        entering: dict[int, list[Any]] = {}
        leaving = {}
        for (source, target), arc in kind.arcs.items():
            for plan in arc.plans:
                x = model.new_bool_var("")
                row.append((x, arc, plan))
                entering.setdefault(source, []).append(x)
                leaving.setdefault(target, []).append(x)
                cost.append(round(plan.value * scale) * x)
                for device, bytes_ in enumerate(arc.memory(plan).tolist()):
                    share = math.ceil(bytes_ / max(capacity[device], 1.0) * UNITS)
                    if share:
                        memory[device].append(share * x)
        model.add_exactly_one(x for x, _, _ in row)
        if number:
            for device in {*arriving, *entering}:
                model.add(sum(arriving.get(device, [])) == sum(entering.get(device, [])))
        chosen.append(row)
    for terms in memory:
        model.add(sum(terms) <= UNITS)
    model.minimize(sum(cost))
    solver = cp_solver(workers=1, seconds=seconds, effort=DETERMINISTIC_SECONDS)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    found = [next((arc, plan) for x, arc, plan in row if solver.value(x)) for row in chosen]
    return [arc for arc, _ in found], [plan for _, plan in found]
