"""Weights in files: each is read from where its bytes are, and nothing else of the file.

A weight is put together of pieces, tensors of the files: mostly one, several where the experts of
a mixture are apart in the files. Bytes are read, not mapped: memory is that of the weights that
were asked for, and a file that changes under a run is noticed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import torch

from placewright.errors import FormatError
from placewright.runtime.weights.base import check_names
from placewright.runtime.weights.layout import Layout

Range = tuple[int, int, int]
"""A dimension, the first index in it, and how many."""


@dataclass(frozen=True)
class Piece:
    """A tensor of a file: its bytes begin at `offset`, and it fills the `ranges` of a weight.

    Without `ranges` it is the whole weight.
    """

    file: str
    offset: int
    layout: Layout
    ranges: tuple[Range, ...] = ()

    def region(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what it fills of a weight of this shape."""
        sizes = list(shape)
        for dimension, _, count in self.ranges:
            sizes[dimension] = count
        return tuple(sizes)


@dataclass(frozen=True)
class Assembly:
    """A weight of the program and the pieces it is made of."""

    layout: Layout
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class FileWeights:
    """Each weight in `table`; `stamps` say of each file how it was when the table was made."""

    kind: ClassVar[str] = "files"

    table: dict[str, Assembly]
    origin: str
    stamps: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Mapping[str, Assembly], origin: str) -> FileWeights:
        files = {piece.file for each in table.values() for piece in each.pieces}
        return cls(dict(table), origin, {file: _stamp(file) for file in sorted(files)})

    def layouts(self, names: Collection[str]) -> dict[str, Layout]:
        check_names(names, self.table, self.origin)
        return {name: self.table[name].layout for name in names}

    def load(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """FormatError for a file that is gone, has changed, or is shorter than it was."""
        check_names(names, self.table, self.origin)
        with ExitStack() as stack:
            opened = _Opened(stack, self.stamps)
            return {name: _assemble(self.table[name], opened) for name in names}

    def to_document(self, names: Collection[str]) -> dict[str, Any]:
        """What another process needs to load these itself, as plain JSON values."""
        check_names(names, self.table, self.origin)
        table = {name: _assembly_document(self.table[name]) for name in names}
        files = {piece["file"] for each in table.values() for piece in each["pieces"]}
        return {
            "kind": self.kind,
            "origin": self.origin,
            "files": {file: list(self.stamps[file]) for file in sorted(files)},
            "tensors": table,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> FileWeights:
        table = {name: _assembly_of(entry) for name, entry in document["tensors"].items()}
        stamps = {file: (size, time) for file, (size, time) in document["files"].items()}
        return cls(table, document["origin"], stamps)


class _Opened:
    """Files that are opened once, when they are first read."""

    def __init__(self, stack: ExitStack, stamps: Mapping[str, tuple[int, int]]) -> None:
        self._stack = stack
        self._stamps = stamps
        self._files: dict[str, BinaryIO] = {}

    def read(self, piece: Piece) -> torch.Tensor:
        data = torch.empty(piece.layout.nbytes, dtype=torch.uint8)
        rest = data.numpy().data
        try:
            file = self._file(piece.file)
            file.seek(piece.offset)
            while rest:
                count = file.readinto(rest)  # type: ignore[attr-defined]
                if not count:
                    raise FormatError(f"{piece.file}: ends before its tensors; download it again")
                rest = rest[count:]
        except OSError as error:
            raise FormatError(f"{piece.file}: cannot be read ({error.strerror or error})") from None
        return piece.layout.view(data)

    def _file(self, path: str) -> BinaryIO:
        if path not in self._files:
            opened: Any = Path(path).open("rb", buffering=0)  # noqa: SIM115
            self._stack.enter_context(opened)
            if _stamp(path) != self._stamps[path]:
                raise FormatError(f"{path}: has changed since the run began; start it again")
            self._files[path] = opened
        return self._files[path]


def _stamp(path: str) -> tuple[int, int]:
    """Size in bytes and time of the last change in ns."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from None
    return status.st_size, status.st_mtime_ns


def _assemble(assembly: Assembly, opened: _Opened) -> torch.Tensor:
    first = assembly.pieces[0]
    if not first.ranges and first.layout == assembly.layout:
        return opened.read(first)
    weight = assembly.layout.empty()
    for piece in assembly.pieces:
        region = weight
        for dimension, start, count in piece.ranges:
            region = region.narrow(dimension, start, count)
        region.copy_(opened.read(piece).reshape(region.shape))
    return weight


def _assembly_document(assembly: Assembly) -> dict[str, Any]:
    pieces = [
        {
            "file": piece.file,
            "offset": piece.offset,
            "ranges": [list(each) for each in piece.ranges],
            **piece.layout.to_document(),
        }
        for piece in assembly.pieces
    ]
    return {**assembly.layout.to_document(), "pieces": pieces}


def _assembly_of(entry: Mapping[str, Any]) -> Assembly:
    pieces = (
        Piece(
            each["file"],
            each["offset"],
            Layout.from_document(each),
            tuple((dimension, start, count) for dimension, start, count in each["ranges"]),
        )
        for each in entry["pieces"]
    )
    return Assembly(Layout.from_document(entry), tuple(pieces))
