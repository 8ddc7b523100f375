"""The files of kept imports: a graph each, as compressed JSON, in a folder of bounded size.

A file that is damaged, or of another key, is no error: it counts as absent, and is written anew.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import time
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placewright.errors import FormatError, GraphError, PlacewrightWarning
from placewright.formats import files
from placewright.formats.graphs import graph_document, read_graph
from placewright.graph import Graph

FORMAT = "placewright.import/1"
VARIABLE = "PLACEWRIGHT_IMPORTS"
OFF = "off"
MOST_BYTES = 256 * 2**20
"""Of all files together; the longest unused go first."""

_SUFFIX = ".import.gz"
_ABANDONED = 24 * 3600.0  # seconds after which nobody is still writing a temporary file

Key = Mapping[str, Any]
"""All that a graph depends on and that is known before it is made, in JSON's types."""


@dataclass(frozen=True)
class KeptImport:
    """A graph, what had to be assumed to make it, and the files it was made from besides.

    `files` has the SHA-256 of each by its path; ``""`` stands for a file that was not there.
    """

    graph: Graph
    remarks: tuple[str, ...] = ()
    files: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Entry:
    """A file of the cache; `used` in seconds since 1970."""

    path: Path
    bytes: int
    used: float


def folder() -> Path | None:
    """Where imports are kept: as ``PLACEWRIGHT_IMPORTS`` says, else in the user's cache folder.

    None if it says ``off``.
    """
    given = os.environ.get(VARIABLE)
    if given:
        return None if given == OFF else Path(given)
    from platformdirs import user_cache_path  # takes time to import

    return user_cache_path("placewright") / "imports"


def read(key: Key) -> KeptImport | None:
    """What is kept for `key`, if all that it was made from is as it was."""
    path = _path(key)
    if path is None or not path.is_file():
        return None
    try:
        found = _read(path, key)
    except (FormatError, GraphError) as error:
        warnings.warn(f"{error}; it is made again", PlacewrightWarning, stacklevel=2)
        return None
    if found is None or any(digest(each) != was for each, was in (found.files or {}).items()):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return found


def write(key: Key, kept: KeptImport) -> None:
    """Keep an import, whole or not at all; a remark where the folder cannot be written."""
    path = _path(key)
    if path is None:
        return
    document = {
        "format": FORMAT,
        "key": dict(key),
        "remarks": list(kept.remarks),
        "files": dict(kept.files or {}),
        "graph": graph_document(kept.graph),
    }
    content = gzip.compress(files.json_text(document).encode(), compresslevel=1, mtime=0)
    try:
        with files.writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        files.write_bytes(path, content)
    except FormatError as error:
        warnings.warn(
            f"the import is not kept: {error}; set {VARIABLE} to another folder, or to {OFF}",
            PlacewrightWarning,
            stacklevel=2,
        )
        return
    _prune(path.parent)


def entries() -> list[Entry]:
    """What is kept, the last used first."""
    place = folder()
    found = [] if place is None or not place.is_dir() else list(_entries(place))
    return sorted(found, key=lambda entry: -entry.used)


def clear() -> list[Entry]:
    """Remove every kept import; those that were removed."""
    found = entries()
    for entry in found:
        entry.path.unlink(missing_ok=True)
    return found


def digest(path: str | Path) -> str:
    """The SHA-256 of a file; ``""`` for one that is not there or cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""


def _path(key: Key) -> Path | None:
    place = folder()
    if place is None:
        return None
    name = hashlib.sha256(files.json_text(dict(key)).encode()).hexdigest()
    return place / f"{name}{_SUFFIX}"


def _read(path: Path, key: Key) -> KeptImport | None:
    """None where another run has removed the file meanwhile."""
    try:
        text = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, EOFError, zlib.error):
        raise FormatError(f"{path}: the kept import is damaged") from None
    document = files.parse_json(files.decode_text(text, path), path)
    files.check_format(document, FORMAT, path)
    remarks, made_from = document.get("remarks"), document.get("files")
    if document.get("key") != dict(key) or not (
        isinstance(remarks, list) and isinstance(made_from, dict)
    ):
        raise FormatError(f"{path}: the kept import is of something else")
    return KeptImport(read_graph(document.get("graph"), path), tuple(map(str, remarks)), made_from)


def _entries(place: Path) -> list[Entry]:
    found = []
    for path in place.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # another run removes it
            facts = path.stat()
            found.append(Entry(path, facts.st_size, facts.st_mtime))
    return found


def _prune(place: Path) -> None:
    """Remove the longest unused beyond `MOST_BYTES`, and what ended runs left half-written."""
    total = 0
    for entry in sorted(_entries(place), key=lambda entry: -entry.used):
        total += entry.bytes
        if total > MOST_BYTES:
            entry.path.unlink(missing_ok=True)
    for path in place.glob(f".*{_SUFFIX}.*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - _ABANDONED:
                path.unlink(missing_ok=True)
