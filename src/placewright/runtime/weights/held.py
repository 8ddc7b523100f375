"""Weights that are in this process: those that a factory built, and constants of a program."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from placewright.errors import InputError
from placewright.runtime.weights.base import check_names
from placewright.runtime.weights.layout import Layout


class HeldWeights:
    """`tensors` by name. They are not copied: who writes into a loaded one writes into these."""

    def __init__(self, tensors: Mapping[str, Any], origin: str = "values of the source") -> None:
        for name, value in tensors.items():
            if not isinstance(value, torch.Tensor):
                raise InputError(f"'{name}' is a {type(value).__name__}, not a tensor")
            if value.layout != torch.strided or value.is_quantized:
                kind = "quantised" if value.is_quantized else str(value.layout)
                raise InputError(f"'{name}' is a {kind} tensor; only plain ones can be run")
        self._tensors = {name: value.detach() for name, value in tensors.items()}
        self.origin = origin

    def layouts(self, names: Collection[str]) -> dict[str, Layout]:
        return {name: Layout.of(tensor) for name, tensor in self.load(names).items()}

    def load(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        check_names(names, self._tensors, self.origin)
        return {name: self._tensors[name] for name in names}
