"""From a source to a graph: one file per kind of source, told apart here.

A source is a file (its kind is told by its content; an ONNX file may give sizes to its dynamic
dimensions, ``FILE[?NAME=SIZE&…]``), ``zoo:NAME[?key=value&…]``, ``torch:PACKAGE.MODULE:FACTORY``
or ``hf:CONFIG``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from placewright.cluster import Cluster
from placewright.errors import FormatError, OptionError
from placewright.formats import files
from placewright.formats.graphs import FORMAT
from placewright.graph import Graph


@dataclass(frozen=True)
class Imported:
    """A graph and what came with it.

    `cluster` and `options` (of `Options`) are those a published workload is judged with;
    `source` is where it came from, as written.
    """

    graph: Graph
    cluster: Cluster | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    source: str = ""


def load(source: str | Path, *, training: bool = False) -> Imported:
    """Import `source`; `training` asks for forward and backward.

    >>> load("zoo:gpt2").graph.name
    'gpt2'
    """
    text = str(source)
    scheme, separator, rest = text.partition(":")
    if separator and scheme == "zoo":
        from placewright.importers import zoo

        return Imported(zoo.build(rest, training=training), source=text)
    if separator and scheme == "torch":
        from placewright.importers.torch.sources import from_factory

        return Imported(from_factory(rest, training=training), source=text)
    if separator and scheme == "hf":
        from placewright.importers.torch.sources import from_hf

        return Imported(from_hf(rest, training=training), source=text)
    if training:
        raise OptionError(
            f"--training makes forward and backward from zoo:, torch: and hf: sources; "
            f"{text} is a file and is taken as it is"
        )
    return _load_file(*_split(text))


def _split(text: str) -> tuple[Path, str]:
    """A file, and the sizes of dimensions behind its ``?``; a file's own name may hold ``?``."""
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


def _load_file(path: Path, query: str) -> Imported:
    content = files.read_bytes(path)
    kind = _kind(content, path)
    if query and kind != "onnx":
        raise OptionError(f"{path}: only an ONNX file takes sizes; leave out '?{query}'")
    if kind == "json":
        return _from_json(files.parse_json(files.decode_text(content, path), path), path)
    if kind == "pt2":
        from placewright.importers.torch.sources import read_pt2

        return Imported(read_pt2(path, content=content), source=str(path))
    from placewright.importers.onnx.dimensions import read_sizes
    from placewright.importers.onnx.model import read_onnx

    graph = read_onnx(path, dimensions=read_sizes(query, path), content=content)
    return Imported(graph, source=f"{path}?{query}" if query else str(path))


def _kind(content: bytes, path: Path) -> Literal["json", "pt2", "onnx"]:
    start = content[:256].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"{", b"[")):
        return "json"
    if content.startswith(b"PK\x03\x04"):
        return "pt2"
    if not content.strip():
        raise FormatError(f"{path}: the file is empty")
    if path.suffix.lower() == ".onnx" or b"\x00" in content[:4096] or content[0] == 0x08:
        return "onnx"
    raise FormatError(
        f"{path}: not a model placewright reads; give ONNX, an exported .pt2, "
        "a placewright graph (JSON) or a published workload (JSON)"
    )


def _from_json(document: object, path: Path) -> Imported:
    from placewright.importers import workloads

    if workloads.is_workload(document):
        found = workloads.read_workload(document, path)
        return Imported(found.graph, found.cluster, found.options, str(path))
    if isinstance(document, dict) and str(document.get("format", "")).startswith("placewright."):
        return Imported(Graph.from_document(document, path), source=str(path))
    raise FormatError(
        f'{path}: JSON, but neither a placewright graph ("format": "{FORMAT}") '
        "nor a published workload"
    )
