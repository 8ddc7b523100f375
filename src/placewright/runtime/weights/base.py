"""What weights of a run are: tensors that are made when, and only if, they are asked for."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Container, Iterable
from typing import Protocol

import torch

from placewright.errors import InputError
from placewright.runtime.weights.layout import Layout


class Weights(Protocol):
    """The parameters, buffers and constants of a program, by their names in the module."""

    @property
    def origin(self) -> str:
        """Where the values come from, for people to read."""

    def layouts(self, names: Collection[str]) -> dict[str, Layout]:
        """How each would lie in memory; nothing is loaded. InputError as for `load`."""

    def load(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """These tensors and no others, with the program's dtypes.

        InputError names what is not there.
        """


def bytes_of(weights: Weights, names: Collection[str]) -> int:
    """Bytes of memory that these take; nothing is loaded. Tied ones count under each name."""
    return sum(layout.nbytes for layout in weights.layouts(names).values())


def check_names(names: Iterable[str], known: Container[str], origin: str) -> None:
    """InputError for the first name that is not there."""
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1) if isinstance(known, dict) else []
            hint = f"; did you mean '{close[0]}'?" if close else ""
            raise InputError(f"there is no weight '{name}' in {origin}{hint}")
