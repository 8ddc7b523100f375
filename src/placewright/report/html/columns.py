"""Columns of numbers and names as JSON holds them: base64 of little-endian arrays, shared starts.

A page of 50,000 ops has hundreds of thousands of numbers; as text they would be three times as
long, and slow to read. Nothing is rounded: a column has the narrowest type that holds it exactly.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

TYPES = ("u1", "u2", "u4", "i4", "f4", "f8")
"""The types of a column, the narrowest first; `page/data.js` reads them."""


def column(values: ArrayLike) -> dict[str, str]:
    """`{"type", "data"}` of numbers, in the narrowest of `TYPES` that holds each exactly.

    >>> column([1, 2, 255])
    {'type': 'u1', 'data': 'AQL/'}
    """
    array = np.asarray(values).ravel()
    for name in TYPES[:-1]:
        if _holds(name, array):
            return _column(name, array)
    return _column(TYPES[-1], array)


def _holds(name: str, array: np.ndarray[Any, Any]) -> bool:
    kind = np.dtype(name)
    if kind.kind != "f" and len(array):
        limits = np.iinfo(kind)
        if not (limits.min <= array.min() and array.max() <= limits.max):
            return False
    with np.errstate(invalid="ignore", over="ignore"):
        return bool((array.astype(kind) == array).all())


def _column(name: str, array: np.ndarray[Any, Any]) -> dict[str, str]:
    content = array.astype(np.dtype(name).newbyteorder("<")).tobytes()
    return {"type": name, "data": base64.b64encode(content).decode("ascii")}


def names(texts: Sequence[str]) -> dict[str, Any]:
    """`{"shared", "rest"}`: how many characters each has of the one before it, and the others.

    >>> names(["layers.0.mlp", "layers.0.norm"])["rest"]
    ['layers.0.mlp', 'norm']
    """
    shared, rest, before = [], [], ""
    for text in texts:
        length = _shared(before, text)
        shared.append(_units(text[:length]))
        rest.append(text[length:])
        before = text
    return {"shared": column(shared), "rest": rest}


def _shared(one: str, two: str) -> int:
    """How many characters both begin with."""
    pairs = zip(one, two, strict=False)
    return next((k for k, (a, b) in enumerate(pairs) if a != b), min(len(one), len(two)))


def _units(text: str) -> int:
    """The length that JavaScript gives a text, in which a character may count twice."""
    return len(text) + sum(ord(each) > 0xFFFF for each in text)


def table(texts: Iterable[str]) -> dict[str, Any]:
    """`{"names", "index"}` of texts of which many are equal: each once, and which it is."""
    number: dict[str, int] = {}
    index = [number.setdefault(text, len(number)) for text in texts]
    return {"names": names(list(number)), "index": column(index)}
