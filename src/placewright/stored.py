"""Data that is kept in files; how, is known to `placewright.formats`, which says so here.

So the data itself reads and writes nothing, and imports no format. What notebooks show of it is
known to `placewright.report` likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from placewright.errors import FormatError

T = TypeVar("T")


@dataclass(frozen=True)
class Format(Generic[T]):
    """How one kind of data is turned into a document (JSON's types) and back, and into a file."""

    name: str

    def document(self, data: T) -> dict[str, Any]:
        raise NotImplementedError

    def read(self, document: Any, path: str | Path) -> T:
        """The data; errors name the fault, and `path` as where it is."""
        raise NotImplementedError

    def save(self, data: T, path: str | Path) -> None:
        raise NotImplementedError

    def load(self, path: str | Path) -> T:
        raise NotImplementedError


_formats: dict[type, Format[Any]] = {}
_shown: dict[type, Callable[[Any], str]] = {}


def kept_as(data: type[T], format: Format[T]) -> None:
    """Have `Stored` data of a class saved and loaded by `format`."""
    _formats[data] = format


def shown_as(data: type[T], html: Callable[[T], str]) -> None:
    """Have notebooks show `Stored` data of a class as the HTML that `html` makes of it."""
    _shown[data] = html


def _is_path(given: Any) -> bool:
    return isinstance(given, str | PathLike)


class Stored:
    """What has a file format of its own."""

    def save(self, path: str | Path) -> None:
        """Write a file, whole or not at all; a cluster as YAML if it is named so, else as JSON."""
        if not _is_path(path):
            raise FormatError(f"{path!r} is no path; give the name of a file")
        _formats[type(self)].save(self, path)

    def _repr_html_(self) -> str | None:
        """What a notebook shows, or None where it shows the text."""
        html = _shown.get(type(self))
        return html(self) if html is not None else None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file; FormatError, or the error of the data, names the fault.

        Whether a plan is right is for `verify` to say.
        """
        if not _is_path(path):
            raise FormatError(
                f"{path!r} is neither a {cls.__name__} nor the path of its file; give one of these"
            )
        return _formats[cls].load(path)  # type: ignore[no-any-return]

    def to_document(self) -> dict[str, Any]:
        """What a file would hold."""
        return _formats[type(self)].document(self)

    @classmethod
    def from_document(cls, document: Any, path: str | Path = "") -> Self:
        """Read what a file holds; errors name `path`, or the format where that is left out."""
        format = _formats[cls]
        return format.read(document, path or format.name)  # type: ignore[no-any-return]
