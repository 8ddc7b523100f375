"""Attention that a program writes out: scores, what is done to them, softmax, context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placewright.importers.pairs import Limit
from placewright.importers.torch.biases import filled_limits, is_of_positions
from placewright.importers.torch.costs import is_view, op_name, tensors_in
from placewright.importers.torch.masks import Masks

if TYPE_CHECKING:
    from torch.fx import Node

_PRODUCTS = {"aten::matmul", "aten::bmm"}
_ADDS_PRODUCT = "aten::baddbmm"
_SAME = {"aten::_to_copy", "aten::clone", "aten::dropout", "aten::slice"}
_SCALED = {"aten::mul", "aten::div", "aten::tanh", *_SAME}
_SOFTMAX = {"aten::softmax", "aten::_softmax"}


@dataclass(frozen=True)
class WrittenOut:
    """The two products, the calls `between` them, and what the masks among these leave."""

    scores: Node
    context: Node
    between: Sequence[Node]
    limits: list[Limit]

    @property
    def keys_at(self) -> int:
        """Which argument of `scores` are the keys: a bias that it is added to goes before."""
        return 2 if op_name(self.scores.target) == _ADDS_PRODUCT else 1


def written_out(softmax: Node, masks: Masks) -> WrittenOut | None:
    """The attention that `softmax` is part of; None where it is none that a kernel can do.

    A kernel scales scores, caps them, masks them, adds biases of positions and knows sinks.
    """
    if op_name(softmax.target) not in _SOFTMAX:
        return None
    limits: list[Limit] = []
    before = _before(softmax, masks, limits)
    behind = _behind(softmax)
    if before is None or behind is None:
        return None
    between = [softmax, *before[1:], *behind[:-1]]
    ours = {*between, behind[-1]}
    if not all(reader in ours for node in [before[0], *between] for reader in _readers(node)):
        return None
    return WrittenOut(before[0], behind[-1], between, limits)


def _before(softmax: Node, masks: Masks, limits: list[Limit]) -> list[Node] | None:
    """The product that makes scores, and the calls from there to `softmax`."""
    node: Any = softmax.args[0]
    found: list[Node] = []
    while node.op == "call_function" and not _is_scores(node):
        name, first = op_name(node.target), node.args[0]
        others = [each for each in node.all_input_nodes if each is not first]
        if name == "aten::add":
            mask = masks.limits(others[0]) if others else None
            if mask is None and not (others and is_of_positions(others[0])):
                return None
            limits += mask or []
        elif name == "aten::masked_fill":
            filled = filled_limits(node, masks)
            if filled is None:
                return None
            limits += filled
        elif name == "aten::cat":  # a sink of each head beside the scores
            first = first[0]
        elif name == "aten::sub" and _is_largest(others, first):
            found += [others[0], others[0].all_input_nodes[0]]
        elif not (name in _SCALED or is_view(node)) or others:
            return None
        found.append(node)
        node = first
    return [node, *found] if node.op == "call_function" else None


def _is_scores(node: Any) -> bool:
    """Whether it is a product, which may be added to a bias of positions."""
    name = op_name(node.target)
    return name in _PRODUCTS or (name == _ADDS_PRODUCT and is_of_positions(node.args[0]))


def _is_largest(others: Sequence[Node], scores: Node) -> bool:
    """Whether it is the maximum of `scores`, which softmax subtracts for precision."""
    if len(others) != 1 or not others[0].all_input_nodes:
        return False
    largest = others[0].all_input_nodes[0]
    is_max = largest.op == "call_function" and op_name(largest.target) == "aten::max"
    return is_max and largest.args[0] is scores


def _behind(softmax: Node) -> list[Node] | None:
    """The calls from `softmax` to the product with the values."""
    node, found = softmax, list[Any]()
    while not found or op_name(node.target) not in _PRODUCTS:
        readers = _readers(node)
        if len(readers) != 1 or readers[0].op != "call_function" or readers[0].args[0] is not node:
            return None
        node = readers[0]
        found.append(node)
        if not (op_name(node.target) in _PRODUCTS | _SAME or is_view(node)):
            return None
    return found


def _readers(node: Node) -> list[Node]:
    """Those that make something of it: an assertion only looks at its type."""
    return [user for user in node.users if user.op == "output" or tensors_in(user.meta.get("val"))]
