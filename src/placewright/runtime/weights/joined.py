"""Weights of several kinds as one: files, and what they do not hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from placewright.runtime.weights.base import Weights, check_names
from placewright.runtime.weights.layout import Layout

Part = tuple[Collection[str], Weights]
"""Names, and what has them."""


class JoinedWeights:
    """Each name is asked of its part."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = [(frozenset(names), weights) for names, weights in parts if names]
        self._known = {name: None for names, _ in self._parts for name in sorted(names)}

    @property
    def origin(self) -> str:
        return " and ".join(dict.fromkeys(weights.origin for _, weights in self._parts))

    def parts(self, names: Collection[str] | None = None) -> list[tuple[list[str], Weights]]:
        """Those with some of the names (None: all), and which; InputError for unknown names."""
        if names is not None:
            check_names(names, self._known, self.origin)
        found = (
            (sorted(own if names is None else own & set(names)), weights)
            for own, weights in self._parts
        )
        return [(asked, weights) for asked, weights in found if asked]

    def layouts(self, names: Collection[str]) -> dict[str, Layout]:
        found: dict[str, Layout] = {}
        for asked, weights in self.parts(names):
            found |= weights.layouts(asked)
        return found

    def load(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {}
        for asked, weights in self.parts(names):
            found |= weights.load(asked)
        return found
