"""Colour refinement (Weisfeiler and Lehman 1968): equal branches, such as heads of a layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import rustworkx

from placewright.graph import Flags, Ints
from placewright.problem import Problem

FEWEST = 4  # branches of a group
MOST_ROUNDS = 32


@dataclass(frozen=True, eq=False)
class Twins:
    """`unit[branch, place]`: units at one place are as good as equal, and lie in no other branch.

    Branches are in topological order of their first ops.
    """

    unit: Ints

    @property
    def count(self) -> int:
        return len(self.unit)


def twins_of(problem: Problem) -> list[Twins]:
    """Groups of at least `FEWEST` branches, those with most units first.

    Ops get colours that tell apart what lies around them (Weisfeiler and Lehman 1968). Those
    with a colour of their own are what branches have in common; without them the graph falls into
    branches, which are equal as far as they have the same colours.
    """
    colour = _colours(problem)
    shared = np.bincount(colour)[colour] < FEWEST
    branch = _branches(problem, shared)
    position = problem.topological_rank
    order = np.lexsort((position, colour, branch))
    groups: dict[bytes, list[tuple[int, Ints]]] = {}
    for ops in np.split(order, np.flatnonzero(np.diff(branch[order])) + 1):
        units = _in_order(problem.op_unit[ops])
        if not shared[ops].any() and _is_movable(problem, units):
            groups.setdefault(colour[ops].tobytes(), []).append((position[ops].min(), units))
    found = []
    for rows in groups.values():
        lengths = {len(units) for _, units in rows}
        if len(rows) >= FEWEST and len(lengths) == 1:
            found.append(Twins(np.stack([units for _, units in sorted(rows, key=lambda r: r[0])])))
    return sorted(found, key=lambda twins: -twins.unit.size)


def _is_movable(problem: Problem, units: Ints) -> bool:
    return bool((problem.unit_allowed[units].sum(axis=1) > 1).any())


def _in_order(names: Ints) -> Ints:
    """Each once, in the order in which they first come up."""
    _, first = np.unique(names, return_index=True)
    kept: Ints = names[np.sort(first)]
    return kept


def _branches(problem: Problem, shared: Flags) -> Ints:
    """`[op]` the component it is in when shared ops are left out; ops of a unit stay together."""
    tail, head = problem.edge_producer, problem.consumers
    inside = ~shared[tail] & ~shared[head]
    ends = np.column_stack([problem.op_unit[tail[inside]], problem.op_unit[head[inside]]])
    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(problem.unit_count))
    graph.add_edges_from_no_data(list(map(tuple, ends.tolist())))
    component = np.empty(problem.unit_count, dtype=np.int32)
    for number, units in enumerate(rustworkx.connected_components(graph)):
        component[list(units)] = number
    branch: Ints = component[problem.op_unit]
    return branch


def _colours(problem: Problem) -> Ints:
    """`[op]` a number that ops share which look the same, as far as one looks around."""
    rows = np.column_stack(
        [problem.op_time, problem.op_memory, problem.unit_allowed[problem.op_unit]]
    )
    colour: Ints = np.unique(rows, axis=0, return_inverse=True)[1].ravel().astype(np.int32)
    count = 0
    for _ in range(MOST_ROUNDS):
        if colour.max() + 1 == count:
            break
        count = int(colour.max()) + 1
        colour = _numbered(_around(problem, colour))
    return colour


def _around(problem: Problem, colour: Ints) -> Iterator[tuple[object, ...]]:
    """The colour of each op, and of what it reads and hands on, with the bytes."""
    size = problem.tensor_bytes[problem.edge_tensor]
    ends = zip(
        colour[problem.edge_producer].tolist(),
        size.tolist(),
        colour[problem.consumers].tolist(),
        problem.edge_producer.tolist(),
        problem.consumers.tolist(),
        strict=True,
    )
    sees: list[Counter[tuple[int, int, float]]] = [Counter() for _ in colour]
    for before, bytes_, after, tail, head in ends:
        sees[head][0, before, bytes_] += 1
        sees[tail][1, after, bytes_] += 1
    for own, seen in zip(colour.tolist(), sees, strict=True):
        yield own, frozenset(seen.items())


def _numbered(keys: Iterator[tuple[object, ...]]) -> Ints:
    number: dict[tuple[object, ...], int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int32)
