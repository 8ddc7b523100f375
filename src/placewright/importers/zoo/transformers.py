"""GPT and BERT: stacks of one kind of transformer layer.

A layer is attention and a feed-forward of two matrices, each with a norm and a residual add. In
`granularity` ``head`` attention is split head by head and a layer has ``11 + 12·heads`` ops (see
`attention`); in ``op`` each matmul is one op for all heads, 23 ops a layer. Embeddings, final norm
and output head lie outside the layers (``blocks.0``, ``blocks.1``, …).
"""

from __future__ import annotations

from dataclasses import dataclass

from placewright.importers.zoo.attention import Attention, attend
from placewright.importers.zoo.blocks import Shape, Tensor, Writer, require
from placewright.importers.zoo.options import Hyper, choice, number


@dataclass(frozen=True, kw_only=True)
class Transformer(Hyper):
    """What GPT and BERT share. `context` is the number of tokens of a sample.

    The feed-forward is four times as wide as `hidden`. Positions are learned, `positions` of them
    or `context` if that is more.
    """

    layers: int = number(12)
    hidden: int = number(768)
    heads: int = number(12)
    vocabulary: int = number(50257)
    context: int = number(1024)
    positions: int = number(1024)
    granularity: str = choice("op", "op", "head")


@dataclass(frozen=True, kw_only=True)
class Gpt(Transformer):
    """A decoder. `phase` says which run is meant:

    - ``forward``: one pass over `context` tokens, nothing kept;
    - ``prefill``: the same for the logits of the last token, and keys and values are kept in a KV
      cache; attention is one kernel;
    - ``decode``: one new token per sample, against a cache of `context` tokens.
    """

    phase: str = choice("forward", "forward", "prefill", "decode")


@dataclass(frozen=True, kw_only=True)
class Bert(Transformer):
    """An encoder with token types, embedding norm and the pooler of the first token."""

    vocabulary: int = number(30522)
    context: int = number(512)
    positions: int = number(512)


def write_gpt(w: Writer, shape: Gpt) -> None:
    """GPT-2 and GPT-3: norms before, output head tied to the token embedding.

    GPT-3's alternating sparse attention is written as dense attention.
    """
    how = _attention(
        w,
        shape,
        masked=True,
        cache=cached_tokens(shape.phase, shape.context),
        one_kernel=shape.phase == "prefill",
    )
    tokens = 1 if shape.phase == "decode" else shape.context
    x = _embed(w, shape, (shape.batch, tokens, shape.hidden))
    for layer in range(shape.layers):
        with w.scope(f"blocks.{layer}"):
            with w.scope("attention"):
                attended = attend(w, w.norm("norm", x), how)
                x = w.elementwise("residual", "add", (attended, x))
            with w.scope("mlp"):
                changed = _feed_forward(w, w.norm("norm", x), shape)
                x = w.elementwise("residual", "add", (changed, x))
    if shape.phase == "prefill":
        x = last_token(w, x)
    x = w.norm("final_norm", x)
    w.linear("lm_head", x, shape.vocabulary, bias="none", tied="token_embedding")


def write_bert(w: Writer, shape: Bert) -> None:
    """BERT: norms after, and the pooler; no language-model head."""
    how = _attention(w, shape, masked=True)
    hidden: Shape = (shape.batch, shape.context, shape.hidden)
    x = _embed(w, shape, hidden, token_types=2)
    x = w.norm("embedding_norm", x)
    for layer in range(shape.layers):
        with w.scope(f"blocks.{layer}"):
            with w.scope("attention"):
                x = w.elementwise("residual", "add", (attend(w, x, how), x))
                x = w.norm("norm", x)
            with w.scope("mlp"):
                x = w.elementwise("residual", "add", (_feed_forward(w, x, shape), x))
                x = w.norm("norm", x)
    with w.scope("pooler"):
        first = w.view("first_token", "slice", x, (shape.batch, shape.hidden))
        w.elementwise("tanh", "tanh", (w.linear("dense", first, shape.hidden),))


def cached_tokens(phase: str, context: int) -> int:
    """Tokens in the KV cache of a run: `context`, but none in a plain forward pass."""
    return 0 if phase == "forward" else context


def last_token(w: Writer, x: Tensor) -> Tensor:
    """Of each sample: the only one whose logits a prompt is read for."""
    return w.copy("last_token", "gather", x, (x.shape[0], 1, x.shape[-1]))


def head_size(w: Writer, hidden: int, heads: int) -> int:
    """hidden / heads; OptionError unless whole."""
    require(
        hidden % heads == 0,
        w.builder.name,
        f"hidden ({hidden}) must be a multiple of heads ({heads})",
    )
    return hidden // heads


def _attention(
    w: Writer, shape: Transformer, *, masked: bool, cache: int = 0, one_kernel: bool = False
) -> Attention:
    return Attention(
        heads=shape.heads,
        kv_heads=shape.heads,
        head_size=head_size(w, shape.hidden, shape.heads),
        by_head=shape.granularity == "head",
        masked=masked,
        cache=cache,
        one_kernel=one_kernel,
    )


def _embed(w: Writer, shape: Transformer, out: Shape, token_types: int = 0) -> Tensor:
    """Token, position and token-type embeddings, added."""
    with w.scope("embedding"):
        x = w.lookup("tokens", rows=shape.vocabulary, shape=out, tied="token_embedding")
        positions = max(shape.positions, shape.context)
        where = w.lookup("positions", rows=positions, shape=(1, *out[1:]))
        x = w.elementwise("add_positions", "add", (x, where))
        if token_types:
            kind = w.lookup("token_types", rows=token_types, shape=out)
            x = w.elementwise("add_token_types", "add", (x, kind))
    return x


def _feed_forward(w: Writer, x: Tensor, shape: Transformer) -> Tensor:
    """fc1, its bias, gelu, fc2; the bias of fc2 is an op of its own unless heads are split.

    Table IV's counts leave four ops for the feed-forward, one less than with both biases.
    """
    y = w.linear("fc1", x, 4 * shape.hidden)
    y = w.elementwise("gelu", "gelu", (y,))
    bias = "inside" if shape.granularity == "head" else "op"
    return w.linear("fc2", y, shape.hidden, bias=bias)
