"""What a rank is given, as a file in a directory that only this user can read; no weights.

Files are written with `torch.save` and read with ``weights_only=True``: they hold tensors, plain
values and the frozen data of `code.py`, and no pickle that could run code is ever read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from placewright.errors import ExecutionError
from placewright.runtime.stages.code import Call, Code, Named, Post, Ref, Send, Transfer, Wait
from placewright.runtime.stages.cutting import Stage
from placewright.units import format_bytes

_READABLE: list[Any] = [Stage, Code, Call, Post, Ref, Named, Send, Transfer, Wait]


@dataclass(frozen=True)
class RankFile:
    """One rank's stages, to be run one after the other, and what they need.

    `weights` is the document of `weights.from_document`; `inputs` are by placeholder.
    """

    stages: list[Stage]
    weights: Mapping[str, Any]
    inputs: Mapping[str, Any]


def save_rank(
    folder: Path,
    rank: int,
    stages: Sequence[Stage],
    weights: Mapping[str, Any],
    inputs: Mapping[str, Any],
) -> None:
    names = sorted({name for stage in stages for name in stage.inputs})
    content = {
        "stages": list(stages),
        "weights": dict(weights),
        "inputs": {name: _compact(inputs[name]) for name in names},
    }
    _save(content, folder / f"rank-{rank}.pt")


def load_rank(folder: Path, rank: int) -> RankFile:
    content: Mapping[str, Any] = _load(folder / f"rank-{rank}.pt")
    return RankFile(content["stages"], content["weights"], content["inputs"])


def save_outputs(folder: Path, rank: int, outputs: Sequence[Sequence[Sequence[Any]]]) -> None:
    """The results of each of the rank's stages, in each call that is kept."""
    content = [[[_compact(v) for v in call] for call in calls] for calls in outputs]
    _save(content, _outputs(folder, rank))


def load_outputs(folder: Path, rank: int) -> list[list[list[Any]]]:
    return _load(_outputs(folder, rank))  # type: ignore[no-any-return]


def _outputs(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.outputs.pt"


def _save(content: Any, path: Path) -> None:
    try:
        torch.save(content, path)
    except (OSError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise ExecutionError(
            f"{path}: cannot be written ({reason}); if the disk is full, set TMPDIR to a "
            f"directory with room for {format_bytes(_bytes(content))}"
        ) from error


def _load(path: Path) -> Any:
    with torch.serialization.safe_globals(_READABLE):
        return torch.load(path, weights_only=True)


def _compact(value: Any) -> Any:
    """Tensors without autograd, and without the rest of a larger memory they look into."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.untyped_storage().nbytes() > value.numel() * value.element_size():
        return value.clone()
    return value


def _bytes(content: Any) -> int:
    return sum(each.nbytes for each in tree_leaves(content) if isinstance(each, torch.Tensor))
