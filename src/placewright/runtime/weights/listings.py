"""Which tensors a file holds and where their bytes are, without reading them.

A directory or a file of safetensors, what `torch.save` wrote of a state dict, and a ``.pt2``
archive. Nothing in a file is run: the tensors' list is JSON, or read by torch's loader of weights
alone.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from placewright.errors import FormatError, PlacewrightError, reason
from placewright.importers.safetensors import (
    INDEX,
    SINGLE,
    Stored,
    read_checkpoint,
    read_tensors,
)
from placewright.importers.torch.archive import check_payloads
from placewright.runtime.weights.files import Piece
from placewright.runtime.weights.layout import Layout

Listing = dict[str, Piece]

_SAFETENSORS_DTYPES = {
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "BF16": "bfloat16",
    "BOOL": "bool",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}
_LOCAL_HEADER_BYTES = 30


def listing_of(path: Path) -> Listing:
    """The tensors of a file, or of a directory with safetensors, by their names there.

    FormatError where it holds none that can be read.
    """
    if path.is_dir():
        found = read_checkpoint(path)
        if found is None:
            raise FormatError(
                f"{path}: holds neither {SINGLE} nor {INDEX}; give a directory with safetensors, "
                "or a file of weights"
            )
        return _of_safetensors(found)
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from None
    if path.suffix == ".safetensors" or not start.startswith(b"PK"):
        if path.suffix in (".pt", ".pth", ".bin", ".pt2"):
            raise FormatError(
                f"{path}: is no archive as torch.save and torch.export.save write them; save "
                "the weights again with this torch"
            )
        return _of_safetensors(dict(read_tensors(path)))
    return _of_archive(path) if _is_exported(path) else _of_state_dict(path)


def _of_safetensors(tensors: Mapping[str, Stored]) -> Listing:
    return {name: _piece(name, stored) for name, stored in tensors.items()}


def _piece(name: str, stored: Stored) -> Piece:
    # Types that torch has none for are refused when a weight is to be made of them.
    dtype = _SAFETENSORS_DTYPES.get(stored.dtype, stored.dtype)
    layout = Layout.contiguous(stored.shape, dtype)
    return Piece(str(stored.file.resolve()), stored.offset, layout)


# -- state dicts -----------------------------------------------------------------------------


def _of_state_dict(path: Path) -> Listing:
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode():  # which reads the names and shapes only
            content = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise FormatError(
            f"{path}: torch does not load it as weights alone ({reason(error)}); save the "
            "module's state_dict()"
        ) from None
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping):
        raise FormatError(
            f"{path}: holds a {type(content).__name__}, not a state dict; save the module's "
            "state_dict()"
        )
    tensors = {name: each for name, each in content.items() if isinstance(each, torch.Tensor)}
    if not tensors or not all(isinstance(name, str) for name in tensors):
        raise FormatError(f"{path}: holds no tensors by name; save the module's state_dict()")
    return {name: _saved(path, name, tensor) for name, tensor in tensors.items()}


def _saved(path: Path, name: str, tensor: torch.Tensor) -> Piece:
    start = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
    if tensor.layout != torch.strided or not isinstance(start, int):
        raise FormatError(
            f"{path}: where '{name}' lies in it cannot be told; save the weights as safetensors"
        )
    offset = start + int(tensor.storage_offset()) * tensor.element_size()
    return Piece(str(path.resolve()), offset, Layout.of(tensor))


# -- exported programs -----------------------------------------------------------------------


def _is_exported(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/archive_format") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile) as error:
        raise FormatError(f"{path}: is a broken archive ({reason(error)}); copy it again") from None


def _of_archive(path: Path) -> Listing:
    found: Listing = {}
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            for member in archive.namelist():
                place = member.partition("/")[2]
                if place.startswith(("data/weights/", "data/constants/")) and place.endswith(
                    "_config.json"
                ):
                    document = json.loads(archive.read(member))
                    check_payloads(document, place, path)
                    folder = member.rpartition("/")[0]
                    for name, payload in document["config"].items():
                        info = archive.getinfo(f"{folder}/{payload['path_name']}")
                        found[name] = _member(path, name, payload, (info, _begin(file, info)))
    except PlacewrightError:
        raise
    except Exception as error:
        raise FormatError(
            f"{path}: its list of weights cannot be read ({type(error).__name__}: "
            f"{reason(error)}); save the program again with torch.export.save"
        ) from None
    return found


def _begin(file: Any, info: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin: behind its header, name and extra field."""
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER_BYTES)
    lengths = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    return info.header_offset + _LOCAL_HEADER_BYTES + sum(lengths)


def _member(
    path: Path, name: str, payload: Mapping[str, Any], member: tuple[zipfile.ZipInfo, int]
) -> Piece:
    from torch._export.serde.serialize import _SERIALIZE_TO_TORCH_DTYPE

    info, begin = member
    meta = payload["tensor_meta"]
    shape, stride = (
        tuple(int(each["as_int"]) for each in meta[key]) for key in ("sizes", "strides")
    )
    dtype = str(_SERIALIZE_TO_TORCH_DTYPE[meta["dtype"]]).removeprefix("torch.")
    layout = Layout(shape, stride, dtype)
    skipped = int(meta["storage_offset"]["as_int"]) * layout.torch_dtype.itemsize
    if info.compress_type != zipfile.ZIP_STORED or skipped + layout.nbytes > info.file_size:
        raise FormatError(
            f"{path}: '{name}' is not there as plain bytes; save the program again with "
            "torch.export.save"
        )
    return Piece(str(path.resolve()), begin + skipped, layout)
