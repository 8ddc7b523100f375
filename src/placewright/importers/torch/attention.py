"""What the calls of attention cost where kernels do something else than the exported program.

- A causal mask, and in Transformers a sliding window, is no tensor to a kernel: it skips the pairs
  that are masked. Transformers itself makes the mask only while it is exported.
- Keys and values that heads share are read once (`shared_heads`).
- Where a phase of serving is planned, attention that is written out (scores, softmax, context) is
  one kernel, which keeps no scores in memory.
- There, too, a step of decode multiplies with the latents themselves that latent attention keeps:
  what would expand them is applied to the queries and to the result of the new tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from placewright.importers.pairs import Limit, causal, share_of_pairs
from placewright.importers.torch.biases import filled_limits, is_of_positions
from placewright.importers.torch.costs import bytes_of_inputs, is_view, op_name, readers, size_of
from placewright.importers.torch.latents import Expansion, expansion_of
from placewright.importers.torch.masks import Masks
from placewright.importers.torch.shared_heads import Attending, repeated_for
from placewright.importers.torch.written_out import WrittenOut, written_out

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph
    from torch.fx import Node

Limits = Sequence[Limit]

_KEYS_AND_VALUES = (1, 2)
"""Of the arguments of a call that is attention as a whole."""


@dataclass(frozen=True)
class Call:
    """What a call costs: `share` of the FLOPs it says, bytes `read` of each input, `written`."""

    share: float
    read: Sequence[float]
    written: float


@dataclass
class Attention:
    """`calls` that cost otherwise than they say, and the bytes that some have `made`, by name."""

    calls: dict[str, Call] = field(default_factory=dict)
    made: dict[str, float] = field(default_factory=dict)


def attention_of(graph: FxGraph, cached: Mapping[str, Any] | None) -> Attention:
    """The attention of a program; `cached` are calls that append to a KV cache, where it serves.

    None where it is no phase of serving.
    """
    return _Reader(graph, cached).found


class _Reader:
    def __init__(self, graph: FxGraph, cached: Mapping[str, Any] | None) -> None:
        self.graph, self.cached = graph, cached or {}
        self.is_served = cached is not None
        self.masks, self.found = Masks(), Attention()
        self._unread: dict[str, set[Any]] = {}  # call → masks that its kernel does without
        calls = [node for node in graph.nodes if node.op == "call_function"]
        kernels = [node for node in calls if _is_kernel(node)]
        apart = [each for each in map(self._written_out, calls) if each] if self.is_served else []
        attending: Attending = {
            **{node.name: _KEYS_AND_VALUES for node in kernels},
            **{each.scores.name: (each.keys_at,) for each in apart},
            **{each.context.name: (1,) for each in apart},
        }
        for node in kernels:
            self._add_kernel(node, attending)
        for each in apart:
            self._add_written_out(each, attending)
        self._leave_out_masks()

    # -- attention in one call ----------------------------------------------------------------

    def _add_kernel(self, node: Node, attending: Attending) -> None:
        mask, limits = self._limits(node)
        share = _share(node.args[0], node.args[1], limits)
        amounts = self._amounts(node, attending)
        if mask is not None and limits is not None and self._is_made_inside(mask):
            self._unread[node.name] = {mask}
            amounts[mask] = 0.0
        expansion = expansion_of(node, self.cached)
        if expansion is None:
            self._say(node, share, amounts)
            return
        amounts |= dict.fromkeys(node.args[1:3], 0.0)
        self._say(node, share * expansion.share, amounts, more=expansion.kept_bytes)
        self._add_expansion(expansion)

    def _add_expansion(self, expansion: Expansion) -> None:
        for node in expansion.calls:
            self.found.made[node.name] = expansion.behind[node]
            if not is_view(node):
                self._say(node, 0.0, {}, written=0.0)
        for node in expansion.products:
            source = node.all_input_nodes[0]
            amounts = dict(zip(node.all_input_nodes, bytes_of_inputs(node), strict=True))
            amounts[source] *= expansion.new
            written = size_of(node.meta["val"]) * expansion.new
            self._say(node, expansion.new, amounts, written=written)

    def _limits(self, node: Node) -> tuple[Any, Limits | None]:
        """The mask of a call, and what it leaves of the pairs; None where a kernel computes all."""
        mask = _argument(node, "attn_mask")
        if mask is None:
            return None, causal() if _argument(node, "is_causal") is True else None
        if not _is_of_transformers(node):
            return mask, None
        limits = self.masks.limits(mask)
        return mask, self._limits_with_bias(mask) if limits is None else limits

    def _limits_with_bias(self, mask: Any) -> Limits | None:
        """What a mask leaves that has a bias of positions in it, which kernels that serve know."""
        return filled_limits(mask, self.masks) if self.is_served else None

    def _is_made_inside(self, mask: Any) -> bool:
        """Whether a kernel needs no tensor for what a mask says."""
        return self.masks.is_whole(mask) or (self.is_served and is_of_positions(mask))

    # -- attention in many calls --------------------------------------------------------------

    def _written_out(self, node: Node) -> WrittenOut | None:
        return written_out(node, self.masks) if _is_of_transformers(node) else None

    def _add_written_out(self, each: WrittenOut, attending: Attending) -> None:
        *biases, queries, keys = each.scores.args[: each.keys_at + 1]
        share = _share(queries, keys, each.limits, keys_axis=-1)
        self._unread[each.scores.name] = set(biases)
        for node in each.between:
            if not is_view(node):
                self._say(node, 0.0, {}, written=0.0)
            self._unread[node.name] = set(node.all_input_nodes)
        amounts = self._amounts(each.scores, attending) | dict.fromkeys(biases, 0.0)
        self._say(each.scores, share, amounts, written=0.0)
        amounts = self._amounts(each.context, attending)
        self._say(each.context, share, {**amounts, each.context.args[0]: 0.0})

    # -- what both have ------------------------------------------------------------------------

    def _amounts(self, node: Node, attending: Attending) -> dict[Any, float]:
        """Bytes that attention reads of each input: of keys and values that are shared, once."""
        amounts = dict(zip(node.all_input_nodes, bytes_of_inputs(node), strict=True))
        for position in attending[node.name]:
            source: Any = node.args[position]
            if source in amounts and (repeated := repeated_for(source, attending)):
                amounts[source] = sum(bytes_of_inputs(repeated))
                self._say(repeated, 1.0, {}, written=0.0)
        return amounts

    def _say(
        self,
        node: Node,
        share: float,
        amounts: Mapping[Any, float],
        *,
        written: float | None = None,
        more: float = 0.0,
    ) -> None:
        """`more`: bytes that are read of what is no input."""
        read = [amounts.get(source, 0.0) for source in node.all_input_nodes]
        read[:1] = [each + more for each in read[:1]]
        made = size_of(node.meta["val"]) if written is None else written
        self.found.calls[node.name] = Call(share, read, made)

    def _leave_out_masks(self) -> None:
        """Calls whose results only masks need that no kernel reads: nobody makes them."""
        left_out: set[Any] = set()
        for node in reversed(self.graph.nodes):
            if node.op != "call_function" or node.name in self.found.calls:
                continue
            is_needed = any(
                user not in left_out and node not in self._unread.get(user.name, ())
                for user in readers(node)
            )
            if is_needed or not (node.users and self._is_for_masks(node)):
                continue
            left_out.add(node)
            self.found.made[node.name] = 0.0
            if not is_view(node):
                self._say(node, 0.0, {}, written=0.0)

    def _is_for_masks(self, node: Node) -> bool:
        """Whether somebody reads it, or it is a mask, of which only its type was looked at."""
        return any(True for _ in readers(node)) or self.masks.limits(node) is not None


def _is_kernel(node: Node) -> bool:
    name = op_name(node.target)
    return "scaled_dot_product" in name and name.startswith("aten::")


def _share(queries: Any, keys: Any, limits: Limits | None, keys_axis: int = -2) -> float:
    """The part of all pairs that a kernel computes."""
    shapes = queries.meta["val"].shape[-2], keys.meta["val"].shape[keys_axis]
    if limits is None or not all(isinstance(each, int) for each in shapes):
        return 1.0
    return share_of_pairs(*shapes, tuple(limits))


def _argument(node: Node, name: str) -> Any:
    """An argument of a call by its name, its default where it is not given."""
    schema: Any = node.target
    for position, each in enumerate(schema._schema.arguments):
        if each.name == name:
            given = node.kwargs.get(name, each.default_value)
            return node.args[position] if position < len(node.args) else given
    return None


def _is_of_transformers(node: Node) -> bool:
    """Whether a module of Transformers makes the call."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    last = next(reversed(stack.values()), None)
    return isinstance(last, tuple) and str(last[1]).startswith("transformers.")
