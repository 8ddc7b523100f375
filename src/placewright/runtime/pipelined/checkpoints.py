"""Calls of a stage that run again in its backward pass, under `torch.utils.checkpoint`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from placewright.coarsen.blocks import find_blocks
from placewright.coarsen.recompute import recomputed_ops
from placewright.errors import OptionError
from placewright.problem import Problem
from placewright.runtime.stages.code import Call, Code, Ref, used
from placewright.runtime.stages.targets import CHECKPOINT, call_draws


def recomputed_blocks(problem: Problem) -> dict[str, int]:
    """The block of each forward op that runs again; none where no op does."""
    again = recomputed_ops(problem).nonzero()[0].tolist()
    if not again:
        return {}
    block = find_blocks(problem).op_block.tolist()
    twin = problem.forward_twin.tolist()
    return {problem.op_names[twin[op]]: block[op] for op in again}


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
    if drawing := next(filter(call_draws, row), None):
        raise OptionError(
            f"op '{drawing.name}' draws at random, and would draw anew when it runs again; plan "
            "without --recompute, or set its probability to 0"
        )
    made = [call.name for call in row]
    given = sorted(used(row, []) - set(made))
    kept = [name for name in made if name in after]
    body = Code(tuple(given), tuple(row), tuple(map(Ref, kept)))
    name = f"{made[0]}_block"
    yield Call(name, CHECKPOINT, (body, *map(Ref, given)), {"use_reentrant": False})
    for position, each in enumerate(kept):
        yield Call(each, "operator.getitem", (Ref(name), position), {})
