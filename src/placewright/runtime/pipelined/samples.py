"""The micro-batches of a run, made of the one example that a source has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

Sample = Mapping[str, Any]


def sample(inputs: Sample, number: int) -> dict[str, Any]:
    """The inputs of micro-batch `number`: those of the example, in another order.

    Every tensor is rotated by `number` along its first dimension of several entries, which for
    most is the batch. So shapes, types and the set of values stay, and the micro-batches differ.

    >>> sample({"x": torch.tensor([[1, 2, 3]]), "flag": True}, 1)
    {'x': tensor([[3, 1, 2]]), 'flag': True}
    """
    return {name: _rotated(value, number) for name, value in inputs.items()}


def _rotated(value: Any, number: int) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    dimension = next((d for d, size in enumerate(value.shape) if size > 1), None)
    return value if dimension is None else value.roll(number, dimension)
