"""Latent attention (MLA): a cache of latents, which a program expands to keys and values.

vLLM, SGLang and llama.cpp do not expand the cache in a step of decode. The matrix that would is
multiplied with the queries of the new tokens instead, and with what attention makes of the latents;
attention itself is of all heads with the same latents.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placewright.importers.torch.costs import is_view, op_name, readers, size_of

if TYPE_CHECKING:
    from torch.fx import Node

_PRODUCTS = {"aten::linear", "aten::matmul"}
_MOVES = {
    "aten::cat",
    "aten::clone",
    "aten::copy",
    "aten::new_empty",
    "aten::slice_scatter",
}


@dataclass(frozen=True)
class Expansion:
    """`calls` make keys and values of a cache of latents, `products` among them multiply.

    ``behind[call]`` are the bytes of the cache that it is made of, `kept_bytes` all of them. `new`
    is the share of tokens that are new, `share` the FLOPs of attention to the latents over those to
    keys and values.
    """

    calls: Sequence[Node]
    products: Sequence[Node]
    behind: Mapping[Node, float]
    kept_bytes: float
    new: float
    share: float


def expansion_of(attention: Node, cached: Collection[str]) -> Expansion | None:
    """How the keys and values of a call of attention come of a cache; None: not by expansion.

    `cached` are the calls that append to a cache which the program is given.
    """
    arguments: Any = attention.args[:3]
    query, keys, values = arguments
    kept: dict[Any, frozenset[Any]] = {}
    if not (cached and _follow(keys, cached, kept) and _follow(values, cached, kept)):
        return None
    calls = [node for node in kept if node.name not in cached]
    products = [node for node in calls if op_name(node.target) in _PRODUCTS]
    ours = {*calls, attention}
    if not products or not all(user in ours for node in calls for user in readers(node)):
        return None

    def width(node: Any) -> int:
        return sum(int(each.meta["val"].shape[-1]) for each in kept[node])

    def size(nodes: Collection[Any]) -> float:
        return sum(size_of(each.meta["val"]) for each in nodes)

    heads = [int(each.meta["val"].shape[-1]) for each in (keys, values)]
    new = int(query.meta["val"].shape[-2]) / int(keys.meta["val"].shape[-2])
    return Expansion(
        calls,
        products,
        {node: size(kept[node]) for node in calls},
        size(kept[keys] | kept[values]),
        new,
        (width(keys) + width(values)) / sum(heads),
    )


def _follow(node: Any, cached: Collection[str], kept: dict[Any, frozenset[Any]]) -> bool:
    """Whether `node` is of a cache alone; then `kept` says of which calls that append to it."""
    if node in kept:
        return True
    if node.name in cached:
        kept[node] = frozenset([node])
        return True
    if node.op != "call_function" or not _expands(node):
        return False
    sources = list(_sources(node))
    if not all(_follow(each, cached, kept) for each in sources):
        return False
    kept[node] = frozenset().union(*(kept[each] for each in sources))
    return bool(sources)


def _expands(node: Node) -> bool:
    is_pick = not hasattr(node.target, "_schema")
    return is_pick or is_view(node) or op_name(node.target) in _MOVES | _PRODUCTS


def _sources(node: Node) -> Iterator[Node]:
    """What it is made of, weights left aside."""
    of_product = op_name(node.target) in _PRODUCTS
    return iter(node.all_input_nodes[:1] if of_product else node.all_input_nodes)
