"""Writes in place, which a functional program says as copies: a KV cache, a slice assigned to.

Exporting turns `x[a:b] = y` into a copy of a slice that is put into a copy of all of `x`, and
`x.index_copy_(…)` into a copy with other rows. The model itself writes a few bytes. Export notes of
every call what it comes from; of calls of a backward pass it does not, where the copy of a view
that is put back is known by its form.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from placewright.importers.torch.costs import bytes_of_inputs, is_view, op_name, size_of

if TYPE_CHECKING:
    from torch.fx import Node

_PUT_BACK = {
    "aten::as_strided_scatter",
    "aten::diagonal_scatter",
    "aten::select_scatter",
    "aten::slice_scatter",
}
_ROWS = {"aten::index_add", "aten::index_copy", "aten::index_fill", "aten::index_reduce"}
_PLACES = {"aten::scatter", "aten::scatter_add", "aten::scatter_reduce"}
_ADDS = {"aten::index_add", "aten::index_reduce", "aten::scatter_add", "aten::scatter_reduce"}


def traffic(node: Node) -> tuple[float, float] | None:
    """Bytes that a call reads and writes where the model writes in place; None: it does not."""
    name = op_name(node.target)
    if name in _PUT_BACK:
        return (0.0, 0.0) if _is_put_back(node) else None
    if not _is_in_place(node):
        return None
    written = _written(node, name)
    if written is None:
        return None
    adds = name in _ADDS or (name == "aten::index_put" and node.args[3:4] == (True,))
    return sum(bytes_of_inputs(node)[1:], written if adds else 0.0), written


def _is_in_place(node: Node) -> bool:
    """Whether the call of the module that it comes from is one like `index_copy_`."""
    origin = _origin(node)
    call = origin.removeprefix("aten.").partition(".")[0]
    return call.endswith("_") and not call.endswith("__")


def _origin(node: Node) -> str:
    """The call of the module that a node comes from, such as ``aten.copy_.default``."""
    sources = node.meta.get("from_node")
    while sources:
        last = sources[-1]
        sources = last.from_node
        if not sources:
            return str(last.target)
    return ""


def _is_put_back(node: Node) -> bool:
    """Whether a view that was written to is put back into what it is a view of."""
    if _origin(node):
        return _is_in_place(node)
    view: Any = node.args[1]
    if op_name(view.target) in _PUT_BACK:
        return _is_put_back(view)
    return op_name(view.target) == "aten::copy" and is_view(view.args[0])


def _written(node: Node, name: str) -> float | None:
    """Bytes of the places that a call writes to; None where it may be all."""
    args: Any = node.args
    whole = args[0].meta["val"]
    if name in _ROWS | _PLACES:
        index = args[2].meta["val"]
        if name in _PLACES:
            return float(index.numel() * whole.element_size())
        return size_of(whole) / max(int(whole.shape[args[1]]), 1) * int(index.numel())
    if name == "aten::index_put":
        return _put(whole, args[1])
    return None


def _put(whole: Any, indices: Any) -> float | None:
    """Bytes that ``whole[indices] = …`` writes; None where a mask says which."""
    import torch

    given = [None if each is None else each.meta["val"] for each in indices]
    found = [each for each in given if each is not None]
    if any(each.dtype in (torch.bool, torch.uint8) for each in found):
        return None
    broadcast: Any = torch.broadcast_shapes
    places = math.prod(map(int, broadcast(*(each.shape for each in found))))
    chosen = math.prod(
        int(whole.shape[axis]) for axis, each in enumerate(given) if each is not None
    )
    return size_of(whole) / max(chosen, 1) * places
