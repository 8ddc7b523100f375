"""Outputs of a run as arrays, and how far they are from those of another."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.costs.profiles.onnx.values import is_plain
from placewright.errors import ExecutionError
from placewright.importers.onnx.files import TensorType, has_known_size
from placewright.runtime.onnx_sessions.passes import size_of

if TYPE_CHECKING:
    from onnxruntime import OrtValue

Array = np.ndarray[Any, Any]
_BFLOAT16 = 16


def array_of(value: OrtValue) -> Array:
    """A copy of a tensor as numpy has it; text is an array of objects.

    bfloat16 is widened; of other types that numpy lacks it is the bytes (dtype ``V1``).
    """
    element = value.element_type()
    if is_plain(TensorType(element, ())) or not has_known_size(element):
        array: Array = value.numpy()
        return array
    raw = ctypes.string_at(value.data_ptr(), size_of(value))
    if element != _BFLOAT16:
        return np.frombuffer(raw, "V1")
    widened = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
    return widened.view(np.float32).reshape(tuple(value.shape()))


def max_abs_difference(
    names: Sequence[str], expected: Sequence[Array], found: Sequence[Array]
) -> float:
    """The largest distance between outputs; equal NaNs and infinities are equal.

    ExecutionError where one differs in type or shape. Text, and bytes (see `array_of`), that
    differ are infinitely far from each other.

    >>> nan = float("nan")
    >>> max_abs_difference(["y"], [np.array([1.0, nan])], [np.array([1.5, nan])])
    0.5
    """
    differences = (_distance(name, a, b) for name, a, b in zip(names, expected, found, strict=True))
    return max(differences, default=0.0)


def _distance(name: str, expected: Array, found: Array) -> float:
    if (expected.dtype, expected.shape) != (found.dtype, found.shape):
        raise ExecutionError(
            f"output '{name}' is {found.dtype}{list(found.shape)} instead of "
            f"{expected.dtype}{list(expected.shape)}"
        )
    if expected.dtype.kind == "V":
        return 0.0 if expected.tobytes() == found.tobytes() else float("inf")
    different = ~((expected == found) | ((expected != expected) & (found != found)))
    if not different.any():
        return 0.0
    if expected.dtype.kind == "O":
        return float("inf")
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(expected[different].astype(wide) - found[different].astype(wide))
    return float("inf") if np.isnan(distance).any() else float(distance.max())
