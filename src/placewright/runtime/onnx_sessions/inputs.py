"""Values for the inputs of a model: made up by its types, or a person's own."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.costs.profiles.onnx.values import Blank, index_limits, made_up, ort_value
from placewright.errors import FormatError, InputError
from placewright.importers.onnx.reading import OnnxModel
from placewright.importers.onnx.shapes import real_inputs

if TYPE_CHECKING:
    from onnxruntime import OrtValue

Arrays = Mapping[str, "np.ndarray[Any, Any]"]
Inputs = Arrays | str | Path


def input_values(found: OnnxModel, given: Inputs | None, seed: int) -> dict[str, OrtValue]:
    """Every input of the model, as ONNX Runtime takes it.

    Those that are not `given`, as arrays or an ``.npz`` file, are made up from `seed`. InputError
    for one that the model does not have, or not of that type.
    """
    arrays, where = ({}, "inputs") if given is None else _arrays(given)
    blanks = blanks_of(found)
    unknown = sorted(arrays.keys() - blanks.keys())
    if unknown:
        raise InputError(
            f"{where}: the model has no input '{unknown[0]}'; it has "
            f"{', '.join(map(repr, blanks)) or 'none'}"
        )
    generator = np.random.default_rng(seed)
    values = {}
    for name, blank in blanks.items():
        array = made_up(blank, generator)
        if name in arrays:
            _check(name, arrays[name], array, where)
            array = np.ascontiguousarray(arrays[name]).reshape(array.shape)
        values[name] = ort_value(blank, array)
    return values


def _arrays(given: Inputs) -> tuple[Arrays, str]:
    if isinstance(given, Mapping):
        return given, "inputs"
    path = Path(given)
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise FormatError(f"{path}: holds one array; save the inputs with numpy.savez")
        with found:
            return {name: found[name] for name in found.files}, str(path)
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FormatError(
            f"{path}: no .npz file of plain arrays ({' '.join(str(error).split())}); save the "
            "inputs with numpy.savez"
        ) from None


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


def _check(
    name: str, array: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], where: str
) -> None:
    if (array.dtype, array.shape) != (wanted.dtype, wanted.shape):
        raise InputError(
            f"{where}: input '{name}' is {array.dtype}{list(array.shape)}, but the plan is for "
            f"{wanted.dtype}{list(wanted.shape)}; give that, or plan again with the sizes behind "
            "the file's name (FILE.onnx?NAME=SIZE)"
        )
