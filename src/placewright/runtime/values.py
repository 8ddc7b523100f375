"""What a program is run on: weights by name, inputs by placeholder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from placewright.errors import InputError
from placewright.runtime.stages import Stage

if TYPE_CHECKING:
    from placewright.importers.torch.programs import Executable


@dataclass(frozen=True)
class Values:
    """`weights` are parameters, buffers and constants by their names in the module.

    `inputs` are the values of the program's own inputs by placeholder.
    """

    weights: Mapping[str, Any]
    inputs: Mapping[str, Any]

    def of(self, stage: Stage) -> list[Any]:
        """In the order of the stage's ``code.inputs``."""
        weights = [self.weights[name] for name in stage.weights.values()]
        return weights + [self.inputs[name] for name in stage.inputs]


def values_of(program: Executable) -> Values:
    """The values that came with a program. InputError for one that has a shape only."""
    weights = {}
    for placeholder, name in program.weights.items():
        value = _there(program, placeholder, name)
        if not isinstance(value, torch.Tensor):
            raise InputError(
                f"{program.name}: '{name}' is a {type(value).__name__}, no tensor; "
                "such a program cannot be cut"
            )
        weights[name] = value
    return Values(weights, {name: _there(program, name, name) for name in program.inputs})


def _there(program: Executable, placeholder: str, name: str) -> Any:
    if placeholder in program.values:
        return program.values[placeholder]
    node = next(
        each
        for each in program.module.graph.find_nodes(op="placeholder")
        if each.name == placeholder
    )
    if isinstance(node.meta.get("val"), torch.Tensor):
        raise InputError(
            f"'{name}' has a shape but no values (device meta); "
            "a factory must return real tensors for a run"
        )
    return None  # an argument that was left out
