"""Multi-head attention as ops: at once, or head by head.

Head by head, one head of plain attention with biases is 12 ops (matmul and bias of q, k and v;
transpose of k; scores; scale; mask or position bias; softmax; context), and the layer adds a
concat of the heads, the output matmul and its bias. With two norms, two residual adds and a
feed-forward of four ops that makes ``11 + 12·heads`` ops a layer: exactly the counts of the
Moirai paper's Table IV.

The ops are the same where a prompt is served, but there scores, mask, softmax and context are one
kernel: it skips what the mask leaves out, and scores stay in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from placewright.importers.pairs import causal, share_of_pairs
from placewright.importers.zoo.blocks import Tensor, Writer


@dataclass(frozen=True, kw_only=True)
class Attention:
    """How one attention layer is made.

    `kv_heads` key-value heads serve `heads` query heads in equal groups (GQA). `table` learned
    position biases per head are added to the scores (Swin), or a `position_bias` tensor (T5).
    `cache` > 0 keeps keys and values of that many tokens where the ``cache`` ops run; with
    `cached_only` they are all there already, and none are computed (cross-attention of a decoding
    step). With `one_kernel` scores are not kept in memory, and masked ones not computed.
    """

    heads: int
    head_size: int
    kv_heads: int
    by_head: bool
    bias: bool = True
    scale: bool = True
    masked: bool = False
    rope: bool = False
    table: int = 0
    cache: int = 0
    cached_only: bool = False
    one_kernel: bool = False

    @property
    def _bias(self) -> str:
        return "op" if self.bias else "none"


def attend(
    w: Writer,
    x: Tensor,
    how: Attention,
    *,
    memory: Tensor | None = None,
    position_bias: Tensor | None = None,
) -> Tensor:
    """Attention of x[batch, length, hidden] to `memory` (itself if None), projected to hidden."""
    source = x if memory is None else memory
    if how.by_head:
        heads = _head_by_head(w, x, source, how, position_bias)
        context = w.concat("concat", heads, (*x.shape[:2], how.heads * how.head_size))
    else:
        keys, values = _keys_and_values(w, source, how, how.kv_heads)
        context = _context(w, x, keys, values, how, how.heads, position_bias)
    return w.linear("output", context, int(x.shape[-1]), bias=how._bias)


def _head_by_head(
    w: Writer, x: Tensor, source: Tensor, how: Attention, position_bias: Tensor | None
) -> list[Tensor]:
    """The context of each head; grouped heads share the keys and values of their group."""
    group_size = how.heads // how.kv_heads
    contexts = []
    shared: tuple[Tensor, Tensor] | None = None
    for head in range(how.heads):
        if group_size > 1 and head % group_size == 0:
            with w.scope(f"group.{head // group_size}"):
                shared = _keys_and_values(w, source, how, 1)
        with w.scope(f"head.{head}"):
            keys, values = shared or _keys_and_values(w, source, how, 1)
            contexts.append(_context(w, x, keys, values, how, 1, position_bias))
    return contexts


def _keys_and_values(
    w: Writer, source: Tensor, how: Attention, heads: int
) -> tuple[Tensor, Tensor]:
    """Keys (transposed) and values [batch, length, heads · head_size]."""
    width = heads * how.head_size
    if how.cached_only:
        keys = _cache(w, "k_cache", (), source.shape[0], width, how)
        values = _cache(w, "v_cache", (), source.shape[0], width, how)
        return w.view("k_transpose", "transpose", keys), values
    keys = w.linear("k", source, width, bias=how._bias)
    if how.rope:
        keys = w.elementwise("k_rope", "rope", (keys,))
    values = w.linear("v", source, width, bias=how._bias)
    if how.cache:
        keys = _cache(w, "k_cache", (keys,), source.shape[0], width, how)
        values = _cache(w, "v_cache", (values,), source.shape[0], width, how)
    return w.view("k_transpose", "transpose", keys), values


def _cache(
    w: Writer, name: str, new: tuple[Tensor, ...], batch: float, width: int, how: Attention
) -> Tensor:
    """Append `new` to what is kept here; its output is all of it, its traffic only the new."""
    shape = (batch, how.cache, width)
    moved = sum(each.elements for each in new)
    state = batch * how.cache * width
    return w.op(name, "cache", new, shape, read=moved, written=moved, state=state)


def _context(
    w: Writer,
    x: Tensor,
    keys: Tensor,
    values: Tensor,
    how: Attention,
    heads: int,
    position_bias: Tensor | None,
) -> Tensor:
    """softmax(q·kᵀ + …)·v of `heads` heads: [batch, length, heads · head_size]."""
    batch, length = x.shape[:2]
    other = int(keys.shape[1])
    query = w.linear("q", x, heads * how.head_size, bias=how._bias)
    if how.rope:
        query = w.elementwise("q_rope", "rope", (query,))
    if how.one_kernel:
        return _kernel(w, query, keys, values, how)
    scores = w.matmul("scores", (query, keys), (batch, heads, length, other), how.head_size)
    if how.scale:
        scores = w.elementwise("scale", "scale", (scores,))
    if how.table:
        scores = w.elementwise("position_bias", "add", (scores,), parameters=how.table * heads)
    if position_bias is not None:
        scores = _add_position_bias(w, scores, position_bias)
    if how.masked:
        scores = w.elementwise("mask", "mask", (scores,))
    weights = w.elementwise("softmax", "softmax", (scores,))
    return w.matmul("context", (weights, values), (batch, length, heads * how.head_size), other)


def _kernel(w: Writer, query: Tensor, keys: Tensor, values: Tensor, how: Attention) -> Tensor:
    """softmax(q·kᵀ + mask)·v, in the ops of `_context`: what is between the products is free."""
    batch, length, width = query.shape
    other = int(keys.shape[1])
    heads = width / how.head_size
    pairs = batch * heads * length * other * share_of_pairs(int(length), other, causal())
    flops = 2 * pairs * how.head_size
    shape = (batch, heads, length, other)
    scores = w.op("scores", "matmul", (query, keys), shape, flops=flops, written=0.0)
    for name in (*(["scale"] if how.scale else []), "mask", "softmax"):
        scores = w.view(name, name, scores)
    return w.op(
        "context", "matmul", (scores, values), query.shape, flops=flops, read=values.elements
    )


def _add_position_bias(w: Writer, scores: Tensor, bias: Tensor) -> Tensor:
    """Add the part of `bias` [1, heads, length, other] that belongs to the heads of `scores`."""
    _, heads, length, other = scores.shape
    return w.op(
        "position_bias", "add", (scores, bias), scores.shape,
        flops=scores.elements, read=scores.elements + heads * length * other,
    )  # fmt: skip
