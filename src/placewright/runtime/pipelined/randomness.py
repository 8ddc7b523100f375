"""Ops that draw at random, such as dropout, draw the same on a rank as in a single process.

Each is given a seed of its own: that of its name, the training step and the micro-batch. This is
for comparing only; timed runs are not slowed down by it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from placewright.runtime.stages.code import Call, Code
from placewright.runtime.stages.targets import draws, function_of


class Moment(NamedTuple):
    """Which training step (0: none), and which of its micro-batches."""

    step: int
    micro_batch: int


def seed(target: Any, name: str, moment: Moment) -> None:
    """Set torch's generator if `target`, an operator called `name`, draws from it."""
    if draws(target):
        text = f"{name}/{moment.step}/{moment.micro_batch}"
        torch.manual_seed(zlib.crc32(text.encode()))


def drawing(code: Code) -> list[str]:
    """Names of the calls that draw, in their order."""
    calls = [step for step in code.steps if isinstance(step, Call)]
    return [call.name for call in calls if draws(function_of(call.target))]


class Seeded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Seeds the calls `names` of a stage, which come in this order."""

    def __init__(self, names: Sequence[str], moment: Moment) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = iter(names)
        self._moment = moment

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if draws(func) and (name := next(self._names, None)) is not None:
            seed(func, name, self._moment)
        return func(*args, **(kwargs or {}))
