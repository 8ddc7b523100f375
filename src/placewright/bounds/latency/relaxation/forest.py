"""What lies between the ends of a region as trees, of which equal ones are looked at once.

Edges are left out until each op has at most one to an op between the ends, which only makes
schedules shorter. Heads of attention are such trees as they are: a tensor that all of them read
is the region's first op's, and nothing in them is read twice.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from placewright.bounds.latency.relaxation.network import Indices
from placewright.graph import Flags, Floats
from placewright.kernels.latency.bound_slots import Forest
from placewright.kernels.latency.dual_ascent import Part


def forest_of(part: Part, reader: Flags, head: Floats, tail: Floats) -> Forest:
    """Of a part whose ends are its first and last op; `head`, `tail` see `heads_and_tails`.

    Of several edges from an op the one with most bytes is kept; edges to the last op only where
    there is no other. `reader`: who reads the fan-out tensor, one of op 0.
    """
    kept = _kept_edges(part)
    last = len(part.time) - 1
    children: list[list[int]] = [[] for _ in range(last + 1)]
    for op in range(1, last):
        children[part.head[kept[op]]].append(op)
    entries: list[list[int]] = [[] for _ in range(last + 1)]
    for edge in range(part.out_offsets[0], part.out_offsets[1]):
        entries[part.head[edge]].append(edge)
    names = _names(part, reader, (head, tail), kept, children, entries)
    times = Counter(names[root] for root in children[last])
    first = {names[root]: root for root in reversed(children[last])}
    ops: list[int] = []
    count: list[int] = []
    for name, root in first.items():
        tree = _tree(root, children)
        ops += tree
        count += [times[name]] * len(tree)
    place = {op: k for k, op in enumerate(ops)}
    edges = kept[ops]
    entering = [edge for op in ops for edge in entries[op]]
    reads = np.array([reader[op] for op in ops for _ in entries[op]], dtype=np.bool_)
    of_tensor = reads & (part.weight[entering] == 0.0)
    weight = np.where(of_tensor, 1.0 / max(int(reader.sum()), 1), part.weight[entering])
    return Forest(
        part.time[ops], part.share[ops],
        np.where(part.closed[ops] > 0.0, np.inf, head[ops]), tail[ops],
        np.array(count, dtype=np.float64),
        np.array([place.get(int(part.head[edge]), -1) for edge in edges], dtype=np.int64),
        part.size[edges], part.fixed[edges], part.weight[edges],
        np.array([place[child] for op in ops for child in children[op]], dtype=np.int64),
        _offsets([len(children[op]) for op in ops]), _offsets([len(entries[op]) for op in ops]),
        part.size[entering], part.fixed[entering], weight, of_tensor,
    )  # fmt: skip


def _kept_edges(part: Part) -> Indices:
    """`[op]` its edge that is kept."""
    last = len(part.time) - 1
    kept = np.zeros(last + 1, dtype=np.int64)
    for op in range(1, last):
        edges = np.arange(part.out_offsets[op], part.out_offsets[op + 1])
        size = np.where(part.head[edges] == last, -1.0, part.size[edges])
        kept[op] = edges[size.argmax()]
    return kept


def _tree(root: int, children: list[list[int]]) -> list[int]:
    """Its ops, each behind its children."""
    ops, waiting = [], [root]
    while waiting:
        op = waiting.pop()
        ops.append(op)
        waiting += children[op]
    return ops[::-1]


def _names(
    part: Part, reader: Flags, columns: tuple[Floats, Floats], kept: Indices,
    children: list[list[int]], entries: list[list[int]],
) -> list[int]:  # fmt: skip
    """`[op]` a number that ops share whose trees are equal, edges from and to the ends included."""
    known: dict[tuple[object, ...], int] = {}
    names = [0] * len(part.time)
    for op in range(1, len(part.time) - 1):
        rows = (part.time[op], part.closed[op], part.share[op], *(each[op] for each in columns))
        ends = [kept[op], *entries[op]]
        edges = (part.size[ends], part.fixed[ends], part.weight[ends])
        key = (
            bool(reader[op]), *(row.tobytes() for row in (*rows, *edges)),
            *sorted(names[child] for child in children[op]),
        )  # fmt: skip
        names[op] = known.setdefault(key, len(known))
    return names


def _offsets(counts: list[int]) -> Indices:
    found: Indices = np.cumsum([0, *counts])
    return found
