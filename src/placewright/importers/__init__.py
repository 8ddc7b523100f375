"""From a source to a graph: one file per kind of source, told apart here.

A source is a file (its kind is told by its content), ``zoo:NAME[?key=value&…]``,
``torch:PACKAGE.MODULE:FACTORY`` or ``hf:CONFIG``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from placewright import files
from placewright.cluster import Cluster
from placewright.errors import FormatError, OptionError
from placewright.graph import FORMAT, Graph


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
        from placewright.importers.torch_sources import from_factory

        return Imported(from_factory(rest, training=training), source=text)
    if separator and scheme == "hf":
        from placewright.importers.torch_sources import from_hf

        return Imported(from_hf(rest, training=training), source=text)
    if training:
        raise OptionError(
            f"--training makes forward and backward from zoo:, torch: and hf: sources; "
            f"{text} is a file and is taken as it is"
        )
    return _load_file(Path(text))


def _load_file(path: Path) -> Imported:
    content = files.read_bytes(path)
    start = content[:256].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"{", b"[")):
        return _from_json(files.parse_json(files.decode_text(content, path), path), path)
    if content.startswith(b"PK\x03\x04"):
        from placewright.importers.torch_sources import read_pt2

        return Imported(read_pt2(path), source=str(path))
    if not content.strip():
        raise FormatError(f"{path}: the file is empty")
    if path.suffix.lower() == ".onnx" or b"\x00" in content[:4096] or content[0] == 0x08:
        from placewright.importers.onnx_model import read_onnx

        return Imported(read_onnx(path), source=str(path))
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
