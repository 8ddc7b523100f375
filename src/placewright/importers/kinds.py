"""What kind of source a file is: told by its content, never by its name alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from placewright.errors import FormatError, OptionError
from placewright.formats import files

Kind = Literal["json", "pt2", "onnx", "gguf"]

TAKES_QUERY = ("onnx", "gguf")
_GGUF = b"GGUF"
_OF_TORCH = frozenset({"archive_format", "serialized_exported_program.json", "data.pkl"})
"""Members of archives that torch writes: programs of today and of before, and pickles."""


@dataclass(frozen=True)
class SourceFile:
    """A file as it was read, its kind, and what is given behind its ``?``.

    Of GGUF, whose headers alone matter, no `content` is read.
    """

    path: Path
    query: str
    content: bytes
    kind: Kind


def file_of(source: str) -> Path:
    """The file that a source is read from; a path to nothing for sources that are no file."""
    path, _ = _split(source.removeprefix("hf:"))
    return path / "config.json" if path.is_dir() else path


def open_source(text: str) -> SourceFile:
    """The file of ``FILE[?NAME=VALUE&…]``; FormatError for one of no kind, OptionError for values
    that its kind does not take."""
    path, query = _split(text)
    if _begins(path) == _GGUF:
        return SourceFile(path, query, b"", "gguf")
    content = files.read_bytes(path)
    kind = _kind(content, path)
    if query and kind not in TAKES_QUERY:
        raise OptionError(
            f"{path}: only ONNX and GGUF files take values behind '?'; leave out '?{query}'"
        )
    return SourceFile(path, query, content, kind)


def is_gguf(source: str) -> bool:
    """Whether a source is a GGUF file: by its content, or by its name where it is not there."""
    path, _ = _split(source)
    return _begins(path) == _GGUF or (path.suffix == ".gguf" and not path.exists())


def _split(text: str) -> tuple[Path, str]:
    """A file, and what is behind its ``?``; a file's own name may hold ``?``."""
    cuts = [place for place, character in enumerate(text) if character == "?"]
    for cut in (len(text), *reversed(cuts)):
        if _is_file(text[:cut]):
            return Path(text[:cut]), text[cut + 1 :]
    path, _, query = text.rpartition("?")
    return (Path(path), query) if "=" in query else (Path(text), "")


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # as a name it is too long, or holds a zero
        return False


def _begins(path: Path) -> bytes:
    """The first bytes of a file; none of what is no file."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(len(_GGUF))
    except (OSError, ValueError):
        return b""


def _kind(content: bytes, path: Path) -> Kind:
    start = content[:256].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"{", b"[")):
        return "json"
    files.refuse_wrapped(content, path)
    if content.startswith(files.ARCHIVE):
        if not _is_torchs(content):
            files.refuse_archive(path)
        return "pt2"
    if not content.strip():
        raise FormatError(f"{path}: the file is empty")
    if path.suffix.lower() == ".onnx" or b"\x00" in content[:4096] or content[0] == 0x08:
        return "onnx"
    raise FormatError(
        f"{path}: not a model placewright reads; give ONNX, GGUF, an exported .pt2, "
        "a placewright graph (JSON) or a published workload (JSON)"
    )


def _is_torchs(archive: bytes) -> bool:
    """Whether torch may have written a zip archive: any version, and also if it is cut short."""
    import io
    import zipfile

    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            names = [name.rpartition("/")[2] for name in opened.namelist()]
    except (zipfile.BadZipFile, OSError, ValueError):
        return True
    return not _OF_TORCH.isdisjoint(names)
