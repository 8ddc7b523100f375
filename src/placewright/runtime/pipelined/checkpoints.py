"""Calls of a stage that run again in its backward pass, under `torch.utils.checkpoint`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from placewright.runtime.stages.code import Call, Code, Ref, used
from placewright.runtime.stages.targets import CHECKPOINT, check_runs_again


def checkpointed(
    steps: Sequence[tuple[Call, int | None]], wanted: Collection[str]
) -> tuple[Call, ...]:
    """Each row of calls of one block as one call, which keeps what goes into it.

    `steps` are calls, each with its block where it runs again; `wanted` the values that the stage
    gives back. OptionError for a call that draws at random.
    """
    rows = [
        (block, [call for call, _ in row]) for block, row in groupby(steps, lambda step: step[1])
    ]
    found: list[Call] = []
    later = set(wanted)
    for block, row in reversed(rows):
        found[:0] = row if block is None else _as_one(row, later)
        later |= used(row, [])
    return tuple(found)


def _as_one(row: Sequence[Call], after: Collection[str]) -> Iterator[Call]:
    """A call of them all, and what picks from its results those used `after` it."""
    for call in row:
        check_runs_again(call)
    made = [call.name for call in row]
    given = sorted(used(row, []) - set(made))
    kept = [name for name in made if name in after]
    body = Code(tuple(given), tuple(row), tuple(map(Ref, kept)))
    name = f"{made[0]}_block"
    yield Call(name, CHECKPOINT, (body, *map(Ref, given)), {"use_reentrant": False})
    for position, each in enumerate(kept):
        yield Call(each, "operator.getitem", (Ref(name), position), {})
