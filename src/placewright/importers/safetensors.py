"""Headers of safetensors files: which tensors a checkpoint holds, of what type, shape and size.

A file is eight bytes with the length of a header, the header (JSON), and the tensors' bytes. Only
the header is read, so a checkpoint of any size takes as long as its list of names. Every fault of
a file is one sentence (`FormatError`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from placewright.errors import FormatError
from placewright.formats import files

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000
"""What the format allows."""

ITEM_BITS: Mapping[str, int] = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
_LFS = b"version https://git-lfs"


@dataclass(frozen=True)
class Stored:
    """A tensor of a file: its type as the format writes it, its shape, its bytes.

    They begin at byte `offset` of `file`.
    """

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    file: Path = field(default=Path(), compare=False)
    offset: int = field(default=0, compare=False)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def is_plain(self) -> bool:
        """Whether it has a number of its own for each that it stands for: no packed integers."""
        return self.dtype in ("F64", "F32", "F16", "BF16") or self.dtype.startswith("F8_E")


def read_checkpoint(folder: Path) -> dict[str, Stored] | None:
    """Every tensor of the model in a folder by name; None where there are no safetensors.

    The model is ``model.safetensors``, or the files that ``model.safetensors.index.json`` names.
    """
    index, single = folder / INDEX, folder / SINGLE
    if index.is_file():
        return _read_shards(index)
    if single.is_file():
        return dict(read_tensors(single))
    strays = sorted(each.name for each in folder.glob("*.safetensors"))
    if strays:
        raise FormatError(
            f"{folder}: holds {strays[0]} but neither {SINGLE} nor {INDEX}; add the index, or "
            "give the path of its config.json to plan without the weights"
        )
    return None


def _read_shards(index: Path) -> dict[str, Stored]:
    document = files.read_document(index)
    places = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(places, dict) or not places:
        raise FormatError(f"{index}: has no weight_map of tensors to files; download it again")
    if not all(isinstance(place, str) for place in places.values()):
        raise FormatError(f"{index}: a value of weight_map is no file name; download it again")
    found: dict[str, Stored] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name:
            raise FormatError(f"{index}: '{name}' is no file beside it; give plain file names")
        path = index.parent / name
        if not path.is_file():
            raise FormatError(
                f"{index}: its file '{name}' is missing; download it, or give the path of "
                "config.json to plan without the weights"
            )
        own = dict(read_tensors(path))
        for tensor in own:
            if places.get(tensor) != name:
                raise FormatError(
                    f"{path}: holds '{tensor}', which {INDEX} does not place there; download both "
                    "again"
                )
        found |= own
    missing = next((name for name in places if name not in found), None)
    if missing is not None:
        raise FormatError(
            f"{index.parent / places[missing]}: lacks '{missing}', which {INDEX} places there; "
            "download it again"
        )
    return found


def read_tensors(path: Path) -> Iterator[tuple[str, Stored]]:
    """The tensors of one file, checked against its length."""
    header, data = _header(path)
    start = path.stat().st_size - data
    end = 0
    spans = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        stored, span = _entry(path, name, entry)
        if span[1] > data:
            raise FormatError(
                f"{path}: '{name}' ends at byte {span[1]} of the tensors, but the file has {data} "
                "of them; download it again"
            )
        spans.append((span, name))
        yield name, replace(stored, file=path, offset=start + span[0])
    for (begin, stop), name in sorted(spans):
        if begin != end:
            raise FormatError(
                f"{path}: '{name}' begins at byte {begin} of the tensors, where {end} is expected; "
                "download it again"
            )
        end = stop
    if end != data:
        raise FormatError(
            f"{path}: holds {data} bytes of tensors, but its header speaks of {end}; "
            "download it again"
        )


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, and how many bytes of tensors follow it."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) == 8 and length <= min(size - 8, MAX_HEADER_BYTES):
                text = file.read(length)
            else:
                text = start + file.read(len(_LFS))
                raise FormatError(f"{path}: {_no_header(text, length, size)}")
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from None
    document = files.parse_json(files.decode_text(text, path), path)
    if not isinstance(document, dict):
        raise FormatError(f"{path}: its header is no JSON object; download it again")
    return document, size - 8 - length


def _no_header(start: bytes, length: int, size: int) -> str:
    if start.startswith(_LFS):
        return "is a Git LFS pointer, not the file itself; fetch it with git lfs pull"
    if size < 8:
        return f"is {size} bytes long, too short for a safetensors file; download it again"
    return (
        f"its header is said to be {length} bytes long, but the file has {size}; it is cut off "
        "or no safetensors file: download it again"
    )


def _entry(path: Path, name: str, entry: Any) -> tuple[Stored, tuple[int, int]]:
    """One tensor of a header and where its bytes lie among those of all tensors."""
    entry = entry if isinstance(entry, dict) else {}
    dtype, shape, span = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not (_are_sizes(shape) and _are_sizes(span) and len(span) == 2 and span[0] <= span[1]):
        raise FormatError(
            f"{path}: '{name}' needs a shape and data_offsets of whole numbers; download it again"
        )
    if dtype not in ITEM_BITS:
        raise FormatError(
            f"{path}: '{name}' has type {dtype!r}, which is none of {', '.join(ITEM_BITS)}"
        )
    amount = span[1] - span[0]
    needed = -(-math.prod(shape) * ITEM_BITS[dtype] // 8)
    if amount != needed:
        raise FormatError(
            f"{path}: '{name}' of type {dtype} and shape {shape} takes {needed} bytes, but its "
            f"data_offsets span {amount}; download it again"
        )
    return Stored(dtype, tuple(shape), amount), (span[0], span[1])


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values
    )
