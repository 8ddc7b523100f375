"""The optimiser's step, the same on ranks and in a single process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

LEARNING_RATE = 0.01


def optimizer_of(parameters: Sequence[Tensor]) -> Any:
    """Plain gradient descent: its step needs nothing of other ranks."""
    return torch.optim.SGD(parameters, lr=LEARNING_RATE)
