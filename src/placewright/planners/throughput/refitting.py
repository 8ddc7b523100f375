"""Free nodes moved to other stages until every stage has room: a plan where bytes were left out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placewright.graph import Flags, Floats, Wide
from placewright.planners.throughput.splits import Split, evaluated
from placewright.planners.throughput.stages import StageTables

MOST_TRIED = 20_000


def kinds_in(tables: StageTables, split: Split) -> Wide | None:
    """`[stage]` kinds of the stages of a split of another graph of the same problem.

    Devices that are alike for one graph may differ for another. None where a stage is of none.
    """
    numbers = {tuple(kind): number for number, kind in enumerate(tables.kinds)}
    found = []
    for devices in split.stage_devices():
        counts = tuple(
            sum(device in devices for device in members) for members in tables.graph.class_devices
        )
        found.append(numbers.get(counts))
    return None if None in found else np.array(found, dtype=np.int64)


def refitted(
    tables: StageTables, node_stage: Wide, stage_kind: Wide, movable: Flags, limit: float
) -> Split | None:
    """The split with some `movable` nodes on later or earlier stages, so that all stages fit.

    Greedy: always the move off a stage without room that leaves the largest load least, of equal
    ones that of most bytes. None where no move is left, or each leaves a load above `limit`.
    """
    stage = node_stage.copy()
    memory = tables.graph.memory
    room = tables.limits([np.inf, np.inf])[stage_kind, -2]
    tried = 0
    while True:
        free = room - np.bincount(stage, memory, len(stage_kind))
        found = evaluated(tables, stage.copy(), stage_kind)
        if (free >= 0).all():
            return found
        best = (limit, 0.0, -1, -1)
        for node, other in _moves(tables, stage, stage_kind, movable & (free[stage] < 0), free):
            moved = stage.copy()
            moved[node] = other
            value = max(evaluated(tables, moved, stage_kind).value, found.value)
            best = min(best, (value, -float(memory[node]), node, other))
            tried += 1
        _, _, node, other = best
        if node < 0 or tried > MOST_TRIED:
            return None
        stage[node] = other


def _moves(
    tables: StageTables, stage: Wide, stage_kind: Wide, movable: Flags, free: Floats
) -> Iterator[tuple[int, int]]:
    """`(node, stage)`: where a node may go without turning an edge round, and has room."""
    graph = tables.graph
    before, nodes_before = graph.leaders
    after, nodes_after = graph.followers
    for node in np.flatnonzero(movable & (graph.memory > 0)).tolist():
        low = stage[nodes_before[before[node] : before[node + 1]]].max(initial=0)
        high = stage[nodes_after[after[node] : after[node + 1]]].min(initial=len(stage_kind) - 1)
        for other in range(low, high + 1):
            if (
                other != stage[node]
                and free[other] >= graph.memory[node]
                and tables.allowed[node, stage_kind[other]]
            ):
                yield node, other
