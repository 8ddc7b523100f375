"""How far the outputs of a run are from those of another."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.errors import ExecutionError
from placewright.runtime.onnx_sessions.passes import size_of

if TYPE_CHECKING:
    from onnxruntime import OrtValue

Array = np.ndarray[Any, Any]
_BFLOAT16 = 16


def max_abs_difference(
    names: Sequence[str], expected: Sequence[OrtValue], found: Sequence[OrtValue]
) -> float:
    """The largest distance between outputs; equal NaNs and infinities are equal.

    ExecutionError where one differs in type or shape. Of types that are no numbers to numpy the
    bits are compared: a difference is infinite.
    """
    differences = (_distance(name, a, b) for name, a, b in zip(names, expected, found, strict=True))
    return max(differences, default=0.0)


def _distance(name: str, expected: OrtValue, found: OrtValue) -> float:
    kinds = [(each.data_type(), list(each.shape())) for each in (expected, found)]
    if kinds[0] != kinds[1]:
        raise ExecutionError(
            f"output '{name}' is {kinds[1][0]} of shape {kinds[1][1]} instead of {kinds[0][0]} of "
            f"shape {kinds[0][1]}"
        )
    a, b = array_of(expected), array_of(found)
    if a.dtype.kind == "V":
        return 0.0 if a.tobytes() == b.tobytes() else float("inf")
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    different = ~((a == b) | ((a != a) & (b != b)))
    if not different.any():
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(a[different].astype(wide) - b[different].astype(wide))
    return float("inf") if np.isnan(distance).any() else float(distance.max())


def array_of(value: OrtValue) -> Array:
    """A tensor as numpy has it: bfloat16 widened, other types that it lacks as bytes (``V1``)."""
    try:
        array: Array = value.numpy()
        return array
    except RuntimeError:  # no type of numpy's
        pass
    raw = ctypes.string_at(value.data_ptr(), size_of(value))
    if value.element_type() != _BFLOAT16:
        return np.frombuffer(raw, "V1")
    widened = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
    return widened.view(np.float32).reshape(tuple(value.shape()))
