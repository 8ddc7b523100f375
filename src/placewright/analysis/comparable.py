"""Where ops stand beside a chain of ops each of which leads to the next."""

from __future__ import annotations

import numpy as np

from placewright.graph import Floats, Whole
from placewright.problem import Problem


def spans(problem: Problem, chain: list[int]) -> Whole:
    """`[op, 0]` the last place of the chain that leads to the op, `[op, 1]` the first it leads to.

    -1 and the chain's length where there is none; an op of the chain has its own place twice.
    """
    low, high = [-1] * problem.op_count, [len(chain)] * problem.op_count
    for place, op in enumerate(chain):
        low[op] = high[op] = place
    producers = _producers(problem)
    order = problem.topological_order.tolist()
    for op in order:
        for producer in producers[op]:
            low[op] = max(low[op], low[producer])
    for op in reversed(order):
        for producer in producers[op]:
            high[producer] = min(high[producer], high[op])
    return np.column_stack([low, high])


def with_mates(problem: Problem, chain: list[int], span: Whole) -> Whole:
    """Ops that lie beside some places of the chain, with one of their own unit among these.

    They run after place ``span[op, 0]`` and before ``span[op, 1]``, and where that op is.
    """
    places: dict[int, list[int]] = {}
    for place, unit in enumerate(problem.op_unit[chain].tolist()):
        places.setdefault(unit, []).append(place)
    low, high = span[:, 0], span[:, 1]
    found = []
    for op in np.flatnonzero((low >= 0) & (high < len(chain)) & (high > low + 1)).tolist():
        mates = places.get(int(problem.op_unit[op]), [])
        if any(low[op] <= place <= high[op] for place in mates):
            found.append(op)
    return np.array(found, dtype=np.int64)


def place_after(span: Whole) -> Whole:
    """`[op]` the place of the chain before which it lies and after the one before; else -1.

    0 of ops that lead to all the chain, the chain's length of those after all of it; -1 of those
    beside some place, and of the chain's own.
    """
    low, high = span[:, 0], span[:, 1]
    return np.where(high == low + 1, high, -1)


def cut_ops(path: list[int], span: Whole) -> list[int]:
    """The ops of the path that every other op of these leads to or depends on.

    `span` as of `spans`, of all ops or some.
    """
    passed = np.zeros(len(path) + 1, dtype=np.int64)  # how many ops lie beside each place
    beside = span[:, 1] > span[:, 0] + 1
    np.add.at(passed, span[beside, 0] + 1, 1)
    np.add.at(passed, span[beside, 1], -1)
    return [op for op, count in zip(path, np.cumsum(passed), strict=False) if count == 0]


def heaviest_path(problem: Problem, weight: Floats) -> list[int]:
    """The ops of the path with the largest sum of ``weight[op]``."""
    length, own = weight.tolist(), weight.tolist()
    before = [-1] * problem.op_count
    producers = _producers(problem)
    for op in problem.topological_order.tolist():
        for producer in producers[op]:
            if length[producer] + own[op] > length[op]:
                length[op] = length[producer] + own[op]
                before[op] = producer
    path = [int(np.argmax(length))]
    while before[path[-1]] >= 0:
        path.append(before[path[-1]])
    return path[::-1]


def longest_within(problem: Problem, home: Whole, time: Floats) -> Floats:
    """`[op]` the longest path to its end through ops with the same home; 0 where that is -1."""
    ends = np.where(home >= 0, time, 0.0)
    offsets, edges = problem.op_inputs
    for op in problem.topological_order[home[problem.topological_order] >= 0].tolist():
        before = problem.edge_producer[edges[offsets[op] : offsets[op + 1]]]
        ends[op] += ends[before[home[before] == home[op]]].max(initial=0.0)
    return ends


def _producers(problem: Problem) -> list[list[int]]:
    """Per op those that make what it reads."""
    offsets, edges = problem.op_inputs
    ends = offsets.tolist()
    makers = problem.edge_producer[edges].tolist()
    return [makers[ends[op] : ends[op + 1]] for op in range(problem.op_count)]
