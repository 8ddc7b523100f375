"""Headers of GGUF files: metadata, and which tensors there are, of what type, shape and size.

A file is a magic word, a version, the counts of tensors and of metadata, the metadata, an entry per
tensor, and the tensors' bytes, of which none is read. Every fault is one sentence (`FormatError`).
Arrays of metadata are kept where they are of numbers and no longer than `LONGEST_ARRAY`: one number
per layer, not a vocabulary.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from placewright.errors import FormatError
from placewright.formats import files
from placewright.importers.gguf.types import TYPES, TensorType
from placewright.units import printable

MAGIC = b"GGUF"
VERSIONS = (2, 3)
LONGEST_ARRAY = 4096
LONGEST_TEXT = 2**20
_MOST_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32
_NUMBERS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_TEXT, _ARRAY = 8, 9
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file; the first of its `shape` is the dimension that lies together."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements // self.type.block_elements * self.type.block_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of the elements along the first dimension."""
        return self.shape[0] // self.type.block_elements * self.type.block_bytes


@dataclass(frozen=True)
class Header:
    """`metadata` by key; `tensors` by name, in the order of the file."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def read_header(path: Path) -> Header:
    """The header of a model, with the tensors of all its files where it is split into several."""
    first = _read_file(path)
    count = first.metadata.get("split.count", 0)
    if not isinstance(count, int) or count <= 1:
        return first
    parts = [_read_file(part) for part in _parts(path, count)]
    tensors: dict[str, Tensor] = {}
    for part in parts:
        for name, tensor in part.tensors.items():
            if name in tensors:
                raise FormatError(f"{part.path}: holds '{name}', as a part before it does")
            tensors[name] = tensor
    expected = parts[0].metadata.get("split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise FormatError(
            f"{path}: its {count} files hold {len(tensors)} tensors, not {expected}; download "
            "them again"
        )
    return Header(path, parts[0].metadata, tensors)


def _parts(path: Path, count: int) -> list[Path]:
    """The files of a split model, by the names that llama.cpp gives them."""
    match = _PART.fullmatch(path.name)
    if match is None or int(match[3]) != count:
        raise FormatError(
            f"{path}: is one of {count} files, which must be named …-00001-of-{count:05}.gguf"
        )
    return [path.with_name(f"{match[1]}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]


def _read_file(path: Path) -> Header:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            return _Reader(path, file, size).header()
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise FormatError(
            f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from None


class _Reader:
    """Reads a header from the front; no count in it makes it read past the file's `size`."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path, self.file, self.size = path, file, size

    def header(self) -> Header:
        if self.file.read(len(MAGIC)) != MAGIC:
            raise self._fault("is no GGUF file; give one that begins with GGUF")
        version = self._number("<I")
        if version not in VERSIONS:
            what = "is written for big-endian machines" if version & 0xFFFF == 0 else ""
            raise self._fault(
                f"{what or f'has version {version} of GGUF'}; only versions "
                f"{' and '.join(map(str, VERSIONS))}, little-endian, are read: convert it again"
            )
        tensor_count, entry_count = self._number("<Q"), self._number("<Q")
        metadata: dict[str, Any] = {}
        for _ in range(entry_count):
            key = self._text()
            if key in metadata:
                raise self._fault(f"has metadata '{printable(key)}' twice")
            metadata[key] = self._value(self._number("<I"))
        tensors: dict[str, Tensor] = {}
        for _ in range(tensor_count):
            tensor = self._tensor()
            if tensor.name in tensors:
                raise self._fault(f"has tensor '{tensor.name}' twice")
            tensors[tensor.name] = tensor
        self._check_extent(metadata, tensors)
        return Header(self.path, metadata, tensors)

    def _tensor(self) -> Tensor:
        name = printable(self._text())
        dimensions = self._number("<I")
        if dimensions > _MOST_DIMENSIONS:
            raise self._fault(f"tensor '{name}' has {dimensions} dimensions, more than there are")
        shape = tuple(self._number("<Q") for _ in range(dimensions))
        number, offset = self._number("<I"), self._number("<Q")
        if number not in TYPES:
            raise self._fault(
                f"tensor '{name}' has type {number}, which is not known; convert the model to "
                "another quantisation"
            )
        kind = TYPES[number]
        if 0 in shape or (shape[0] if shape else 1) % kind.block_elements:
            raise self._fault(
                f"tensor '{name}' has shape {list(shape)}, which blocks of {kind.block_elements} "
                f"({kind.name}) do not fill; download the file again"
            )
        return Tensor(name, kind, shape, offset)

    def _check_extent(self, metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Whether the tensors' bytes are all in the file."""
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or not 0 < alignment <= 2**20:
            raise self._fault(f"has general.alignment {alignment}; it must be from 1 to {2**20}")
        start = -(-self.file.tell() // alignment) * alignment
        for tensor in tensors.values():
            if start + tensor.offset + tensor.bytes > self.size:
                raise self._fault(
                    f"is cut off: '{tensor.name}' is not all there; download it again"
                )

    def _value(self, kind: int) -> Any:
        """A value of metadata; None for one that is not kept."""
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _TEXT:
            return self._text()
        if kind == _ARRAY:
            return self._array()
        raise self._fault(f"has metadata of type {kind}, which GGUF does not know")

    def _array(self) -> list[Any] | None:
        kind, count = self._number("<I"), self._number("<Q")
        if kind in _NUMBERS:
            width = struct.calcsize(_NUMBERS[kind])
            if count > LONGEST_ARRAY:
                self._skip(count * width)
                return None
            return [self._number(_NUMBERS[kind]) for _ in range(count)]
        if kind != _TEXT:
            raise self._fault(f"has an array of type {kind} in its metadata, which is not read")
        for _ in range(count):
            self._skip(self._number("<Q"))
        return None

    def _text(self) -> str:
        length = self._number("<Q")
        if length > LONGEST_TEXT:
            self._skip(length)
            return ""
        return files.decode_text(self._bytes(length), self.path)

    def _number(self, format: str) -> Any:
        return struct.unpack(format, self._bytes(struct.calcsize(format)))[0]

    def _bytes(self, count: int) -> bytes:
        found = self.file.read(count)
        if len(found) < count:
            raise self._cut_off()
        return found

    def _skip(self, count: int) -> None:
        if count > self.size - self.file.tell():
            raise self._cut_off()
        self.file.seek(count, 1)

    def _cut_off(self) -> FormatError:
        return self._fault("is cut off within its header; download it again")

    def _fault(self, what: str) -> FormatError:
        return FormatError(f"{self.path}: {what}")
