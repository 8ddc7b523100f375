"""Whether an action table can be run, judged apart from what made it."""

from __future__ import annotations

from collections import Counter
from typing import get_args

from placewright.errors import ExecutionError
from placewright.runtime.pipelined.groups import Groups
from placewright.runtime.pipelined.tables import Action, Kind, Table


def check_table(table: Table, groups: Groups, micro_batches: int) -> None:
    """ExecutionError unless the ranks can follow their rows to the end.

    Every stage goes forward and backward once on each micro-batch, in their order, on the rank
    whose turn it is; forward after the stage before it, backward after its own forward and after
    the backward of the stage after it.
    """
    if len(table) != groups.count:
        raise ExecutionError(f"the table has {len(table)} rows for {groups.count} ranks")
    for rank, row in enumerate(table):
        _check_row(rank, row, groups, micro_batches)
    _follow(table, len(groups.group_of))


def _check_row(rank: int, row: list[Action], groups: Groups, micro_batches: int) -> None:
    kinds: tuple[Kind, ...] = get_args(Kind)
    stages = range(len(groups.group_of))
    expected = Counter(
        (stage, kind, number)
        for stage in stages
        for kind in kinds
        for number in range(micro_batches)
        if groups.rank(stage, number) == rank
    )
    found = Counter((action.stage, action.kind, action.micro_batch) for action in row)
    if wrong := sorted((found - expected) + (expected - found)):
        stage, kind, micro_batch = wrong[0]
        raise ExecutionError(
            f"the row of rank {rank} has {stage}{kind}{micro_batch} "
            f"{found[wrong[0]]} times instead of {expected[wrong[0]]}"
        )
    for stage in stages:
        for kind in kinds:
            order = [a.micro_batch for a in row if (a.stage, a.kind) == (stage, kind)]
            if order != sorted(order):
                raise ExecutionError(
                    f"the row of rank {rank} has {stage}{kind} on micro-batches out of order"
                )


def _follow(table: Table, stages: int) -> None:
    """Let each rank do what it can until all is done or nobody can go on."""
    done: set[tuple[int, str, int]] = set()
    at = [0] * len(table)
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(table):
            while at[rank] < len(row) and _needs(row[at[rank]], stages) <= done:
                action = row[at[rank]]
                done.add((action.stage, action.kind, action.micro_batch))
                at[rank] += 1
                moved = True
    for rank, row in enumerate(table):
        if at[rank] < len(row):
            raise ExecutionError(f"the table is stuck: rank {rank} can never do {row[at[rank]]}")


def _needs(action: Action, stages: int) -> set[tuple[int, str, int]]:
    stage, micro_batch = action.stage, action.micro_batch
    if action.kind == "F":
        return {(stage - 1, "F", micro_batch)} if stage else set()
    own = {(stage, "F", micro_batch)}
    return own | ({(stage + 1, "B", micro_batch)} if stage + 1 < stages else set())
