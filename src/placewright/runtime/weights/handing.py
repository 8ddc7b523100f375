"""Handing weights to a rank: what it can load itself as a document, the rest in shared memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from placewright.errors import FormatError
from placewright.runtime.weights.base import Weights
from placewright.runtime.weights.files import FileWeights
from placewright.runtime.weights.joined import JoinedWeights
from placewright.runtime.weights.shared import SharedWeights, share

_JOINED = "joined"


@dataclass
class HandedOver:
    """For one rank: a `document` for `from_document`, and `descriptors` that it must inherit.

    Close it when the rank has started, or leave its ``with``.
    """

    document: dict[str, Any]
    shared: list[SharedWeights] = field(default_factory=list)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """For ``pass_fds`` of `subprocess`."""
        return tuple(each.descriptor for each in self.shared)

    def close(self) -> None:
        for each in self.shared:
            each.close()

    def __enter__(self) -> HandedOver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def hand_over(weights: Weights, names: Collection[str]) -> HandedOver:
    """These weights for a child process of this one, which loads them from files itself.

    What this process alone holds goes through shared memory, and so do random ones: made here one
    by one, the child need not build the module again. ExecutionError where memory is full.
    """
    parts = weights.parts(names) if isinstance(weights, JoinedWeights) else [(list(names), weights)]
    handed = HandedOver({})
    documents = []
    try:
        for asked, part in parts:
            if isinstance(part, FileWeights):
                document = part.to_document(asked)
            else:
                shared = share(part, asked)
                handed.shared.append(shared)
                document = shared.to_document()
            documents.append({"names": sorted(asked), "weights": document})
    except BaseException:
        handed.close()
        raise
    handed.document = {"kind": _JOINED, "parts": documents}
    return handed


def from_document(document: Mapping[str, Any]) -> Weights:
    """The weights that a document tells of, in the process that is to load them."""
    kind = document.get("kind")
    if kind == _JOINED:
        return JoinedWeights(
            [(part["names"], from_document(part["weights"])) for part in document["parts"]]
        )
    if kind == FileWeights.kind:
        return FileWeights.from_document(document)
    if kind == SharedWeights.kind:
        return SharedWeights.from_document(document)
    raise FormatError(f"weights of kind {kind!r} are none that this version knows")
