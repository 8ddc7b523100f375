"""Tensors on their way between devices of one process, of which some are GPUs.

The sender gives the copy to the streams of the GPUs and goes on; the receiver's stream waits for
it, and only a CPU that is to read the tensor waits itself. What a stream waits for was given to
another before, by the order in which the host gave it; so no two streams wait for each other.

    CPU → GPU   into pinned memory, then in the GPU's stream for copies
    GPU → CPU   into pinned memory, in the GPU's stream for copies
    GPU → GPU   in the sender's stream for copies, into memory of the receiver's
    same GPU    as it is: the receiver's stream waits for the sender's

Memory is safe by the rules of torch's allocators: that of a GPU is told of every stream that uses
it beside its own, pinned memory knows of its copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placewright.system.accelerators.cuda import Event
from placewright.system.accelerators.places import CudaPlace

if TYPE_CHECKING:
    import torch

Bytes = Callable[[], "torch.Tensor"]
"""The tensor's bytes, flat, where the tensor is."""


@dataclass(slots=True)
class Handed:
    """A tensor, or its bytes alone if `is_flat`, and the event after which it may be read.

    No event: at once.
    """

    value: torch.Tensor
    ready: Event | None = None
    is_flat: bool = False


def hand(
    value: torch.Tensor, flat: Bytes, source: CudaPlace | None, target: CudaPlace | None
) -> Handed:
    """Start bringing `value` from `source` to `target` (None: a CPU); `flat` gives its bytes.

    Called by the thread that made it, in its place.
    """
    if source is None:
        return Handed(value) if target is None else _to_gpu(flat(), target)
    if target is not None and target.ordinal == source.ordinal:
        return Handed(value, _recorded(source, source.computing))
    return _from_gpu(flat(), source, target)


def taken(handed: Handed, target: CudaPlace | None) -> torch.Tensor:
    """What was handed, for the ops that the thread of `target` (None: a CPU) runs from here on."""
    if handed.ready is None:
        return handed.value
    if target is None:
        handed.ready.synchronize()
    else:
        target.computing.wait_event(handed.ready)
        target.driver.used_on(handed.value, target.computing)
    return handed.value


def brought(pinned: torch.Tensor, target: CudaPlace) -> Handed:
    """Start copying bytes in pinned memory to a GPU; they are not to be written to any more."""
    driver = target.driver
    with driver.on(target.copying):
        there = driver.empty(pinned.numel(), target.ordinal)
        driver.copy(there, pinned)
        return Handed(there, _recorded(target, target.copying), is_flat=True)


def _to_gpu(flat: torch.Tensor, target: CudaPlace) -> Handed:
    with target.driver.on(target.copying):  # else pinning would wake up another GPU
        pinned = target.driver.pinned(flat.shape, flat.dtype)
        pinned.copy_(flat)  # by this thread: what it copies may change when it goes on
    return brought(pinned, target)


def _from_gpu(flat: torch.Tensor, source: CudaPlace, target: CudaPlace | None) -> Handed:
    """By the stream for copies, once the stream that computes has made it."""
    driver = source.driver
    source.copying.wait_event(_recorded(source, source.computing))
    driver.used_on(flat, source.copying)
    if target is None:
        with driver.on(source.copying):
            there = driver.pinned(flat.shape, flat.dtype)
            driver.copy(there, flat)
            return Handed(there, _recorded(source, source.copying), is_flat=True)
    # Memory of the target's stream for copies; that of the source, entered last, is the current
    # one, in which torch copies between GPUs.
    with driver.on(target.copying), driver.on(source.copying):
        there = driver.empty(flat.numel(), target.ordinal)
        driver.copy(there, flat)
        return Handed(there, _recorded(source, source.copying), is_flat=True)


def _recorded(place: CudaPlace, stream: object) -> Event:
    event = place.driver.event()
    event.record(stream)
    return event
