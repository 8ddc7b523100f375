"""The dynamic dimensions of an ONNX model: which there are, what sizes they get, what is assumed.

A dimension is called by the name that the file gives it, or by its place, ``INPUT.AXIS``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.errors import OptionError

if TYPE_CHECKING:
    from onnx import ValueInfoProto

MOST = 2**31 - 1
_DIMENSIONS_SHOWN = 12
_INPUTS_SHOWN = 3
_EXAMPLES = 3


@dataclass(frozen=True)
class Dimension:
    """A dynamic dimension of the inputs: its size, and the (input, axis) that have it.

    `assumed`: nobody gave the size.
    """

    name: str
    size: int
    assumed: bool
    places: tuple[tuple[str, int], ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name, _ in self.places))


def place(tensor: str, axis: int) -> str:
    """What the dimension on an axis of a tensor is called besides its name."""
    return f"{tensor}.{axis}"


def keys(name: str, places: Sequence[tuple[str, int]]) -> list[str]:
    """What a size is given for behind a file: the name, or each place if there is none.

    So it is for a name that would be read as several sizes, or that ends a shell's quotes.

    >>> keys("height", [("x", 2)]), keys("a&b", [("x", 0), ("y", 1)])
    (['height'], ['x.0', 'y.1'])
    """
    can_be_written = bool(name) and name.isprintable() and not {"&", "'"} & set(name)
    return [name] if can_be_written else [place(*each) for each in places]


def dynamic_axes(value: ValueInfoProto) -> Iterator[tuple[int, Any]]:
    """The axes of `value` without a number, as (axis, dimension)."""
    if value.type.tensor_type.HasField("shape"):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value < 0:
                yield axis, dim


# -- what a person gives ---------------------------------------------------------------------------


def read_sizes(query: str, path: str | Path) -> dict[str, int]:
    """``NAME=SIZE&NAME=SIZE`` as a mapping; OptionError names the field at fault.

    >>> read_sizes("height=640&images.0=2", "detector.onnx")
    {'height': 640, 'images.0': 2}
    """
    sizes: dict[str, int] = {}
    for part in query.split("&") if query else ():
        name, equals, text = part.rpartition("=")
        if not (equals and name):
            raise OptionError(
                f"{path}: '{part}' gives no dimension a size; write NAME=SIZE, as in "
                f"{path}?height=640"
            )
        if name in sizes:
            raise OptionError(f"{path}: dimension '{name}' is given twice; give it once")
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MOST))
        sizes[name] = check_size(int(text) if is_number else text, f"dimension '{name}'", path)
    return sizes


def check_size(value: object, what: str, path: str | Path) -> int:
    """`value` if it is a size a dimension can have; else OptionError says what it is of."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST:
        raise OptionError(f"{path}: {what} is {value!r}; it must be a whole number from 1")
    return value


# -- what they become ------------------------------------------------------------------------------


def choose_sizes(
    inputs: Sequence[ValueInfoProto], batch: int | None, given: Mapping[str, int]
) -> tuple[Dimension, ...]:
    """Every dynamic dimension of `inputs` with its size.

    It is the one `given` for its place or its name; else `batch` if it is the batch (see
    `_batch_names`); else 1 is assumed.
    """
    names = {dim.dim_param for value in inputs for _, dim in dynamic_axes(value)}
    batch_names = _batch_names(inputs)
    places: dict[str, list[tuple[str, int]]] = {}
    sizes: dict[str, int | None] = {}
    for value in inputs:
        for axis, dim in dynamic_axes(value):
            name, here = dim.dim_param, place(value.name, axis)
            by_place = not name or (here in given and here not in names)
            is_batch = name in batch_names if name else axis == 0
            key = here if by_place else name
            places.setdefault(key, []).append((value.name, axis))
            sizes[key] = given.get(key, batch if is_batch else None)
    return tuple(
        Dimension(key, size or 1, size is None, tuple(places[key])) for key, size in sizes.items()
    )


def _batch_names(inputs: Sequence[ValueInfoProto]) -> set[str]:
    """Names of the batch dimension: those on axis 0 of an input, or if some of these speak of
    a batch, only they."""
    leading = {
        dim.dim_param
        for value in inputs
        for axis, dim in dynamic_axes(value)
        if axis == 0 and dim.dim_param
    }
    return {name for name in leading if "batch" in name.lower()} or leading


def check_batch(inputs: Sequence[ValueInfoProto], batch: int, path: str | Path) -> None:
    """Refuse a batch that the model, exported for a fixed one, cannot have."""
    shapes = [value.type.tensor_type.shape.dim for value in inputs]
    leading = [shape[0] for shape in shapes if len(shape)]
    if all(dim.HasField("dim_value") and dim.dim_value not in (-1, batch) for dim in leading):
        fixed = f"{leading[0].dim_value}" if leading else "no batch"
        raise OptionError(
            f"{path}: batch {batch} does not fit, the model's inputs are fixed to {fixed}; "
            "export it with a dynamic batch dimension"
        )


# -- sentences -------------------------------------------------------------------------------------


def assumptions(dimensions: Sequence[Dimension], path: str | Path) -> str | None:
    """Which dimensions were taken as 1, and how to give them; None if all were given."""
    assumed = [each for each in dimensions if each.assumed]
    if not assumed:
        return None
    examples = [key for each in assumed[:_EXAMPLES] for key in keys(each.name, each.places)]
    example = "&".join(f"{key}=SIZE" for key in examples)
    return (
        f"dynamic dimensions taken as 1: {listed(map(_described, assumed))}; "
        f"give them, as in '{path}?{example}'"
    )


def unknown(
    name: str, dimensions: Sequence[Dimension], inner: Sequence[str], path: str | Path
) -> OptionError:
    """The error for a name that is no dimension's; `inner` are open ones of other tensors."""
    names = [*(each.name for each in dimensions), *inner]
    close = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    known = [*map(_described, dimensions), *inner]
    has = f"the file has {listed(known)}" if known else "the file has none"
    return OptionError(f"{path}: there is no dynamic dimension '{name}'; {hint}{has}")


def _described(dimension: Dimension) -> str:
    """``height (of images)``; the place of one without a name says it already."""
    if dimension.name in {place(*each) for each in dimension.places}:
        return dimension.name
    return f"{dimension.name} (of {listed(dimension.inputs, _INPUTS_SHOWN)})"


def listed(texts: Iterable[str], most: int = _DIMENSIONS_SHOWN) -> str:
    """Texts in a row; of more than `most`, the first, and how many there are besides."""
    every = list(texts)
    if len(every) <= most:
        return ", ".join(every)
    return f"{', '.join(every[:most])} and {len(every) - most} more"
