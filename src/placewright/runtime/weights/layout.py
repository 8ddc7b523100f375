"""How a tensor lies in memory, and tensors as bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from placewright.errors import InputError


@dataclass(frozen=True)
class Layout:
    """Shape, stride (in elements) and dtype of a tensor.

    >>> Layout((2, 3), (1, 2), "bfloat16").nbytes
    12
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        return cls(
            tuple(map(int, tensor.shape)),
            tuple(map(int, tensor.stride())),
            str(tensor.dtype).removeprefix("torch."),
        )

    @classmethod
    def contiguous(cls, shape: tuple[int, ...], dtype: str) -> Layout:
        stride = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
        return cls(shape, tuple(stride), dtype)

    @property
    def torch_dtype(self) -> torch.dtype:
        found = getattr(torch, self.dtype, None)
        if not isinstance(found, torch.dtype):
            raise InputError(f"this torch ({torch.__version__}) has no dtype '{self.dtype}'")
        return found

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """Elements from the first to the last, those between that are not its own included."""
        if not self.numbers:
            return 0
        steps = zip(self.shape, self.stride, strict=True)
        return 1 + sum((size - 1) * stride for size, stride in steps)

    @property
    def nbytes(self) -> int:
        """Bytes of memory it takes."""
        return self.span * self.torch_dtype.itemsize

    @property
    def dense(self) -> Layout:
        """The same if each element has memory of its own, with none between; else contiguous."""
        is_dense = self.span == self.numbers
        return self if is_dense else Layout.contiguous(self.shape, self.dtype)

    def empty(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.torch_dtype)

    def view(self, data: torch.Tensor) -> torch.Tensor:
        """The tensor whose memory is the first `nbytes` of `data` (uint8)."""
        elements = data[: self.nbytes].view(self.torch_dtype)
        return torch.as_strided(elements, self.shape, self.stride)

    def to_document(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "stride": list(self.stride), "dtype": self.dtype}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Layout:
        return cls(tuple(document["shape"]), tuple(document["stride"]), document["dtype"])


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """Without autograd and on the CPU; a copy only if other memory lies between its elements."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    layout = Layout.of(tensor)
    return tensor.clone() if layout.span > layout.numbers else tensor


def raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of a compact tensor, in the order of memory; not a copy."""
    elements = torch.as_strided(tensor, (Layout.of(tensor).span,), (1,))
    return elements.view(torch.uint8).numpy().data
