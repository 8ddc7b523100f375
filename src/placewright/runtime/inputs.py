"""Values that a person gives for the inputs of a model: arrays by name, or an ``.npz`` file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from placewright.errors import FormatError, InputError

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
Inputs = Arrays | str | Path

_ADVICE = "save the inputs with numpy.savez"


@dataclass(frozen=True)
class Given:
    """Arrays by the names of inputs, and `where` they are from, as errors say it."""

    arrays: Arrays
    where: str = "inputs"

    def check_names(self, names: Collection[str]) -> None:
        """InputError for an array whose name is none of the model's `names`."""
        if unknown := sorted(set(self.arrays) - set(names)):
            raise InputError(
                f"{self.where}: the model has no input '{unknown[0]}'; it has "
                f"{', '.join(map(repr, names)) or 'none'}"
            )

    def like(self, name: str, wanted: Array, advice: str) -> Array:
        """The array `name`, in one piece; InputError for another type or shape than `wanted`."""
        array = self.arrays[name]
        if (array.dtype, array.shape) != (wanted.dtype, wanted.shape):
            raise InputError(
                f"{self.where}: input '{name}' is {array.dtype}{list(array.shape)}, but the plan "
                f"is for {wanted.dtype}{list(wanted.shape)}; give that, or {advice}"
            )
        return np.ascontiguousarray(array).reshape(array.shape)


def given_inputs(inputs: Inputs | None) -> Given:
    """What a person gave; FormatError for a file that is no ``.npz`` of plain arrays."""
    if inputs is None:
        return Given({})
    if isinstance(inputs, Mapping):
        return Given(inputs)
    path = Path(inputs)
    try:
        return Given(_arrays(path), str(path))
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None
    except (PermissionError, IsADirectoryError) as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror})") from None
    except MemoryError:
        raise FormatError(f"{path}: its arrays do not fit in memory; {_ADVICE}") from None
    # What zipfile and numpy raise of a file that is damaged, encrypted or packed another way.
    except (
        OSError,
        ValueError,
        EOFError,
        KeyError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        why = "it holds Python objects" if "pickle" in str(error) else " ".join(str(error).split())
        raise FormatError(f"{path}: no .npz file of plain arrays ({why}); {_ADVICE}") from None


def _arrays(path: Path) -> Arrays:
    found = np.load(path, allow_pickle=False)
    if isinstance(found, np.ndarray):
        raise FormatError(f"{path}: holds one array; {_ADVICE}")
    with found:
        arrays = {name: found[name] for name in found.files}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise FormatError(f"{path}: '{name}' is no array; {_ADVICE}")
    return arrays
