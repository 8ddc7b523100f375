"""A plan by the blocks of its model: which are split, and what each device has of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from placewright.coarsen.blocks import Blocks, named_blocks
from placewright.graph import Flags
from placewright.plan import Plan
from placewright.problem import Problem
from placewright.units import parse_whole

SHOWN = 4  # stretches of blocks that are named for a device


def block_words(plan: Plan) -> str:
    """How many of its blocks the plan splits, and what to do about it; "" where none are known."""
    blocks = named_blocks(plan.problem)
    if blocks is None:
        return ""
    count, split = int(blocks.repeated.sum()), int((blocks.repeated & _split(plan, blocks)).sum())
    words = f"splits {split} of {count} blocks"
    if split:
        words += ": no engine runs this; --granularity block or --for ENGINE keeps them whole"
    return words


def block_record(plan: Plan) -> dict[str, Any]:
    """How many repeated blocks there are and how many are split; none where none are known."""
    blocks = named_blocks(plan.problem)
    if blocks is None:
        return {}
    split = blocks.repeated & _split(plan, blocks)
    return {"blocks": {"count": int(blocks.repeated.sum()), "split": int(split.sum())}}


def device_blocks(plan: Plan) -> list[str] | None:
    """Per device which blocks it has, as ``model.layers 0–21, lm_head``; None where none are known.

    Of blocks that are split a device has a part.
    """
    blocks = named_blocks(plan.problem)
    if blocks is None:
        return None
    held, split = _held(plan, blocks), _split(plan, blocks)
    return [_holding(blocks.names, held[:, device], split) for device in range(held.shape[1])]


def _holding(names: Sequence[str], held: Flags, split: Flags) -> str:
    whole = _stretches([names[block] for block in np.flatnonzero(held & ~split).tolist()])
    parts = _stretches([names[block] for block in np.flatnonzero(held & split).tolist()])
    found = whole + [f"parts of {each}" for each in parts]
    more = len(found) - SHOWN
    return ", ".join(found[:SHOWN]) + (f", {more} more" if more > 0 else "")


def _stretches(names: Sequence[str]) -> list[str]:
    """Names with numbers that follow one another joined: ``layers 0–21``."""
    found: list[tuple[str, int, int] | str] = []
    for name in names:
        row, _, last = name.rpartition(".")
        number = parse_whole(last)
        if number is None:
            found.append(name)
            continue
        before = found[-1] if found else ""
        if isinstance(before, tuple) and before[0] == row and before[2] == number - 1:
            found[-1] = (row, before[1], number)
        else:
            found.append((row, number, number))
    return [each if isinstance(each, str) else _stretch(*each) for each in found]


def _stretch(row: str, first: int, last: int) -> str:
    return f"{row} {first}" if first == last else f"{row} {first}–{last}"


def _split(plan: Plan, blocks: Blocks) -> Flags:
    """`[block]` whether ops of it that take time or keep something are on several devices."""
    found: Flags = _held(plan, blocks, copies=False).sum(axis=1) > 1
    return found


def _held(plan: Plan, blocks: Blocks, copies: bool = True) -> Flags:
    """`[block, device]` whether one of its ops is there, of those that are not free of cost.

    With `copies` in each replica of a stage, else in the first.
    """
    problem = plan.problem
    held = np.zeros((blocks.count, problem.device_count), dtype=np.bool_)
    costs = _costs(problem)
    devices = plan.placement.device.reshape(problem.op_count, -1)
    for column in devices.T:
        held[blocks.op_block[costs], column[costs]] = True
    for first, *others in plan.placement.replicas if copies else ():
        held[:, others] = held[:, [first]]
    return held


def _costs(problem: Problem) -> Flags:
    """`[op]` whether it takes time or keeps something anywhere."""
    found: Flags = (problem.op_time > 0).any(axis=1) | (problem.op_memory > 0)
    return found
