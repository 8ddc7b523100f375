"""What a name in a plan means: an op, a block or module of the model, or a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

import numpy as np

from placewright.coarsen.blocks import named_blocks
from placewright.errors import InputError
from placewright.graph import Whole
from placewright.problem import Problem
from placewright.units import listed

Kind = Literal["op", "block", "module", "device"]
KINDS: tuple[Kind, ...] = ("op", "block", "module", "device")
OFFERED = 3  # names that are like one that there is not


@dataclass(frozen=True, eq=False)
class Named:
    """A name, what it is of, and its ops (of a device: none); `device` is its number or -1."""

    kind: Kind
    name: str
    ops: Whole
    device: int = -1


def named(problem: Problem, name: str) -> Named:
    """What `name` means: the first of an op, a block, a module and a device that is called so.

    ``block:NAME`` and the like say which. InputError for what there is not, with names like it.
    """
    kind, separator, rest = name.partition(":")
    if separator and kind in KINDS:
        found = _FINDERS[kind](problem, rest)
        if found is not None:
            return found
    for find in _FINDERS.values():
        if (found := find(problem, name)) is not None:
            return found
    raise InputError(
        f"the plan has no op, block, module or device '{name}'; {_alike(problem, name)}"
    )


def enclosing(problem: Problem, ops: Whole) -> list[Named]:
    """The block and the modules that hold all of `ops` and more, the smallest first."""
    found = [_block(problem, name) for name in _block_names(problem, ops)]
    paths = [problem.op_modules[op].split(".") for op in ops.tolist()]
    shared = 0
    while all(len(path) > shared and path[shared] == paths[0][shared] for path in paths):
        shared += 1
    found += [_module(problem, ".".join(paths[0][:depth])) for depth in range(shared, 0, -1)]
    kept: dict[bytes, Named] = {}
    for each in found:
        if each is not None and len(each.ops) > len(ops):
            kept.setdefault(each.ops.tobytes(), each)
    return sorted(kept.values(), key=lambda each: len(each.ops))


def _op(problem: Problem, name: str) -> Named | None:
    if name not in problem.op_names:
        return None
    return Named("op", name, np.array([problem.op_names.index(name)]))


def _block(problem: Problem, name: str) -> Named | None:
    blocks = named_blocks(problem)
    if blocks is None or name not in blocks.names:
        return None
    return Named("block", name, np.flatnonzero(blocks.op_block == blocks.names.index(name)))


def _module(problem: Problem, name: str) -> Named | None:
    inside = f"{name}."
    ops = [op for op, path in enumerate(problem.op_modules) if f"{path}.".startswith(inside)]
    return Named("module", name, np.array(ops)) if name and ops else None


def _device(problem: Problem, name: str) -> Named | None:
    if name not in problem.device_names:
        return None
    return Named("device", name, np.zeros(0, dtype=np.int64), problem.device_names.index(name))


_FINDERS: dict[str, Callable[[Problem, str], Named | None]] = {
    "op": _op,
    "block": _block,
    "module": _module,
    "device": _device,
}


def _block_names(problem: Problem, ops: Whole) -> list[str]:
    """The one block that all of `ops` are in."""
    blocks = named_blocks(problem)
    numbers = [] if blocks is None else np.unique(blocks.op_block[ops]).tolist()
    return [blocks.names[numbers[0]]] if blocks is not None and len(numbers) == 1 else []


def _alike(problem: Problem, name: str) -> str:
    blocks = named_blocks(problem)
    known = [*problem.device_names, *(blocks.names if blocks else ()), *problem.op_names]
    close = get_close_matches(name, dict.fromkeys(known), OFFERED, 0.4)
    if close:
        return f"there is {listed([repr(each) for each in close])}"
    return f"its devices are {listed(list(problem.device_names))}"
