"""What a rank is given, without weights, and the outputs that it gives back, as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from placewright.runtime.ranks.files import compact, job_file, load, outputs_file, save
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
        "inputs": {name: compact(inputs[name]) for name in names},
    }
    _save(content, job_file(folder, rank))


def load_rank(folder: Path, rank: int) -> RankFile:
    content: Mapping[str, Any] = load(job_file(folder, rank), _READABLE)
    return RankFile(content["stages"], content["weights"], content["inputs"])


def save_outputs(folder: Path, rank: int, outputs: Sequence[Sequence[Sequence[Any]]]) -> None:
    """The results of each of the rank's stages, in each call that is kept."""
    content = [[[compact(v) for v in call] for call in calls] for calls in outputs]
    _save(content, outputs_file(folder, rank))


def load_outputs(folder: Path, rank: int) -> list[list[list[Any]]]:
    found: list[list[list[Any]]] = load(outputs_file(folder, rank), _READABLE)
    return found


def _save(content: Any, path: Path) -> None:
    amount = sum(each.nbytes for each in tree_leaves(content) if isinstance(each, torch.Tensor))
    save(content, path, f"room for {format_bytes(amount)}")
