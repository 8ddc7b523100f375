"""What goes between a rank and the process that started it, as files in a directory of this user.

Files are written with `torch.save` and read with ``weights_only=True``: they hold tensors, plain
values and frozen data, and no pickle that could run code is ever read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from placewright.errors import ExecutionError, reason


def job_file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.pt"


def outputs_file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.outputs.pt"


def save(content: Any, path: Path, room: str = "more room") -> None:
    """ExecutionError where it cannot be written; `room` is what the directory should have."""
    try:
        torch.save(content, path)
    except (OSError, RuntimeError) as error:
        raise ExecutionError(
            f"{path}: cannot be written ({reason(error)}); if the disk is full, set TMPDIR to a "
            f"directory with {room}"
        ) from error


def load(path: Path, readable: Sequence[Any]) -> Any:
    """What `save` wrote, with data of the classes `readable`."""
    with torch.serialization.safe_globals(list(readable)):
        return torch.load(path, weights_only=True)


def compact(value: Any) -> Any:
    """A tensor without autograd, and without the rest of a larger memory it looks into."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.untyped_storage().nbytes() > value.numel() * value.element_size():
        return value.clone()
    return value
