"""Tiny Transformers models as sources, and what is known of their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from placewright.importers.torch.programs import load_executable, load_module
from placewright.runtime.weights import Weights, weights_of
from tests.importers.tiny_models import make


def saved(kind: str, folder: Path, **options: Any) -> tuple[Any, str]:
    """A model with values in `folder` as safetensors, and its source."""
    module, _ = make(kind)
    module.save_pretrained(folder, **options)
    return module, f"hf:{folder}?sequence=8"


def weights(source: str, given: str | None = None, seed: int = 0) -> tuple[Weights, list[str]]:
    """The weights of a source, and the names of all that its program needs."""
    executable = load_executable(source)
    module = None if source.endswith(".pt2") else load_module(source)[0]
    found = weights_of(source, executable, module, given, seed)
    return found, sorted(set(executable.weights.values()))


def tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and buffer under each of its names."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def differing(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> list[str]:
    """Names whose values, types or strides are not those expected.

    Tensors that the export lifted out of forward have no name in the module.
    """
    return [
        name
        for name, tensor in found.items()
        if "lifted_tensor" not in name and not _is_same(tensor, expected[name])
    ]


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    facts = [(each.dtype, each.stride()) for each in (one, other)]
    return facts[0] == facts[1] and torch.equal(one, other)
