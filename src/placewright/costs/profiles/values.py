"""Tensors for a program whose weights or inputs have shapes only.

Values hardly change how long a call takes, but three things do: an index must be in its range, a
float must not become infinite or a subnormal number on its way, and a mixture of experts sends
equal tokens to the same expert. So floats are small random numbers around zero (vectors, which
normalise, are ones), and indices into an embedding are random rows of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

SCALE = 0.02  # of weights, as Transformers draws them


def made_up(node: Node, generator: torch.Generator) -> Any:
    """A value for a placeholder, or for any input of a call, of the shape its metadata tells."""
    return _filled(node.meta.get("val"), _rows(node), generator)


def _rows(node: Node) -> int:
    """How many rows the smallest table has that `node` is an index of; 1 if of none."""
    tables = []
    for user in node.users:
        name = getattr(getattr(user.target, "_schema", None), "name", "")
        if name == "aten::embedding" and len(user.args) > 1 and user.args[1] is node:
            table = user.args[0]
            tables.append(int(table.meta["val"].shape[0]))  # type: ignore[union-attr]
    return min(tables, default=1)


def _filled(value: Any, rows: int, generator: torch.Generator) -> Any:
    import torch

    if isinstance(value, (list, tuple)):
        return type(value)(_filled(each, rows, generator) for each in value)
    if not isinstance(value, torch.Tensor):
        node = getattr(value, "node", None)
        return value if node is None else node.hint
    shape = [int(size) for size in value.shape]
    strides = [int(stride) for stride in value.stride()]
    tensor = torch.empty_strided(shape, strides, dtype=value.dtype)
    flat = tensor.as_strided((_span(shape, strides),), (1,)) if tensor.numel() else tensor
    if value.dtype == torch.bool:
        flat.fill_(True)
    elif not (value.dtype.is_floating_point or value.dtype.is_complex):
        flat.random_(0, max(rows, 1), generator=generator)
    elif tensor.dim() < 2:
        flat.fill_(1.0)
    elif value.dtype.itemsize < 2:
        flat.view(torch.uint8).fill_(0x30)  # a small number in every format of a byte
    else:
        flat.normal_(0.0, SCALE, generator=generator)
    return tensor


def _span(shape: list[int], strides: list[int]) -> int:
    """Elements from the first to the last of a tensor, gaps included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
