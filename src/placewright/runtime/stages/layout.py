"""How a tensor lies in memory on its way to another rank.

What travels is the tensor's memory, densely packed, so that the receiver can rebuild the same
strides: a `view` that the program takes of it must be possible there too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from placewright.errors import InputError
from placewright.runtime.stages.code import Transfer


def transfer_of(value: Any, tensor: str, op: str, source: int, target: int, tag: int) -> Transfer:
    """The transfer of a value like `value` (a fake or real tensor): its shape and strides.

    Strides are kept where the tensor's memory is dense, broadcast dimensions (stride 0) left
    aside; a tensor with gaps, such as a slice, arrives with the same order of dimensions.
    """
    if not isinstance(value, Tensor):
        raise InputError(
            f"'{tensor}' is needed by op '{op}' on another device but is no single tensor; "
            "place both on one device"
        )
    if not all(isinstance(each, int) for each in (*value.shape, *value.stride())):
        raise InputError(
            f"the shape of '{tensor}' depends on the data; export the module with static shapes"
        )
    return Transfer(
        tag=tag,
        tensor=tensor,
        source=source,
        target=target,
        shape=tuple(value.shape),
        stride=_dense_strides(tuple(value.shape), value.stride()),
        dtype=str(value.dtype).removeprefix("torch."),
        element_bytes=value.element_size(),
    )


def _dense_strides(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """Strides without gaps, in the same order of dimensions; 0 stays 0."""
    repeated = [size > 1 and step == 0 for size, step in zip(shape, stride, strict=True)]
    once = tuple(1 if rep else size for rep, size in zip(repeated, shape, strict=True))
    dense = torch.empty_like(torch.empty_strided(once, stride, device="meta")).stride()
    return tuple(0 if rep else step for rep, step in zip(repeated, dense, strict=True))


def pack(transfer: Transfer, value: Tensor) -> Tensor:
    """The bytes to send, flat: those of `value` itself where it has the transfer's layout."""
    shape = transfer.sent_shape
    once = value
    for dimension, (size, full) in enumerate(zip(shape, transfer.shape, strict=True)):
        if size != full:
            once = once.narrow(dimension, 0, 1)
    if once.is_conj() or once.is_neg():  # a promise to conjugate or negate does not travel
        once = once.resolve_conj().resolve_neg()
    if _same_layout(once, transfer):
        flat = once.as_strided((transfer.elements,), (1,), once.storage_offset())
        return flat.view(torch.uint8)
    flat = torch.empty(transfer.elements, dtype=value.dtype, device=value.device)
    flat.as_strided(shape, transfer.stride).copy_(once)
    return flat.view(torch.uint8)


def empty(transfer: Transfer) -> Tensor:
    """Space for the bytes of a transfer."""
    return torch.empty(transfer.bytes, dtype=torch.uint8)


def unpack(transfer: Transfer, flat: Tensor) -> Tensor:
    """The tensor whose bytes these are."""
    return flat.view(getattr(torch, transfer.dtype)).as_strided(transfer.shape, transfer.stride)


def _same_layout(value: Tensor, transfer: Transfer) -> bool:
    return all(
        size == 1 or actual == wanted
        for size, actual, wanted in zip(value.shape, value.stride(), transfer.stride, strict=True)
    )
