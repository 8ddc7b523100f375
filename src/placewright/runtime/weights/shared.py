"""Weights in anonymous shared memory, which a child process inherits as a file descriptor.

The memory has no name, so nothing is left of it when the processes have ended, however they end.
A process maps it privately: reading copies nothing, and what it writes is its own.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

import torch

from placewright.errors import ExecutionError, reason
from placewright.runtime.weights.base import Weights, bytes_of, check_names
from placewright.runtime.weights.layout import Layout, compact, raw
from placewright.system.memory import ShortageError
from placewright.units import format_bytes

ALIGNMENT = 64
"""Tensors begin at multiples of so many bytes, as torch's own do."""


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in the memory, in bytes from its start."""

    offset: int
    layout: Layout


class SharedWeights:
    """Tensors at their `places` in an open `file` that is memory. Close it, or leave its `with`."""

    kind = "shared"
    origin = "shared memory"

    def __init__(self, file: BinaryIO, places: Mapping[str, Place]) -> None:
        self._file = file
        self._places = dict(places)

    @property
    def descriptor(self) -> int:
        """What a child has to inherit, under the same number (``pass_fds`` of `subprocess`)."""
        return self._file.fileno()

    def layouts(self, names: Collection[str]) -> dict[str, Layout]:
        check_names(names, self._places, self.origin)
        return {name: self._places[name].layout for name in names}

    def load(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        check_names(names, self._places, self.origin)
        return {name: self._tensor(self._places[name]) for name in names}

    def _tensor(self, place: Place) -> torch.Tensor:
        if not place.layout.numbers:
            return place.layout.empty()
        return place.layout.view(self._memory[place.offset :])

    @cached_property
    def _memory(self) -> torch.Tensor:
        size = max(place.offset + place.layout.nbytes for place in self._places.values())
        try:
            mapped = mmap.mmap(self.descriptor, size, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == errno.ENOMEM:
                raise ShortageError(size) from error
            raise ExecutionError(
                f"shared memory of {format_bytes(size)} cannot be mapped ({reason(error)}); "
                "start the run again, on more devices if memory is short"
            ) from error
        return torch.frombuffer(mapped, dtype=torch.uint8)

    def to_document(self) -> dict[str, Any]:
        """What a child that has inherited the descriptor needs, as plain JSON values."""
        return {
            "kind": self.kind,
            "descriptor": self.descriptor,
            "tensors": {
                name: {"offset": place.offset, **place.layout.to_document()}
                for name, place in self._places.items()
            },
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> SharedWeights:
        """In a process that has the descriptor, which stays open until that ends."""
        try:
            file = os.fdopen(os.dup(document["descriptor"]), "rb")
        except OSError as error:
            raise ExecutionError(
                f"descriptor {document['descriptor']} of shared weights was not inherited "
                f"({reason(error)}); pass it on when the process is started"
            ) from error
        places = {
            name: Place(entry["offset"], Layout.from_document(entry))
            for name, entry in document["tensors"].items()
        }
        return cls(file, places)

    def close(self) -> None:
        """Let go of the memory; tensors that were loaded stay."""
        self.__dict__.pop("_memory", None)
        self._file.close()

    def __enter__(self) -> SharedWeights:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def share(weights: Weights, names: Collection[str]) -> SharedWeights:
    """Load these one after the other into shared memory, so that no two are held beside it.

    ExecutionError where memory is full.
    """
    file = _anonymous_file()
    writer = _Writer(file.fileno())
    try:
        for name in sorted(names):
            writer.add(name, weights)
        writer.finish()
    except OSError as error:
        file.close()
        raise ExecutionError(
            f"{format_bytes(bytes_of(weights, names))} of weights for a rank do not fit into "
            f"shared memory ({error.strerror or error}); free memory, or use more devices"
        ) from error
    except BaseException:
        file.close()
        raise
    return SharedWeights(file, writer.places)


class _Writer:
    """Writes tensors behind one another; one that is there already under another name, once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = 0
        self._alive: WeakValueDictionary[tuple[int, Layout], torch.Tensor] = WeakValueDictionary()
        self._written: dict[tuple[int, Layout], int] = {}
        self.places: dict[str, Place] = {}

    def add(self, name: str, weights: Weights) -> None:
        loaded = weights.load([name])[name]
        memory = (loaded.data_ptr(), Layout.of(loaded))
        if memory in self._alive:  # else another tensor may have had this memory before
            self.places[name] = Place(self._written[memory], memory[1])
            return
        tensor = compact(loaded)
        self._end = -(-self._end // ALIGNMENT) * ALIGNMENT
        self.places[name] = Place(self._end, Layout.of(tensor))
        if tensor.data_ptr() == loaded.data_ptr():  # and no copy of it
            self._alive[memory], self._written[memory] = loaded, self._end
        data = raw(tensor)
        while data:
            written = os.pwrite(self._descriptor, data, self._end)
            self._end, data = self._end + written, data[written:]

    def finish(self) -> None:
        os.ftruncate(self._descriptor, self._end)


def _anonymous_file() -> BinaryIO:
    """A file without a name: in memory on Linux, elsewhere among the temporary files."""
    if not hasattr(os, "memfd_create"):
        return tempfile.TemporaryFile(buffering=0, prefix="placewright-")
    try:
        return os.fdopen(os.memfd_create("placewright-weights"), "r+b", buffering=0)
    except OSError as error:
        raise ExecutionError(
            f"no shared memory can be made ({reason(error)}); raise the limit of open files"
        ) from error
