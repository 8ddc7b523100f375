"""Splits whose replicas have shares of their own, found again by what these come to.

Tables that are `relaxed` charge a stage what any shares come to at least. What its best shares come
to is known of a whole stage only, and is more by about the same factor for all stages of a kind. So
the best split is valued as it is, the kinds it uses are charged as much more as their stages turned
out to take, and the best cuts of the same line of nodes are found again; the best one seen counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from placewright.budget import Budget, Progress
from placewright.errors import InfeasibleError
from placewright.graph import Floats
from placewright.kernels.throughput.stage_loads import chain_rows
from placewright.plan import Placement
from placewright.planners.base import Planner
from placewright.planners.throughput.shares import balanced
from placewright.planners.throughput.splits import Split, best_of_lines
from placewright.problem import Problem
from placewright.simulate.throughput import loads

ROUNDS = 8


def placed(split: Split) -> Placement:
    """The split on its devices; where its tables are relaxed, a better one near it if there is."""
    if not split.tables.relaxed:
        return split.placement()
    problem = split.tables.graph.problem
    found = [each.placement() for each in _nearby(split)]
    return min(found, key=lambda each: loads(problem, each).value)


def beside_equal_shares(
    planner: Planner,
    problem: Problem,
    placement: Placement,
    budget: Budget,
    seed: int,
    on_progress: Progress,
) -> Placement:
    """The placement, or what the planner finds with equal shares where that is better.

    Those are plans of the problem too, and of them the planner knows what they take.
    """
    if problem.options.shares == "equal":
        return placement
    equal = replace(problem, options=replace(problem.options, shares="equal"))
    try:
        other = balanced(problem, planner.plan(equal, budget, seed, on_progress).placement)
    except InfeasibleError:
        return placement
    return min((placement, other), key=lambda each: loads(problem, each).value)


def _nearby(split: Split) -> Iterator[Split]:
    """The split, and others of the same line of nodes by corrected charges."""
    yield split
    tables = split.tables
    line = np.lexsort((np.arange(tables.graph.node_count), split.node_stage))
    factor = np.ones(len(tables.kinds))
    seen = {_cuts(split)}
    for _ in range(ROUNDS):
        factor = factor * _excess(split)
        found = best_of_lines(replace(tables, factor=tuple(factor.tolist())), [line], np.inf)
        if found is None or _cuts(found) in seen:
            break
        split = found
        seen.add(_cuts(split))
        yield split


def _cuts(split: Split) -> tuple[bytes, bytes]:
    return split.node_stage.tobytes(), split.stage_kind.tobytes()


def _excess(split: Split) -> Floats:
    """`[kind]` how many times what its stages are charged they take with their best shares."""
    tables = split.tables
    found = loads(tables.graph.problem, split.placement()).load
    rows = chain_rows(
        tables.nets,
        tables.costs,
        tables.chain,
        split.node_stage,
        split.stage_kind,
        len(split.stage_kind),
    )[:, : len(tables.rows)]
    charged = np.zeros(len(split.stage_kind))
    for each in range(tables.passes):
        charged += rows[:, tables.threshold == each].max(axis=1)
    excess = np.ones(len(tables.kinds))
    for stage, devices in enumerate(split.stage_devices()):
        if charged[stage] > 0:
            kind = split.stage_kind[stage]
            taken = float(found[list(devices)].max()) / charged[stage]
            excess[kind] = max(excess[kind], taken)
    return excess
