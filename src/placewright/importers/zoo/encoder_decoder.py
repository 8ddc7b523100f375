"""T5: an encoder and a decoder that attends to it, with relative position biases.

The first layer of each stack owns a table of position biases, and every self-attention of that
stack adds the same tensor of biases to its scores; attention has no scale and no biases of its
own, and the mask is part of the position bias. The token embedding serves encoder, decoder and
output head (T5 1.0).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from placewright.importers.zoo.attention import Attention, attend
from placewright.importers.zoo.blocks import Tensor, Writer
from placewright.importers.zoo.options import Hyper, choice, number
from placewright.importers.zoo.transformers import cached_tokens

BUCKETS = 32
"""Relative distances that have a learned bias of their own, per head."""


@dataclass(frozen=True, kw_only=True)
class T5(Hyper):
    """`context` tokens go in, `target` tokens come out; `layers` in each stack.

    `phase` ``prefill`` keeps the keys and values of both attentions of the decoder; ``decode``
    runs the decoder alone, one new token per sample, with both caches full (so the cross-attention
    computes no keys or values).
    """

    layers: int = number(6)
    hidden: int = number(512)
    heads: int = number(8)
    head_size: int = number(64)
    feedforward: int = number(2048)
    vocabulary: int = number(32128)
    context: int = number(512)
    target: int = number(512)
    granularity: str = choice("op", "op", "head")
    phase: str = choice("forward", "forward", "prefill", "decode")


def write_t5(w: Writer, shape: T5) -> None:
    """Encoder, decoder and tied output head."""
    how = Attention(
        heads=shape.heads,
        kv_heads=shape.heads,
        head_size=shape.head_size,
        by_head=shape.granularity == "head",
        bias=False,
        scale=False,
    )
    encoded = None if shape.phase == "decode" else _encoder(w, shape, how)
    x = _decoder(w, shape, how, encoded)
    w.linear("lm_head", x, shape.vocabulary, bias="none", tied="token_embedding")


def _encoder(w: Writer, shape: T5, how: Attention) -> Tensor:
    with w.scope("encoder"):
        x = _embed(w, shape, shape.context)
        bias = _position_bias(w, shape, shape.context, shape.context)
        for layer in range(shape.layers):
            with w.scope(f"blocks.{layer}"):
                x = _attention(w, "attention", x, how, position_bias=bias)
                x = _feed_forward(w, x, shape)
        return w.norm("final_norm", x, "rmsnorm")


def _decoder(w: Writer, shape: T5, how: Attention, encoded: Tensor | None) -> Tensor:
    """The decoder stack; without `encoded` it is a decoding step, and all it needs is cached."""
    itself = replace(how, cache=cached_tokens(shape.phase, shape.target))
    cross = replace(
        how, cache=cached_tokens(shape.phase, shape.context), cached_only=encoded is None
    )
    with w.scope("decoder"):
        length = shape.target if encoded is not None else 1
        x = _embed(w, shape, length)
        bias = _position_bias(w, shape, length, shape.target)
        for layer in range(shape.layers):
            with w.scope(f"blocks.{layer}"):
                x = _attention(w, "attention", x, itself, position_bias=bias)
                x = _attention(w, "cross_attention", x, cross, memory=encoded)
                x = _feed_forward(w, x, shape)
        return w.norm("final_norm", x, "rmsnorm")


def _embed(w: Writer, shape: T5, length: int) -> Tensor:
    out = (shape.batch, length, shape.hidden)
    return w.lookup("embedding", rows=shape.vocabulary, shape=out, tied="token_embedding")


def _position_bias(w: Writer, shape: T5, length: int, other: int) -> Tensor:
    """One bias per head and pair of tokens, looked up by their distance."""
    out = (1, shape.heads, length, other)
    return w.op(
        "position_bias", "embedding", (), out,
        parameters=BUCKETS * shape.heads, read=0.0,
    )  # fmt: skip


def _attention(
    w: Writer,
    name: str,
    x: Tensor,
    how: Attention,
    *,
    memory: Tensor | None = None,
    position_bias: Tensor | None = None,
) -> Tensor:
    with w.scope(name):
        normed = w.norm("norm", x, "rmsnorm")
        y = attend(w, normed, how, memory=memory, position_bias=position_bias)
        return w.elementwise("residual", "add", (y, x))


def _feed_forward(w: Writer, x: Tensor, shape: T5) -> Tensor:
    with w.scope("mlp"):
        y = w.linear("fc1", w.norm("norm", x, "rmsnorm"), shape.feedforward, bias="none")
        y = w.elementwise("relu", "relu", (y,))
        y = w.linear("fc2", y, shape.hidden, bias="none")
        return w.elementwise("residual", "add", (y, x))
