"""Values for the inputs of a model: made up by its types, or a person's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placewright.costs.profiles.onnx.values import Blank, index_limits, made_up, ort_value
from placewright.errors import InputError
from placewright.importers.onnx.reading import OnnxModel
from placewright.importers.onnx.shapes import real_inputs
from placewright.runtime.inputs import Given

if TYPE_CHECKING:
    from onnxruntime import OrtValue

_ADVICE = "plan again with the sizes behind the file's name (FILE.onnx?NAME=SIZE)"


def input_values(found: OnnxModel, given: Given, seed: int) -> dict[str, OrtValue]:
    """Every input of the model, as ONNX Runtime takes it.

    Those that are not `given` are made up from `seed`. InputError for one that the model does not
    have, has a value of its own for, or has of another type.
    """
    blanks = blanks_of(found)
    stored = {tensor.name for tensor in found.model.graph.initializer}
    for name in given.arrays:
        if name in stored:
            raise InputError(
                f"{given.where}: '{name}' has its value in {found.path}, and was planned as a "
                "weight; take the initializer out of the file, and plan again to give it another"
            )
    given.check_names(blanks)
    generator = np.random.default_rng(seed)
    values = {}
    for name, blank in blanks.items():
        array = made_up(blank, generator)
        if name in given.arrays:
            array = given.like(name, array, _ADVICE)
        values[name] = ort_value(blank, array)
    return values


def blanks_of(found: OnnxModel) -> dict[str, Blank]:
    """The inputs of a model; InputError for one that is no tensor of a known shape."""
    graph, types = found.model.graph, found.scope.types
    limits = index_limits(graph, types)
    blanks = {}
    for value in real_inputs(graph):
        type = types.get(value.name)
        if type is None:
            raise InputError(
                f"{found.path}: input '{value.name}' is no tensor of a known shape; export the "
                "model with such inputs"
            )
        blanks[value.name] = Blank(type, limits.get(value.name))
    return blanks
