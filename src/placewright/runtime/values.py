"""What a program is run on: its weights by name, and its inputs by placeholder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from placewright.costs.profiles.values import made_up
from placewright.errors import InputError
from placewright.runtime.weights import HeldWeights, Weights, weights_of

if TYPE_CHECKING:
    from placewright.importers.torch.programs import Executable


@dataclass(frozen=True)
class Values:
    """`weights` are parameters, buffers and constants by their names in the module.

    `inputs` are the values of the program's own inputs by placeholder.
    """

    weights: Weights
    inputs: Mapping[str, Any]


def values_of(program: Executable) -> Values:
    """The values that came with a program. InputError for one that has a shape only."""
    weights = {}
    for placeholder, name in program.weights.items():
        if placeholder not in program.values:
            raise InputError(
                f"'{name}' has a shape but no values (device meta); "
                "a factory must return real tensors for a run"
            )
        weights[name] = program.values[placeholder]
    return Values(HeldWeights(weights), inputs_of(program))


def loaded_values(
    source: str,
    program: Executable,
    module: torch.nn.Module | None,
    weights: str | None = None,
    seed: int = 0,
) -> Values:
    """The values for the program of a source: nothing of the weights is loaded yet.

    `weights` and `seed` as in `weights.weights_of`.
    """
    return Values(weights_of(source, program, module, weights, seed), inputs_of(program, seed))


def inputs_of(program: Executable, seed: int = 0) -> dict[str, Any]:
    """The source's example inputs; made-up ones where it has shapes only."""
    generator = torch.Generator().manual_seed(seed)
    nodes = {node.name: node for node in program.module.graph.find_nodes(op="placeholder")}
    found = {}
    for name in program.inputs:
        if name in program.values:
            found[name] = program.values[name]
        elif isinstance(nodes[name].meta.get("val"), torch.Tensor):
            found[name] = made_up(nodes[name], generator)
        else:
            found[name] = None  # an argument that was left out
    return found
