"""Weights that are in this process: those that a factory built, and constants of a program."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from typing import Any

import torch

from placewright.errors import ExecutionError, FormatError, InputError
from placewright.runtime.weights.base import check_names
from placewright.runtime.weights.layout import Layout, compact, raw
from placewright.units import format_bytes

INLINE_BYTES = 1 << 24
"""As text in a document such weights may take so many; more are shared (see `shared`)."""


class HeldWeights:
    """`tensors` by name. They are not copied: who writes into a loaded one writes into these."""

    kind = "held"

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

    def to_document(self, names: Collection[str] | None = None) -> dict[str, Any]:
        tensors = self.load(self._tensors.keys() if names is None else names)
        amount = sum(tensor.nbytes for tensor in tensors.values())
        if amount > INLINE_BYTES:
            raise ExecutionError(
                f"{format_bytes(amount)} of weights are in this process alone, and another cannot "
                "make them itself; run on this machine, or give --weights FILE"
            )
        return {
            "kind": self.kind,
            "origin": self.origin,
            "tensors": {name: _written(tensor) for name, tensor in tensors.items()},
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> HeldWeights:
        read = {name: _read(entry, name) for name, entry in document["tensors"].items()}
        return cls(read, document["origin"])


def _written(tensor: torch.Tensor) -> dict[str, Any]:
    tensor = compact(tensor)
    text = base64.b64encode(raw(tensor)).decode("ascii")
    return {**Layout.of(tensor).to_document(), "data": text}


def _read(entry: Mapping[str, Any], name: str) -> torch.Tensor:
    layout = Layout.from_document(entry)
    content = bytearray(base64.b64decode(entry["data"]))
    if len(content) != layout.nbytes:
        raise FormatError(f"'{name}' takes {layout.nbytes} bytes, but {len(content)} are given")
    if not content:
        return layout.empty()
    return layout.view(torch.frombuffer(content, dtype=torch.uint8))
