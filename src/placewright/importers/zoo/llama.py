"""Llama and Mixtral: decoders with RMSNorm, rotary positions, grouped queries, gated feed-forward.

Mixtral's feed-forward is a mixture of experts, written as one branch per expert: each gets the
tokens it can expect (``tokens · active / experts``, perfectly balanced routing), and reads its
weights as often as it can expect to be used at all (``1 − (1 − active/experts)^tokens``), so that
decoding a single token reads the weights of `active` experts, not of all.
"""

from __future__ import annotations

from dataclasses import dataclass

from placewright.importers.zoo.attention import Attention, attend
from placewright.importers.zoo.blocks import Tensor, Writer, require
from placewright.importers.zoo.options import Hyper, choice, number
from placewright.importers.zoo.transformers import cached_tokens, head_size, last_token


@dataclass(frozen=True, kw_only=True)
class Llama(Hyper):
    """`phase` and `context` as for GPT. The output head has weights of its own."""

    layers: int = number(32)
    hidden: int = number(4096)
    feedforward: int = number(11008)
    heads: int = number(32)
    kv_heads: int = number(32)
    vocabulary: int = number(32000)
    context: int = number(4096)
    granularity: str = choice("op", "op", "head")
    phase: str = choice("forward", "forward", "prefill", "decode")


@dataclass(frozen=True, kw_only=True)
class Mixtral(Llama):
    """Each token goes to `active` of the `experts`."""

    feedforward: int = number(14336)
    kv_heads: int = number(8)
    experts: int = number(8)
    active: int = number(2)


def write_llama(w: Writer, shape: Llama) -> None:
    """The decoder, with a mixture of experts if `shape` is a `Mixtral`."""
    how = _attention(w, shape)
    tokens = 1 if shape.phase == "decode" else shape.context
    x = w.lookup("embedding", rows=shape.vocabulary, shape=(shape.batch, tokens, shape.hidden))
    for layer in range(shape.layers):
        with w.scope(f"blocks.{layer}"):
            with w.scope("attention"):
                attended = attend(w, w.norm("norm", x, "rmsnorm"), how)
                x = w.elementwise("residual", "add", (attended, x))
            with w.scope("mlp"):
                y = w.norm("norm", x, "rmsnorm")
                y = _mixture(w, y, shape) if isinstance(shape, Mixtral) else _mlp(w, y, shape)
                x = w.elementwise("residual", "add", (y, x))
    if shape.phase == "prefill":
        x = last_token(w, x)
    x = w.norm("final_norm", x, "rmsnorm")
    w.linear("lm_head", x, shape.vocabulary, bias="none")


def _attention(w: Writer, shape: Llama) -> Attention:
    require(
        shape.heads % shape.kv_heads == 0,
        w.builder.name,
        f"heads ({shape.heads}) must be a multiple of kv_heads ({shape.kv_heads})",
    )
    return Attention(
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_size=head_size(w, shape.hidden, shape.heads),
        by_head=shape.granularity == "head",
        bias=False,
        masked=True,
        rope=True,
        cache=cached_tokens(shape.phase, shape.context),
        one_kernel=shape.phase == "prefill",
    )


def _mlp(w: Writer, x: Tensor, shape: Llama, used: float = 1.0) -> Tensor:
    """SwiGLU: down(silu(gate(x)) · up(x)); `used` is the part of the weights' reading to count."""
    gate = _linear(w, "gate", x, shape.feedforward, used)
    gate = w.elementwise("silu", "silu", (gate,))
    up = _linear(w, "up", x, shape.feedforward, used)
    return _linear(w, "down", w.elementwise("mul", "mul", (gate, up)), shape.hidden, used)


def _linear(w: Writer, name: str, x: Tensor, width: int, used: float) -> Tensor:
    shape = (*x.shape[:-1], width)
    weights = x.shape[-1] * width
    return w.op(
        name, "matmul", (x,), shape,
        flops=2 * x.elements * width,
        parameters=weights,
        read=x.elements - (1 - used) * weights,
    )  # fmt: skip


def _mixture(w: Writer, x: Tensor, shape: Mixtral) -> Tensor:
    """Router, one branch per expert, and the weighted sum of what they return."""
    require(
        shape.active <= shape.experts,
        w.builder.name,
        f"active ({shape.active}) must be at most experts ({shape.experts})",
    )
    tokens = shape.batch * x.shape[1]
    share = shape.active / shape.experts
    logits = w.linear("router", x, shape.experts, bias="none")
    weights = w.elementwise("router_softmax", "softmax", (logits,))
    chosen = w.elementwise("topk", "topk", (weights,))
    outputs = []
    for expert in range(shape.experts):
        with w.scope(f"expert.{expert}"):
            expected = (tokens * share, shape.hidden)
            own = w.op(
                "dispatch", "gather", (x, chosen), expected, read=tokens * share * shape.hidden
            )
            outputs.append(_mlp(w, own, shape, used=1 - (1 - share) ** tokens))
    return w.op(
        "combine", "combine", (*outputs, chosen), x.shape,
        flops=2 * shape.active * x.elements,
    )  # fmt: skip
