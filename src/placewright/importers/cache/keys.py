"""What a kept import is found by: everything that the graph of a source depends on.

None stands for a source that nothing can be said of, which is imported each time. Versions are
those of installed packages; a package that is installed to be edited has none.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from placewright.errors import PlacewrightError
from placewright.formats import files
from placewright.importers.cache.store import Key
from placewright.version import __version__

LEAST_ONNX_BYTES = 256 * 2**10
"""A smaller ONNX file is read as quickly as a kept import."""

_LIBRARY_VARIABLES = ("TORCH", "PYTORCH", "TRANSFORMERS", "HF_", "USE_")
_SET_BY_TORCH = {"TORCHINDUCTOR_CACHE_DIR"}
_SHELL_VARIABLES = {"_", "COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "TERM", "WINDOWID"}
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])")  # a key and the length of its value


def hf_key(config: str, training: bool, cache_tokens: int | None) -> Key | None:
    """Of ``hf:CONFIG``: the configuration's bytes, the headers of its weights, the libraries."""
    from placewright.importers.torch.configuration import configuration_file
    from placewright.importers.torch.sources import weights_folder

    try:
        path = configuration_file(config.partition("?")[0])
        weights = None if training else _weights(weights_folder(config))
        content = None if path is None else _hash(files.read_bytes(path))
    except PlacewrightError:  # importing it says so again
        return None
    return _key(
        ("torch", "transformers", "huggingface_hub"),
        source=f"hf:{config}",
        training=training,
        cache_tokens=cache_tokens,
        config=content,
        weights=weights,
        environment=_environment(lambda name: name.startswith(_LIBRARY_VARIABLES)),
    )


def factory_key(spec: str, training: bool) -> Key | None:
    """Of ``torch:PACKAGE.MODULE:FACTORY``: all that is known before its code runs."""
    places = [str(Path.cwd()), *sys.path[1:]]
    return _key(
        ("torch",),
        source=f"torch:{spec}",
        training=training,
        places=places,
        packages=_hash("\n".join(_installed_packages(places)).encode()),
        environment=_environment(lambda name: name not in _SHELL_VARIABLES),
    )


def pt2_key(path: Path, content: bytes) -> Key | None:
    """Of a ``.pt2`` file: its content."""
    return _key(("torch",), source=str(path), content=_hash(content))


def onnx_key(path: Path, sizes: Mapping[str, int], content: bytes) -> Key | None:
    """Of an ONNX file: its content, the sizes given, and the lengths of the files it refers to."""
    if len(content) < LEAST_ONNX_BYTES:
        return None
    referred = _external_files(path, content)
    if referred is None:
        return None
    return _key(
        ("onnx",),
        ("onnxruntime", "onnxruntime-gpu"),
        source=str(path),
        sizes=dict(sizes),
        content=_hash(content),
        external=referred,
    )


def _key(needed: Iterable[str], others: Iterable[str] = (), /, **facts: Any) -> Key | None:
    """`facts` with the versions of packages; None if a needed one is absent, or one is edited."""
    versions = {name: _version(name) for name in (*needed, *others)}
    if any(not versions[name] for name in needed) or None in versions.values():
        return None
    return {
        "placewright": f"{__version__} {_import_code()}",
        "python": sys.version,
        "versions": versions,
        **facts,
    }


def _version(name: str) -> str | None:
    """``""`` where the package is not installed, None where it can change without a version."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return ""
    is_edited = '"editable": true' in (found.read_text("direct_url.json") or "")
    return None if is_edited else found.version


@cache
def _import_code() -> str:
    """Changes with the source text of what makes graphs."""
    package = Path(__file__).parents[2]
    found = [package / "graph.py", *sorted((package / "importers").rglob("*.py"))]
    return _hash(b"\0".join(each.read_bytes() for each in found))


def _environment(counts: Callable[[str], bool]) -> str:
    chosen = sorted(
        f"{name}={value}"
        for name, value in os.environ.items()
        if counts(name) and name not in _SET_BY_TORCH
    )
    return _hash("\0".join(chosen).encode("utf-8", "surrogateescape"))


def _installed_packages(places: Iterable[str]) -> list[str]:
    """Names and versions of everything installed, as their folders bear them."""
    found = []
    for place in map(Path, places):  # "", where a shell of Python looks first, is the folder here
        if place.is_dir():
            names = os.listdir(place)  # noqa: PTH208  (names are all that is needed)
            found += [name for name in names if name.endswith((".dist-info", ".egg-info"))]
    return sorted(found)


def _weights(folder: Path | None) -> str | None:
    """What the headers of the safetensors in a folder say; None without any."""
    from placewright.importers.safetensors import read_checkpoint

    tensors = None if folder is None else read_checkpoint(folder)
    if tensors is None:
        return None
    rows = [
        f"{name} {each.dtype} {each.shape} {each.bytes} {each.file} {each.offset}"
        for name, each in sorted(tensors.items())
    ]
    return _hash("\n".join(rows).encode())


def _external_files(path: Path, content: bytes) -> dict[str, int] | None:
    """Name and length of each file with weights of an ONNX file; None if they cannot be told.

    Where the word that begins a reference is found elsewhere too, nothing can.
    """
    places = [
        content[match.end() : match.end() + match[1][0]] for match in _LOCATION.finditer(content)
    ]
    if len(places) != content.count(b"location"):
        return None
    lengths = {}
    for name in {os.fsdecode(place) for place in places}:
        try:
            lengths[ascii(name)] = (path.parent / name).stat().st_size
        except (OSError, ValueError):
            return None
    return lengths


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
