"""Tensors between processes of one machine, through memory that both of them map (Linux).

gloo sends through the kernel: both ends copy there, by threads that want the very cores that
compute. On two cores of an EPYC a transfer of 512 KiB keeps each of the two busy for 0.13 to 0.15
ms, in which the plan has it compute. Here the sender copies a tensor once into shared memory, and
the receiver once out of it, which is 0.06 ms at each end and nothing between them.

A *segment* of shared memory is one direction between two ranks, with an eventfd that counts the
tensors left there. Both ends go through the tensors between them in the same order (a stage sends
where the order of the whole program has the producer, and the other posts its receive there), so
each finds out for itself where a tensor lies, and the k-th that is counted is the k-th that was
posted. Every tensor of a call has a place of its own, so that a sender never waits; calls are
parted by barriers, after which places are used again. What has no room in a segment goes over gloo.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from placewright.cluster import Transport

if TYPE_CHECKING:
    from placewright.runtime.stages.cutting import Stage

MOST_BYTES = 1 << 28  # of a segment
ALIGNMENT = 64  # bytes at whose multiples tensors begin


@dataclass(frozen=True)
class Segment:
    """From rank `source` to `target`: descriptors of `size` bytes of memory, and of the count."""

    source: int
    target: int
    size: int
    memory: int
    count: int

    @property
    def descriptors(self) -> tuple[int, int]:
        """What both ranks have to inherit."""
        return self.memory, self.count


def room(size: int) -> int:
    """Bytes that a tensor of `size` takes of a segment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def are_there() -> bool:
    """Whether this system has what segments are made of."""
    return hasattr(os, "memfd_create") and hasattr(os, "eventfd")


def transport() -> Transport:
    """How processes of this machine send tensors to each other."""
    return "shared" if are_there() else "gloo"


def sizes_of(
    cuts: Iterable[Sequence[Stage]], gpus: Sequence[int | None] = ()
) -> dict[tuple[int, int], int]:
    """Bytes that each rank sends to each other in a call, at most; those of GPUs left out."""
    most: dict[tuple[int, int], int] = {}
    for stages in cuts:
        sent: defaultdict[tuple[int, int], int] = defaultdict(int)
        for transfer in (transfer for stage in stages for transfer in stage.sends):
            pair = transfer.source, transfer.target
            if not gpus or all(gpus[rank] is None for rank in pair):
                sent[pair] += room(transfer.bytes)
        for pair, size in sent.items():
            most[pair] = max(most.get(pair, 0), size)
    return most


def built(sizes: dict[tuple[int, int], int], stack: ExitStack) -> list[Segment]:
    """A segment for each pair of ranks, open until `stack` ends; none where there are none here."""
    if not are_there():
        return []
    segments = []
    for (source, target), size in sizes.items():
        if size:
            segment = Segment(
                source,
                target,
                min(size, MOST_BYTES),
                os.memfd_create("placewright-segment"),
                os.eventfd(0, os.EFD_CLOEXEC),
            )
            for descriptor in segment.descriptors:
                stack.callback(os.close, descriptor)
            os.ftruncate(segment.memory, segment.size)
            segments.append(segment)
    return segments


def inherited(segments: Iterable[Segment], rank: int) -> list[int]:
    """The descriptors that `rank` has to inherit."""
    return [each for segment in segments_of(segments, rank) for each in segment.descriptors]


def documents(segments: Iterable[Segment], rank: int) -> list[dict[str, int]]:
    """Those that begin or end at `rank`, for its settings."""
    return [asdict(segment) for segment in segments_of(segments, rank)]


def read_documents(given: Iterable[dict[str, int]]) -> list[Segment]:
    """What `documents` wrote."""
    return [Segment(**each) for each in given]


def segments_of(segments: Iterable[Segment], rank: int) -> list[Segment]:
    """Those that begin or end at `rank`."""
    return [segment for segment in segments if rank in (segment.source, segment.target)]
