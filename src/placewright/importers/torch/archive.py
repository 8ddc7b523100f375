"""Reading ``.pt2`` files (`torch.export.save`) without running anything that is in them.

`torch.export.load` on its own is not safe: it unpickles objects and tensor subclasses with
`weights_only=False`, falls back to that for the example inputs, evaluates the text of symbolic
sizes, resolves any name under ``torch.`` as an op, and loads compiled libraries. So the archive
is looked through first, and refused unless

- its tensors are raw bytes and its example inputs load with `weights_only=True`;
- its ops are registered ones (``torch.ops.…``) or operators on sizes;
- its symbolic sizes are arithmetic;
- it holds no compiled library and names no Python module to import.

After that `torch.export.load` reads plain JSON and raw tensors. The file's guards, which are
Python source, are dropped.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import logging
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.errors import FormatError
from placewright.formats import files
from placewright.graph import Graph
from placewright.importers.torch import export as torch_export
from placewright.importers.torch.graph import Shared
from placewright.importers.torch.tracing import explained, import_torch

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_OPS = re.compile(
    r"torch\.ops\.(?!(load_library|loaded_libraries|import_module)\b)[A-Za-z]\w*\.\w+(\.\w+)?"
    r"|(_operator|math)\.[a-z_]+"
    r"|torch\.(_sym_sqrt|sym_[a-z]+)"
)
_ARITHMETIC = {
    *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Mod", "Max", "Min", "Abs"),
    *("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality", "Unequality", "LessThan", "StrictLessThan"),
    *("GreaterThan", "StrictGreaterThan", "And", "Or", "Not", "floor", "ceiling"),
    *("FloorDiv", "ModularIndexing", "Where", "PythonMod", "CleanDiv", "CeilToInt", "FloorToInt"),
    *("CeilDiv", "IntTrueDiv", "FloatTrueDiv", "LShift", "RShift", "TruncToFloat", "TruncToInt"),
    *("IsNonOverlappingAndDenseIndicator", "RoundToInt", "RoundDecimal", "ToFloat", "FloatPow"),
    *("PowByNatural", "Identity"),
}


def read_pt2(
    path: str | Path, *, shared: Shared = "colocate", content: bytes | None = None
) -> Graph:
    """The `Graph` of a saved inference program; its name is the file's. FormatError, GraphError.

    `content` is what the file holds, where it has been read already.
    """
    program = load_pt2(path, content)
    return torch_export.graph_from_program(program, Path(path).stem, shared=shared)


def load_pt2(path: str | Path, content: bytes | None = None) -> ExportedProgram:
    """The program in a ``.pt2`` file, functional; FormatError if it is none, or none to trust."""
    import_torch("reading a .pt2 file")
    import torch

    content = files.read_bytes(path) if content is None else content
    with _explained(path):
        _check_archive(content, path)
        with _quiet(), torch.no_grad():
            program = torch.export.load(io.BytesIO(content))
            program._guards_code = []
            # A program that is functional already keeps its names; another pass would renumber.
            functional: ExportedProgram = (
                program.run_decompositions({}) if program.dialect == "TRAINING" else program
            )
    return functional


def _explained(path: str | Path) -> contextlib.AbstractContextManager[None]:
    """Whatever torch, zip and JSON raise on a broken file, as one FormatError."""
    return explained(
        FormatError,
        f"{path}: not a .pt2 file that this torch reads",
        "save the program again with torch.export.save",
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's log of the error that is about to be raised."""
    loggers = [logging.getLogger(name) for name in ("torch.export", "torch.export.pt2_archive")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


# -- looking an archive through --------------------------------------------------------------


def _check_archive(content: bytes, path: str | Path) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        marker = next((name for name in names if name.endswith("/archive_format")), None)
        if marker is None:
            raise FormatError(
                f"{path}: no .pt2 archive of torch 2.8 or later; "
                "save the program again with torch.export.save"
            )
        root = marker.removesuffix("archive_format")
        if f"{root}models/model.json" not in names:
            raise FormatError(f"{path}: holds no program named 'model'; use torch.export.save")
        for name in names:
            _check_member(archive, name, name.removeprefix(root), path)


def _check_member(archive: zipfile.ZipFile, name: str, place: str, path: str | Path) -> None:
    if place.startswith("data/aotinductor/"):
        raise FormatError(f"{path}: holds a compiled library ({place}); save the program alone")
    if place.startswith("data/sample_inputs/"):
        _check_pickle(archive.read(name), place, path)
    elif place.startswith(("data/weights/", "data/constants/")) and place.endswith("_config.json"):
        check_payloads(json.loads(archive.read(name)), place, path)
    elif place.startswith(("data/weights/", "data/constants/")) and place.endswith(".pt"):
        raise FormatError(f"{path}: {place} is a pickle; save the program again with torch ≥ 2.9")
    elif place.startswith("models/"):
        _check_program(json.loads(archive.read(name)), path)


def _check_pickle(content: bytes, place: str, path: str | Path) -> None:
    import torch

    if not content:
        return
    try:
        torch.load(io.BytesIO(content), weights_only=True)
    except Exception:
        raise FormatError(
            f"{path}: {place} holds Python objects, which are not loaded from files; "
            "export the program with tensors and plain containers as example inputs"
        ) from None


def check_payloads(document: Any, place: str, path: str | Path) -> None:
    """FormatError where a list of an archive's tensors has one that is no raw bytes."""
    for name, payload in document["config"].items():
        stored = str(payload["path_name"])
        if payload["use_pickle"] or not stored.startswith(("weight_", "tensor_")):
            raise FormatError(
                f"{path}: '{name}' in {place} is a pickled object, which is not loaded from "
                "files; export the program with plain tensors"
            )


def _check_program(document: Any, path: str | Path) -> None:
    for size in document.get("range_constraints", {}):
        _check_size(size, path)
    for key, value in _entries(document):
        if key == "expr_str":
            _check_size(value, path)
        elif key == "target" and isinstance(value, str) and "." in value:
            # Targets of parameters have dots too; those of calls start with a module of Python.
            starts = value.startswith(("torch.", "_operator.", "math.", "#"))
            if starts and not _OPS.fullmatch(value):
                raise FormatError(f"{path}: calls '{value}', which is no registered op")
        elif key in ("in_spec", "out_spec") and re.search(r"default_factory|__enum__", str(value)):
            raise FormatError(
                f"{path}: its {key} names a Python module to import; "
                "export the program with tensors and plain containers"
            )


def _entries(document: Any) -> Iterator[tuple[str, Any]]:
    waiting = [document]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield from each.items()
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _check_size(text: Any, path: str | Path) -> None:
    """Arithmetic of known functions on numbers and names, for sympy evaluates it as Python."""
    try:
        tree = ast.parse(str(text).strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        tree = None
    if tree is None or not all(_is_arithmetic(node) for node in ast.walk(tree)):
        raise FormatError(f"{path}: the symbolic size {str(text)[:80]!r} is not plain arithmetic")


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _ARITHMETIC
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.isidentifier() or re.fullmatch(r"[-+.\deE]+", node.value) is not None
    return isinstance(
        node,
        (
            *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.keyword),
            *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare),
            *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
        ),
    )
