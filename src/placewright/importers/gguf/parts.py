"""The tensors of a GGUF file while a graph takes them, and the sizes its metadata says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placewright.errors import FormatError
from placewright.importers.gguf.header import Header, Tensor
from placewright.units import listed

_KINDS = (".weight", ".bias")


class Parts:
    """Each tensor is taken once, by the op it belongs to: `left` names those that were not."""

    def __init__(self, header: Header) -> None:
        self._tensors = dict(header.tensors)
        self.left = set(header.tensors)
        self.path: Path = header.path

    def has(self, stem: str) -> bool:
        """Whether there is a weight of that name: ``blk.0.attn_q`` for ``blk.0.attn_q.weight``."""
        return f"{stem}.weight" in self._tensors

    def weight(self, stem: str) -> Tensor:
        """Its weight; FormatError if there is none."""
        found = self._tensors.get(f"{stem}.weight")
        if found is None:
            raise FormatError(
                f"{self.path}: has no tensor '{stem}.weight', which its architecture needs; "
                "convert or download it again"
            )
        return found

    def take(self, *stems: str) -> int:
        """Bytes of the weights and biases of these names, which are then taken."""
        names = [f"{stem}{kind}" for stem in stems for kind in _KINDS]
        found = [name for name in names if name in self._tensors]
        self.left.difference_update(found)
        return sum(self._tensors[name].bytes for name in found)

    def check_all_taken(self, architecture: str) -> None:
        """FormatError where tensors are left that no op has."""
        if self.left:
            raise FormatError(
                f"{self.path}: nobody knows here what '{architecture}' does with "
                f"{listed(sorted(self.left))}; use its hf: configuration instead"
            )


class Sizes:
    """Numbers of the metadata, by their key behind the architecture's name."""

    def __init__(self, header: Header, architecture: str) -> None:
        self._metadata, self._path = header.metadata, header.path
        self._architecture = architecture

    def number(self, key: str, default: int | None = None, *, layer: int = 0) -> int:
        """A whole number from 1, that of `layer` where there is one per layer; FormatError."""
        value = self.find(key, layer)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise FormatError(
                f"{self._path}: metadata '{self._architecture}.{key}' is {value}; it must be a "
                "whole number from 1"
            )
        return value

    def find(self, key: str, layer: int = 0) -> Any:
        """A value, or that of `layer`; None where there is none."""
        value = self._metadata.get(f"{self._architecture}.{key}")
        if not isinstance(value, list):
            return value
        return value[layer] if layer < len(value) else None
