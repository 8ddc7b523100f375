"""ONNX files on disk: telling one from other files, parsing it, and checking what it refers to.

A model's weights may lie in other files ("external data"). Their bytes are never needed here,
but a model whose weights are missing, or that reaches for files it has no business with, is
refused: a file may come from anywhere, and its paths are the sender's choice.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, BinaryIO

from placewright.errors import FormatError, MissingExtraError
from placewright.formats import files

if TYPE_CHECKING:
    from google.protobuf.message import Message  # type: ignore[import-untyped,unused-ignore]
    from onnx import (
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        TensorProto,
        ValueInfoProto,
    )

# Values of more elements than this are weights: no shape is computed from them.
LARGEST_VALUE = 4096

# ONNX's element types by number: bits of an element, and the dtype whose peak its ops use
# (None: integers that index or count, which no matrix unit is made for).
_ELEMENTS: dict[int, tuple[int, str | None]] = {
    1: (32, "fp32"), 2: (8, "int8"), 3: (8, "int8"), 4: (16, None), 5: (16, None),
    6: (32, None), 7: (64, None), 9: (8, None), 10: (16, "fp16"), 11: (64, "fp64"),
    12: (32, None), 13: (64, None), 14: (64, "fp32"), 15: (128, "fp64"), 16: (16, "bf16"),
    17: (8, "fp8"), 18: (8, "fp8"), 19: (8, "fp8"), 20: (8, "fp8"), 21: (4, "int4"),
    22: (4, "int4"), 23: (4, "fp8"), 24: (8, "fp8"), 25: (2, "int4"), 26: (2, "int4"),
    27: (6, "fp8"), 28: (6, "fp8"),
}  # fmt: skip
_STRING = 8
_MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_GRAPH_FIELD = 7


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor whose every dimension is known; `element` is ONNX's number for it."""

    element: int
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> float:
        """Bytes in memory; elements of less than a byte are packed."""
        return float((self.elements * _ELEMENTS[self.element][0] + 7) // 8)

    @property
    def dtype(self) -> str | None:
        """The dtype of `placewright.graph.DTYPES` that computing with it uses, if it does."""
        return _ELEMENTS[self.element][1]


def set_type(value: ValueInfoProto, type: TensorType) -> None:
    """Write down the type of a tensor, whatever was noted of it."""
    value.type.tensor_type.elem_type = type.element
    value.type.tensor_type.ClearField("shape")
    value.type.tensor_type.shape.SetInParent()
    for size in type.shape:
        value.type.tensor_type.shape.dim.add(dim_value=size)


def has_known_size(element: int) -> bool:
    """Whether an element of ONNX's type number `element` has a size (text has none)."""
    return element in _ELEMENTS


def is_onnx(source: str | Path | bytes) -> bool:
    """Whether a file (or its content) looks like an ONNX model, judged by its first fields.

    Reads only the heads of the fields, and does not need onnx. False for what cannot be read.

    >>> is_onnx(b'{"format": "placewright.graph/1"}')
    False
    """
    if isinstance(source, bytes):
        return _starts_like_a_model(io.BytesIO(source))
    try:
        with Path(source).open("rb") as file:
            return _starts_like_a_model(file)
    except (OSError, ValueError):
        return False


def _starts_like_a_model(stream: BinaryIO) -> bool:
    """Whether protobuf fields of a ModelProto lead from its version to its graph."""
    expected = {1}
    while (tag := _varint(stream)) is not None:
        field, wire_type = tag >> 3, tag & 7
        if field not in expected or _MODEL_FIELDS[field] != wire_type:
            return False
        if field == _GRAPH_FIELD:
            return True
        value = _varint(stream)
        if value is None:
            return False
        if wire_type == 2:
            stream.seek(value, io.SEEK_CUR)
        expected = set(_MODEL_FIELDS)
    return False


def _varint(stream: BinaryIO) -> int | None:
    value = 0
    for shift in range(0, 63, 7):
        byte = stream.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return None


def load_model(path: str | Path, content: bytes | None = None) -> ModelProto:
    """The model in `path`, its external data checked and the values of its weights let go.

    Raises FormatError if the file is no ONNX model, is cut short, or refers to external data
    that is missing, too short or outside the model's directory.
    """
    model = parse_model(path, content)
    for tensor in tensors_of(model):
        _check_tensor(tensor, Path(path))
        _let_go(tensor)
    return compacted(model)


def compacted(model: ModelProto) -> ModelProto:
    """A copy without the memory of what has been taken out: protobuf lets go of whole messages."""
    copy = type(model)()
    copy.ParseFromString(model.SerializeToString())
    return copy


def parse_model(path: str | Path, content: bytes | None = None) -> ModelProto:
    """The model in `path` with all that the file holds; external data is not looked at.

    Raises FormatError if the file is no ONNX model or is cut short.
    """
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("onnx", "importing an ONNX model") from None
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

    content = files.read_bytes(path) if content is None else content
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, RuntimeError, ValueError):
        raise FormatError(f"{path}: {_why_unreadable(content)}") from None
    if not model.HasField("graph"):
        raise FormatError(f"{path}: {_why_unreadable(content)}")
    if not any(entry.domain in ("", "ai.onnx") for entry in model.opset_import):
        raise FormatError(
            f"{path}: field opset_import: names no version of the ONNX operators; add one "
            "(onnx.helper.make_opsetid)"
        )
    _check_text(model, path)
    return model


def _why_unreadable(content: bytes) -> str:
    if not content:
        return "the file is empty; export the model again"
    if is_onnx(content):
        return "the ONNX model is cut short or damaged; export or download it again"
    return "not an ONNX model; give a file written by an ONNX exporter"


def _check_text(message: Message, path: str | Path) -> None:
    """Refuse names that are not UTF-8, which protobuf hands out as bytes."""
    for field, value in message.ListFields():
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        many = not isinstance(value, (str, bytes)) and hasattr(value, "__len__")
        for each in value if many else (value,):
            if isinstance(each, bytes):
                raise FormatError(
                    f"{path}: field {field.name}: not UTF-8 text; the ONNX model is cut short or "
                    "damaged, export or download it again"
                )
            if field.type == field.TYPE_MESSAGE:
                _check_text(each, path)


# -- what a model holds --------------------------------------------------------------------------


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs among the attributes of `node`: branches, bodies."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def tensors_of(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor stored in `model`: initializers and constants, those of subgraphs too."""
    pending: list[GraphProto | FunctionProto] = [model.graph, *model.functions]
    while pending:
        graph = pending.pop()
        if hasattr(graph, "initializer"):
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                if attribute.HasField("sparse_tensor"):
                    yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
                yield from attribute.tensors
            pending.extend(subgraphs(node))


def stored_type(tensor: TensorProto) -> TensorType:
    return TensorType(tensor.data_type, tuple(tensor.dims))


# -- checks --------------------------------------------------------------------------------------


def _check_tensor(tensor: TensorProto, path: Path) -> None:
    where = f"{path}: tensor '{tensor.name}'"
    if tensor.data_type == _STRING:
        return
    if not has_known_size(tensor.data_type):
        raise FormatError(f"{where}: data_type {tensor.data_type} is none that ONNX defines")
    if any(dim < 0 for dim in tensor.dims) or math.prod(tensor.dims) >= 2**63:
        raise FormatError(f"{where}: dims {list(tensor.dims)} are no shape of a tensor")
    size = int(stored_type(tensor).bytes)
    if tensor.data_location == tensor.EXTERNAL:
        _check_external(tensor, size, where, path)
    elif tensor.HasField("raw_data") and len(tensor.raw_data) != size:
        raise FormatError(
            f"{where}: raw_data holds {len(tensor.raw_data)} bytes, its dims {list(tensor.dims)} "
            f"need {size}; export the model again"
        )


def _check_external(tensor: TensorProto, size: int, where: str, path: Path) -> None:
    """Refuse external data that is missing, too short or outside the directory of the model.

    Shapes may be computed from integers, so small ones are read; weights stay where they are.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    file = _external_file(entries.get("location", ""), where, path)
    offset = _whole_number(entries, "offset", 0, where)
    length = _whole_number(entries, "length", size, where)
    if length < size:
        raise FormatError(
            f"{where}: external data length {length} is less than the {size} bytes of its dims "
            f"{list(tensor.dims)}; export the model again"
        )
    available = file.stat().st_size
    if offset + length > available:
        raise FormatError(
            f"{where}: needs bytes {offset} to {offset + length} of external data file {file}, "
            f"which has {available}; copy or download the file again"
        )
    if _is_value(tensor) and tensor.data_type in (tensor.INT64, tensor.INT32):
        with file.open("rb") as stream:
            stream.seek(offset)
            tensor.raw_data = stream.read(size)
        tensor.data_location = tensor.DEFAULT
        tensor.ClearField("external_data")


def _external_file(location: str, where: str, path: Path) -> Path:
    """The file of external data; it must lie in the model's directory, links followed.

    A model file that is itself a link may have its data beside the file it points to: download
    caches lay models out so.
    """
    windows = PureWindowsPath(location)  # knows both kinds of separator
    if not location or "\0" in location:
        raise FormatError(f"{where}: external data names no location; export the model again")
    if Path(location).is_absolute() or windows.drive or windows.root or ".." in windows.parts:
        raise FormatError(
            f"{where}: external data location '{location}' leads out of the model's directory; "
            "put the file beside the model and name it relative to it"
        )
    named = path.parent / location
    if not named.exists():
        raise FormatError(
            f"{where}: external data file {named} does not exist; put it beside the model"
        )
    file = named.resolve()
    directories = {path.parent.resolve(), path.resolve().parent}
    if not any(file.is_relative_to(directory) for directory in directories):
        raise FormatError(
            f"{where}: external data file {named} is a link out of the model's directory; "
            "put the file itself beside the model"
        )
    if not file.is_file():
        raise FormatError(f"{where}: external data location {named} is no file")
    return named


def _whole_number(entries: dict[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise FormatError(f"{where}: external data {key} is '{text}'; it must be a whole number")
    return int(text)


def _let_go(tensor: TensorProto) -> None:
    """Keep values that a shape may be computed from, and text; of all others the type only.

    Shape inference copies the whole model, and would look for external data on its own.
    """
    is_external = tensor.data_location == tensor.EXTERNAL
    if is_external or not (_is_value(tensor) or tensor.data_type == _STRING):
        for field in ("raw_data", "float_data", "double_data", "int32_data", "int64_data",
                      "uint64_data", "external_data"):  # fmt: skip
            tensor.ClearField(field)
        tensor.data_location = tensor.DEFAULT


def _is_value(tensor: TensorProto) -> bool:
    return math.prod(tensor.dims) <= LARGEST_VALUE and tensor.data_type != _STRING
