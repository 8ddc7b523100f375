"""From a source to a graph: one file per kind of source, told apart here.

A source is a file (its kind is told by its content; an ONNX file takes sizes of its dynamic
dimensions, a GGUF file a phase, ``FILE[?NAME=VALUE&…]``), ``zoo:NAME[?key=value&…]``,
``torch:PACKAGE.MODULE:FACTORY`` or ``hf:CONFIG``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from placewright.cluster import Cluster
from placewright.errors import FormatError, InputError, OptionError
from placewright.formats import files
from placewright.formats.graphs import FORMAT
from placewright.graph import Graph
from placewright.importers.kinds import SourceFile, open_source
from placewright.options import check_kind, check_training
from placewright.units import printable


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

    What takes long to import is kept in the user's cache (see `cache.store`).

    >>> load("zoo:gpt2").graph.name
    'gpt2'
    """
    check_kind(source, (str, Path), "source", "a file, or text such as 'zoo:gpt2'")
    check_training(training)
    text = str(source)
    _check_text(text)
    scheme, separator, rest = text.partition(":")
    if separator and scheme == "zoo":
        from placewright.importers import zoo

        return Imported(zoo.build(rest, training=training), source=text)
    if separator and scheme == "torch":
        from placewright.importers.cache.imports import factory_graph

        return Imported(factory_graph(rest, training), source=text)
    if separator and scheme == "hf":
        from placewright.importers.cache.imports import hf_graph

        return Imported(hf_graph(rest, training), source=text)
    if training:
        raise OptionError(
            f"--training makes forward and backward from zoo:, torch: and hf: sources; "
            f"{text} is a file and is taken as it is"
        )
    _refuse_bare_name(text)
    return _load_file(open_source(text))


def _refuse_bare_name(text: str) -> None:
    """FormatError for a model of the zoo or a factory that is named as if it were a file."""
    from placewright.importers import zoo

    name = text.partition("?")[0]
    if Path(name).suffix == ".py":
        raise FormatError(f"{text}: is Python; write torch:{Path(name).stem}:FACTORY")
    is_factory = re.fullmatch(r"\w+(\.\w+)*:\w+", text) is not None
    if (is_factory or name in zoo.names()) and not Path(name).exists():
        scheme = "torch" if is_factory else "zoo"
        raise FormatError(f"{text}: no such file; did you mean {scheme}:{text}?")


def _load_file(file: SourceFile) -> Imported:
    path = file.path
    source = f"{path}?{file.query}" if file.query else str(path)
    if file.kind == "json":
        return _from_json(files.parse_json(files.decode_text(file.content, path), path), path)
    if file.kind == "pt2":
        from placewright.importers.cache.imports import pt2_graph

        return Imported(pt2_graph(path, file.content), source=str(path))
    if file.kind == "gguf":
        from placewright.importers.gguf.model import read_gguf

        return Imported(read_gguf(path, file.query), source=source)
    from placewright.importers.cache.imports import onnx_graph
    from placewright.importers.onnx.dimensions import read_sizes

    graph = onnx_graph(path, read_sizes(file.query, path), file.content)
    return Imported(graph, source=source)


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


def _check_text(source: str) -> None:
    """InputError for a name that no plan could keep: bytes that are no text."""
    try:
        source.encode()
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        why = "this name is not UTF-8; rename the file"
        if encoding != "utf-8":
            why = f"Python takes names for {encoding} here; set PYTHONUTF8=1"
        raise InputError(f"{printable(source)}: {why}") from None
