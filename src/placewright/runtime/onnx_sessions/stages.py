"""The order of the ops of a pipeline: a device goes on for as long as it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from placewright.runtime.onnx_sessions.cutting import Uses


def in_stages(
    order: Sequence[str], rank_of: Mapping[str, int], uses: Mapping[str, Uses]
) -> list[str]:
    """`order`, which is topological, by stages: ops of one rank that need nothing in between.

    Where data goes along the ranks only one way, each is one stage. Elsewhere a stage has the ops
    of a rank before which data changes ranks equally often.

    >>> uses = {"a": Uses(("x",), ("h",)), "b": Uses(("h",), ("k",)), "c": Uses(("h",), ("y",))}
    >>> in_stages(["a", "b", "c"], {"a": 0, "b": 1, "c": 0}, uses)
    ['a', 'c', 'b']
    """
    maker = {name: op for op in order for name in uses[op].makes}
    sources = {op: {maker[name] for name in uses[op].reads if name in maker} for op in order}
    crossing: dict[int, set[int]] = {rank: set() for rank in sorted(set(rank_of.values()))}
    for op, before in sources.items():
        crossing[rank_of[op]].update(rank_of[each] for each in before)
    places = _row(crossing)
    if places is not None:
        return sorted(order, key=lambda op: places[rank_of[op]])
    changes: dict[str, int] = {}
    for op in order:
        changes[op] = max(
            (changes[each] + (rank_of[each] != rank_of[op]) for each in sources[op]), default=0
        )
    return sorted(order, key=lambda op: (changes[op], rank_of[op]))


def _row(crossing: Mapping[int, set[int]]) -> dict[int, int] | None:
    """The place of each rank where each reads only of those before it; None if there is none."""
    before = {rank: sources - {rank} for rank, sources in crossing.items()}
    try:
        row = list(TopologicalSorter(before).static_order())
    except CycleError:
        return None
    return {rank: place for place, rank in enumerate(row)}
