"""Keys and values that groups of heads share, which an exported program repeats for each head.

Transformers has attention read them once (`enable_gqa`, on a GPU without padding), and so do the
engines that serve; only while it is exported does it repeat them, for every token of the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from placewright.importers.torch.costs import bytes_of_inputs, is_view, op_name, size_of

if TYPE_CHECKING:
    from torch.fx import Node

_ATTENTION = "aten::scaled_dot_product_attention"
_SHARED = (1, 2)  # of its arguments: keys, values


def traffic(node: Node) -> tuple[float, float] | None:
    """Bytes that a call reads and writes where heads share keys and values; None: they do not."""
    name = op_name(node.target)
    if name == "aten::clone":
        return (0.0, 0.0) if _is_repeated(node) else None
    if name != _ATTENTION:
        return None
    amounts = dict(zip(node.all_input_nodes, bytes_of_inputs(node), strict=True))
    for position in _SHARED:
        source: Any = node.args[position]
        if source in amounts and (repeated := _repeated_for(source)):
            amounts[source] = sum(bytes_of_inputs(repeated))
    return sum(amounts.values()), size_of(node.meta["val"])


def _repeated_for(source: Node) -> Node | None:
    """The copy that attention reads through views, if it is one that repeats heads."""
    while is_view(source) and source.all_input_nodes:
        source = source.all_input_nodes[0]
    is_copy = source.op == "call_function" and op_name(source.target) == "aten::clone"
    return source if is_copy and _is_repeated(source) else None


def _is_repeated(node: Node) -> bool:
    """Whether a copy is of a broadcast tensor, and for keys and values of attention alone."""
    broadcast = node.all_input_nodes[0].meta["val"]
    return 0 in broadcast.stride() and all(
        op_name(reader.target) == _ATTENTION
        and source not in (reader.args[0], *reader.args[3:], *reader.kwargs.values())
        for source, reader in _readers(node)
    )


def _readers(node: Node) -> Iterator[tuple[Node, Node]]:
    """Those that read it, themselves or through views, each with what it reads."""
    for user in node.users:
        if user.op == "call_function" and is_view(user):
            yield from _readers(user)
        else:
            yield node, user
