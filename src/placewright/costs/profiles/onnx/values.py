"""Values for the inputs and weights of an ONNX model, whose own are not read.

As for torch (`costs.profiles.values`), values hardly change how long a node takes, but an index
must be in its range, a divisor must not be zero, and no float may become infinite or subnormal. So
floats are small random numbers around zero (vectors and scalars, which normalise, are ones),
indices are random ones of what they pick from, and other whole numbers are ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placewright.importers.onnx.files import TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import GraphProto, NodeProto
    from onnxruntime import OrtValue

    Types = Mapping[str, TensorType | None]

SCALE = 0.02
_SMALL = 0x30  # a small number in every float format of a byte
_NUMPY = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64",
    15: "complex128",
}  # fmt: skip
_BFLOAT16 = 16
_PASS_ON = {"Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose",
            "Unsqueeze"}  # fmt: skip
_PICKING = {"Gather": 1, "GatherElements": 1}
_POINTING = {"GatherND": 1, "ScatterND": 1, "ScatterElements": 1, "TensorScatter": 2}
"""Operators whose input of that number holds indices; zeros are in every range."""


@dataclass(frozen=True)
class Blank:
    """A tensor without values; of indices, `limit` is what they must stay below."""

    type: TensorType
    limit: int | None = None


def index_limits(graph: GraphProto, types: Types) -> dict[str, int]:
    """What the values of tensors that hold indices must stay below.

    It is followed back through nodes that pass values on.
    """
    limits: dict[str, int] = {}
    for node in reversed(graph.node):
        if node.op_type in _PASS_ON and node.output[0] in limits:
            _lower(limits, node.input[0], limits[node.output[0]])
        for number, name in enumerate(node.input):
            if (limit := _limit(node, number, types)) is not None:
                _lower(limits, name, limit)
    return limits


def _lower(limits: dict[str, int], name: str, limit: int) -> None:
    limits[name] = min(limit, limits.get(name, limit))


def _limit(node: NodeProto, number: int, types: Types) -> int | None:
    if _POINTING.get(node.op_type) == number:
        return 1
    if _PICKING.get(node.op_type) != number:
        return None
    source = types.get(node.input[0])
    axis = next((each.i for each in node.attribute if each.name == "axis"), 0)
    return source.shape[axis] if source and -len(source.shape) <= axis < len(source.shape) else 1


def made_up(blank: Blank, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Values for a tensor; its bits as whole numbers where numpy has no such type.

    Elements of less than a byte are packed into a row of bytes.
    """
    shape, element = blank.type.shape, blank.type.element
    if is_packed(blank.type):
        return np.full(int(blank.type.bytes), _SMALL, dtype=np.uint8)
    if element not in _NUMPY and element != _BFLOAT16:  # floats of a byte
        return np.full(shape, _SMALL, dtype=np.uint8)
    dtype = np.dtype(_NUMPY.get(element, "float32"))
    if dtype.kind in "iu" and blank.limit is not None:
        return generator.integers(0, max(blank.limit, 1), shape, dtype=dtype)
    values = np.ones(shape, dtype)
    if dtype.kind in "fc" and len(shape) > 1:
        drawn = generator.standard_normal(shape, dtype=np.float32) * np.float32(SCALE)
        values = drawn.astype(dtype, copy=False)
    if element == _BFLOAT16:
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values


def is_plain(type: TensorType) -> bool:
    """Whether numpy has arrays of that type."""
    return type.element in _NUMPY


def is_packed(type: TensorType) -> bool:
    """Whether several elements of that type share a byte."""
    return TensorType(type.element, (2,)).bytes < 2


def ort_value(blank: Blank, array: np.ndarray[Any, Any]) -> OrtValue:
    """An array of `made_up`, or one like it, as ONNX Runtime takes it; not copied but if packed."""
    import onnxruntime

    if is_plain(blank.type):
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    if is_packed(blank.type):  # ONNX Runtime takes the shape of the array, and reads what it needs
        packed, array = array, np.zeros(blank.type.shape, np.uint8)
        array.reshape(-1)[: packed.size] = packed
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, blank.type.element)
