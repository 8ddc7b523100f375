"""What a program is run on: its weights by name, and its inputs by placeholder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from placewright.costs.profiles.values import made_up
from placewright.errors import InputError, OptionError
from placewright.runtime.inputs import Given, given_inputs
from placewright.runtime.weights import HeldWeights, Weights, weights_of

if TYPE_CHECKING:
    from placewright.importers.torch.programs import Executable
    from placewright.runtime.inputs import Inputs

_NUMPY_FLOATS = (torch.float16, torch.float32, torch.float64)


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
    *,
    inputs: Inputs | None = None,
) -> Values:
    """The values for the program of a source: nothing of the weights is loaded yet.

    `weights` and `seed` as in `weights.weights_of`, `inputs` as in `RunOptions`. InputError for
    inputs that the program does not have, or not of that type.
    """
    found = inputs_of(program, seed)
    if inputs is not None:
        found |= _taken(program, found, given_inputs(inputs))
    return Values(weights_of(source, program, module, weights, seed), found)


def _taken(program: Executable, found: Mapping[str, Any], given: Given) -> dict[str, Any]:
    """The inputs that a person gave, which are to be as those that were `found`."""
    if program.gradients:
        raise OptionError(
            f"{program.name}: a training plan runs on the example inputs of its source, and takes "
            "no others; leave out the inputs"
        )
    tensors = {name: each for name, each in found.items() if isinstance(each, torch.Tensor)}
    given.check_names(tensors)
    return {name: _tensor(given, name, tensors[name]) for name in given.arrays}


def _tensor(given: Given, name: str, example: torch.Tensor) -> torch.Tensor:
    """NumPy has no bfloat16 and no floats of a byte: these are given as float32."""
    narrow = example.dtype.is_floating_point and example.dtype not in _NUMPY_FLOATS
    dtype = torch.float32 if narrow else example.dtype
    wanted = torch.empty(example.shape, dtype=dtype).numpy()
    array = given.like(name, wanted, "plan the source with such example inputs")
    return torch.empty_like(example).copy_(torch.tensor(array))  # laid out as it was exported


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
