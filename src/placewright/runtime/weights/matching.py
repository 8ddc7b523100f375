"""Which tensors of files make which weights of a program.

By their names; for a Transformers model by Transformers' own renamings and converters, of which
stacking and joining are done. What would have to be split, permuted or unpacked is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

import torch

from placewright.errors import FormatError
from placewright.importers.torch.checkpoint import Owned, Owners
from placewright.runtime.weights.files import Assembly, Piece, Range
from placewright.runtime.weights.layout import Layout
from placewright.runtime.weights.listings import Listing
from placewright.units import parse_whole

Sources = list[tuple[str, Owned]]
"""Tensors of the files that belong to a weight, and how."""


def match(
    listing: Listing,
    wanted: Mapping[str, Layout],
    module: torch.nn.Module | None,
    origin: str,
) -> dict[str, Assembly]:
    """Of the `wanted` weights those that the files hold, each with its pieces.

    Tied weights are there under one of their names. FormatError for a weight that is there in
    another shape, or in a form that is not read.
    """
    sources = _sources(listing, module)
    same = _aliases(module)
    found = {}
    for name, layout in wanted.items():
        held = next((each for each in same.get(name, [name]) if each in sources), None)
        if held is not None:
            pieces = _pieces(name, sources[held], listing, layout, origin)
            _check(name, pieces, layout, origin)
            found[name] = Assembly(layout.dense, tuple(pieces))
    return found


def transformers_model(module: torch.nn.Module) -> tuple[Any, str] | None:
    """The Transformers model that a module is or wraps, and what its names begin with in it."""
    for path, child in module.named_modules():
        if is_transformers(child):
            return child, f"{path}." if path else ""
    return None


def is_transformers(module: torch.nn.Module) -> bool:
    return any(
        each.__name__ == "PreTrainedModel" and each.__module__.startswith("transformers.")
        for each in type(module).__mro__
    )


def may_be_missing(module: torch.nn.Module, name: str) -> bool:
    """Whether Transformers makes a weight itself where a checkpoint lacks it."""
    found = transformers_model(module)
    patterns = getattr(found[0], "_keys_to_ignore_on_load_missing", None) or () if found else ()
    return any(re.search(pattern, name) for pattern in patterns)


def _sources(listing: Listing, module: torch.nn.Module | None) -> dict[str, Sources]:
    """For each weight of the module the tensors of the files, in the order of their numbers."""
    found = transformers_model(module) if module is not None else None
    # What was saved from the module itself has its names already.
    if (
        found is None
        or module is None
        or listing.keys() <= module.state_dict(keep_vars=True).keys()
    ):
        return {name: [(name, Owned((name,), "itself"))] for name in listing}
    model, prefix = found
    owners = Owners(model, model.state_dict(keep_vars=True))
    sources: dict[str, Sources] = {}
    for key in sorted(listing, key=_by_numbers):
        owned = owners.of(key)
        for name in owned.names:
            sources.setdefault(prefix + name, []).append((key, owned))
    return sources


def _by_numbers(name: str) -> list[tuple[int, str]]:
    numbers = ((parse_whole(part), part) for part in name.split("."))
    return [(-1, part) if number is None else (number, "") for number, part in numbers]


def _aliases(module: torch.nn.Module | None) -> dict[str, list[str]]:
    """All names of the tensor that has a name, in the order of the module."""
    if module is None:
        return {}
    groups: dict[int, list[str]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        groups.setdefault(id(tensor), []).append(name)
    return {name: names for names in groups.values() for name in names}


def _pieces(
    name: str, sources: Sources, listing: Listing, layout: Layout, origin: str
) -> list[Piece]:
    for key, owned in sources:
        if owned.how == "about":
            raise FormatError(
                f"{origin}: '{name}' is not there as plain numbers ('{key}' belongs to it), and "
                "packed or scaled ones are not unpacked; give files that are not quantised"
            )
    parts = [(key, owned) for key, owned in sources if owned.how == "part"]
    if parts:
        return _joined(name, parts, listing, layout, origin)
    if len(sources) > 1:
        keys = " and ".join(f"'{key}'" for key, _ in sources)
        raise FormatError(f"{origin}: {keys} are both '{name}'; leave one of them out")
    return [listing[sources[0][0]]]


def _joined(
    name: str, parts: Sources, listing: Listing, layout: Layout, origin: str
) -> list[Piece]:
    """Pieces side by side, as the converter stacks them (experts) and joins (gate and up)."""
    converter = parts[0][1].converter
    operations = [type(each).__name__ for each in converter.operations]
    if len(parts[0][1].names) > 1 or operations not in (
        ["MergeModulelist"],
        ["Concatenate"],
        ["MergeModulelist", "Concatenate"],
    ):
        raise FormatError(
            f"{origin}: '{name}' is made of '{parts[0][0]}' there by {' and '.join(operations)}, "
            "which is not done here; give a file of the state_dict() that Transformers loads"
        )
    stacked = converter.operations[0].dim if "MergeModulelist" in operations else None
    joined = converter.operations[-1].dim if "Concatenate" in operations else None
    pieces, start = [], 0
    for pattern in converter.source_patterns:
        keys = [key for key, owned in parts if owned.pattern == pattern]
        width = 0
        for number, key in enumerate(keys):
            piece = listing[key]
            ranges: list[Range] = [] if stacked is None else [(stacked, number, 1)]
            if joined is not None:
                start += width if stacked is None else 0
                width = _size(piece, joined, stacked)
                ranges.append((joined, start, width))
            pieces.append(Piece(piece.file, piece.offset, piece.layout, tuple(ranges)))
        start += width
    return pieces


def _size(piece: Piece, dimension: int, stacked: int | None) -> int:
    """The size in a dimension of the weight, which has one more where pieces are stacked."""
    place = dimension if stacked is None or dimension < stacked else dimension - 1
    shape = piece.layout.shape
    return shape[place] if place < len(shape) else 0


def _check(name: str, pieces: Collection[Piece], layout: Layout, origin: str) -> None:
    """FormatError where the pieces do not fill the weight, or are of another kind of number."""

    def refuse(what: str, other: object) -> NoReturn:
        raise FormatError(
            f"{origin}: '{name}' is {what} there, but {other} in the program; give the files that "
            "belong to this source"
        )

    numbers = sum(piece.layout.numbers for piece in pieces)
    if numbers != layout.numbers:
        refuse(f"{numbers} numbers", layout.numbers)
    for piece in pieces:
        region = piece.region(layout.shape)
        fits = all(
            dimension < len(layout.shape) and start + count <= layout.shape[dimension]
            for dimension, start, count in piece.ranges
        )
        if piece.ranges:
            fits = fits and math.prod(region) == piece.layout.numbers
        else:
            fits = region == piece.layout.shape
        if not fits:
            refuse(f"of shape {list(piece.layout.shape)}", f"{list(layout.shape)}")
        if _kind(piece.layout) != _kind(layout):
            refuse(f"of type {piece.layout.dtype}", layout.dtype)


def _kind(layout: Layout) -> str:
    """Between dtypes of one kind values are converted; empty for a dtype that torch has not."""
    dtype = getattr(torch, layout.dtype, None)
    if not isinstance(dtype, torch.dtype):
        return ""
    if dtype.is_complex:
        return "complex"
    return "float" if dtype.is_floating_point else "bool" if dtype == torch.bool else "integer"
