"""Keys and values that groups of heads share, which an exported program repeats for each head.

Transformers has attention read them once (`enable_gqa`, on a GPU without padding), and so do the
engines that serve; only while it is exported does it repeat them, for every token of the cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from placewright.importers.torch.costs import is_view, op_name

if TYPE_CHECKING:
    from torch.fx import Node

Attending = Mapping[str, Collection[int]]
"""Calls that are attention, by name, and which of their arguments are keys or values."""


def repeated_for(source: Node, attending: Attending) -> Node | None:
    """The copy that attention reads through views, if it is one that repeats heads."""
    while is_view(source) and source.all_input_nodes:
        source = source.all_input_nodes[0]
    is_copy = source.op == "call_function" and op_name(source.target) == "aten::clone"
    return source if is_copy and _is_repeated(source, attending) else None


def _is_repeated(node: Node, attending: Attending) -> bool:
    """Whether a copy is of a broadcast tensor, and for keys and values of attention alone."""
    broadcast = node.all_input_nodes[0].meta["val"]
    return 0 in broadcast.stride() and all(
        reader.name in attending
        and source not in reader.kwargs.values()
        and all(
            source is not each or position in attending[reader.name]
            for position, each in enumerate(reader.args)
        )
        for source, reader in _readers(node)
    )


def _readers(node: Node) -> Iterator[tuple[Node, Node]]:
    """Those that read it, themselves or through views, each with what it reads."""
    for user in node.users:
        if user.op == "call_function" and is_view(user):
            yield from _readers(user)
        else:
            yield node, user
