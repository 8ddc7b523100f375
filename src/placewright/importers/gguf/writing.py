"""Decoders of GGUF files, written op by op with the bytes that the file has for each weight.

Ops have the names of the file's tensors (``blk.0.attn_q``) and modules ``blk.N``. An op reads its
weights in the file's bytes and computes in the type of activations. Experts are one op per
projection, as they are one tensor: each token goes to some, and weights are read as far as a batch
can expect to use them. The KV cache has two bytes per number, as llama.cpp has it by default; a
layer with a sliding window keeps its window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from placewright.errors import FormatError
from placewright.importers.gguf.architectures import Architecture
from placewright.importers.gguf.options import GgufOptions
from placewright.importers.gguf.parts import Parts, Sizes
from placewright.importers.pairs import causal, share_of_pairs
from placewright.importers.zoo.blocks import Tensor, Writer

CACHE_ITEM_BYTES = 2.0


@dataclass(frozen=True)
class Heads:
    """Sizes of the attention of one layer."""

    query: int
    cached: int
    key_size: int
    value_size: int
    window: float

    @property
    def cache_numbers(self) -> int:
        """Numbers that a token keeps."""
        return self.cached * (self.key_size + self.value_size)


class Decoder:
    """Writes the ops of one file; `write` does it all."""

    def __init__(
        self, w: Writer, parts: Parts, sizes: Sizes, kind: Architecture, options: GgufOptions
    ) -> None:
        self.w, self.parts, self.sizes, self.kind, self.options = w, parts, sizes, kind, options
        self.hidden = sizes.number("embedding_length")
        self.layers = sizes.number("block_count")
        self.tokens = 1 if options.phase == "decode" else options.context
        self._stem = ""

    def write(self) -> None:
        """Every op, from the embedding to the logits."""
        x = self._embedding()
        for layer in range(self.layers):
            with self.w.scope(f"blk.{layer}"):
                self._stem = f"blk.{layer}."
                x = self._block(x, layer)
        self._stem = ""
        if self.options.phase == "prefill":
            x = self.w.copy("last_token", "gather", x, (x.shape[0], 1, self.hidden))
        self._head(self._norm("output_norm", x))

    def heads(self, layer: int) -> Heads:
        """The attention of a layer, as the metadata has it."""
        sizes = self.sizes
        query = sizes.number("attention.head_count", layer=layer)
        size = max(1, self.hidden // query)
        period = self.kind.window_period
        slides = period and (layer + 1) % period != 0
        cached = sizes.number("attention.head_count_kv", query, layer=layer)
        if query % cached:
            raise FormatError(
                f"{self.parts.path}: layer {layer} has {query} heads and {cached} of keys and "
                "values, which must divide them; convert the model again"
            )
        return Heads(
            query=query,
            cached=cached,
            key_size=sizes.number("attention.key_length", size),
            value_size=sizes.number("attention.value_length", size),
            window=sizes.number("attention.sliding_window") if slides else math.inf,
        )

    @property
    def windows(self) -> dict[str, int]:
        """The tokens that caches with a sliding window keep, by name (`graph.WINDOWS`)."""
        windows = ((layer, self.heads(layer).window) for layer in range(self.layers))
        return {
            f"blk.{layer}.{name}": int(window)
            for layer, window in windows
            for name in ("k_cache", "v_cache")
            if math.isfinite(window)
        }

    # -- blocks ------------------------------------------------------------------------------

    def _block(self, x: Tensor, layer: int) -> Tensor:
        normed = self._norm("attn_norm", x)
        attended = self._attention(normed, layer)
        ffn_norm = "ffn_norm"
        if self._names_ffn_norm_otherwise():
            ffn_norm = "post_attention_norm"
        else:
            attended = self._norm("post_attention_norm", attended)
        is_parallel = not (self._has(ffn_norm) or self._has("post_ffw_norm"))
        if is_parallel:
            y = self._feed_forward(normed, layer)
            return self.w.elementwise("residual", "add", (x, attended, y))
        x = self.w.elementwise("attn_residual", "add", (attended, x))
        y = self._feed_forward(self._norm(ffn_norm, x), layer)
        return self.w.elementwise("ffn_residual", "add", (self._norm("post_ffw_norm", y), x))

    def _names_ffn_norm_otherwise(self) -> bool:
        """Whether ``post_attention_norm`` is before the feed-forward, not behind attention."""
        others = self._has("ffn_norm") or self._has("post_ffw_norm")
        return self._has("post_attention_norm") and not others

    def _attention(self, x: Tensor, layer: int) -> Tensor:
        heads = self.heads(layer)
        query_width = heads.query * heads.key_size
        key_width, value_width = heads.cached * heads.key_size, heads.cached * heads.value_size
        if self._has("attn_qkv"):
            joint = self._linear("attn_qkv", x, query_width + key_width + value_width)
            query, keys, values = (
                self.w.view(name, "view", joint, (*x.shape[:-1], width))
                for name, width in (("q", query_width), ("k", key_width), ("v", value_width))
            )
        else:
            query = self._linear("attn_q", x, query_width)
            keys = self._linear("attn_k", x, key_width)
            values = self._linear("attn_v", x, value_width)
        query = self._rotated("q_rope", self._norm("attn_q_norm", query))
        keys = self._rotated("k_rope", self._norm("attn_k_norm", keys))
        room = min(self.options.context, heads.window)
        if self.options.phase != "forward":
            keys, values = self._cache("k_cache", keys, room), self._cache("v_cache", values, room)
        context = self._context(query, keys, values, heads)
        return self._linear("attn_output", context, self.hidden)

    def _context(self, query: Tensor, keys: Tensor, values: Tensor, heads: Heads) -> Tensor:
        """softmax(q·kᵀ)·v in one op, which keeps no scores in memory."""
        batch, length = query.shape[:2]
        pairs = batch * heads.query * self._pairs(heads.window)
        return self.w.op(
            "attention", "attention", (query, keys, values),
            (batch, length, heads.query * heads.value_size),
            flops=pairs * (2 * heads.key_size + 2 * heads.value_size + 5),
            parameters=self._numbers("attn_sinks"),
        )  # fmt: skip

    def _pairs(self, window: float) -> float:
        """How many pairs of a query and a key a head of one sample computes."""
        context = self.options.context
        if self.options.phase == "decode":
            return min(context, window)
        return self.tokens * context * share_of_pairs(self.tokens, context, causal(window))

    def _cache(self, name: str, new: Tensor, room: float) -> Tensor:
        """Append to what is kept here; its output is all of it, its traffic only the new."""
        shape = (new.shape[0], room, new.shape[-1])
        share = CACHE_ITEM_BYTES / self.w.item_bytes
        moved = min(new.elements, math.prod(shape))
        return self.w.op(
            name, "cache", (new,), shape,
            read=moved, written=moved * share, state=math.prod(shape) * share,
        )  # fmt: skip

    def _rotated(self, name: str, x: Tensor) -> Tensor:
        if not self.kind.rotary:
            return x
        factors = 0.0
        for stem in ("rope_freqs", "rope_factors_long", "rope_factors_short"):
            if f"{stem}.weight" in self.parts.left:  # of all layers: at the first
                factors += self.parts.take(stem) / self.w.item_bytes
        return self.w.elementwise(name, "rope", (x,), parameters=factors)

    def _feed_forward(self, x: Tensor, layer: int) -> Tensor:
        if not self._has("ffn_gate_inp"):
            return self._dense(x, "")
        y = self._experts(x, layer)
        if not self._has("ffn_up_shexp"):
            return y
        shared = self._dense(x, "_shexp")
        if self._has("ffn_gate_inp_shexp"):
            gate = self._linear("ffn_gate_inp_shexp", x, 1)
            gate = self.w.elementwise("shared_sigmoid", "sigmoid", (gate,))
            shared = self.w.elementwise("shared_mul", "mul", (shared, gate))
        return self.w.elementwise("shared_add", "add", (y, shared))

    def _dense(self, x: Tensor, suffix: str) -> Tensor:
        """down(act(gate(x)) · up(x)); without a gate down(act(up(x)))."""
        width = self.parts.weight(f"{self._stem}ffn_down{suffix}").shape[0]
        up_name, activation = f"ffn_up{suffix}", self.kind.activation
        both = self._width(up_name) == 2 * width  # gate and up in one
        up = self._linear(up_name, x, 2 * width if both else width)
        if self._has(f"ffn_gate{suffix}"):
            gate = self._linear(f"ffn_gate{suffix}", x, width)
            up = self._activated(f"ffn_{activation}{suffix}", (gate, up), up.shape)
        else:
            shape = (*x.shape[:-1], width)
            up = self._activated(f"ffn_{activation}{suffix}", (up,), shape)
        return self._linear(f"ffn_down{suffix}", up, self.hidden)

    def _activated(self, name: str, inputs: tuple[Tensor, ...], shape: tuple[float, ...]) -> Tensor:
        """The activation, and the product with what it gates."""
        return self.w.elementwise(name, self.kind.activation, inputs, shape=shape)

    def _experts(self, x: Tensor, layer: int) -> Tensor:
        """Each token's own experts: the sum of what they return."""
        count = self.sizes.number("expert_count", layer=layer)
        active = min(count, self.sizes.number("expert_used_count", layer=layer))
        tokens = x.shape[0] * x.shape[1]
        used = 1 - (1 - active / count) ** tokens
        logits = self._linear("ffn_gate_inp", x, count)
        inputs = (x, self.w.elementwise("ffn_topk", "topk", (logits,)))
        width = self.parts.weight(f"{self._stem}ffn_down_exps").shape[0]
        wide, narrow = (*x.shape[:-1], active, width), (*x.shape[:-1], active, self.hidden)
        up = self._expert_linear("ffn_up_exps", inputs, wide, used)
        gated: tuple[Tensor, ...] = (up,)
        if self._has("ffn_gate_exps"):
            gated = (self._expert_linear("ffn_gate_exps", inputs, wide, used), up)
        y = self._activated(f"ffn_{self.kind.activation}_exps", gated, wide)
        y = self._expert_linear("ffn_down_exps", (y, inputs[1]), narrow, used)
        return self.w.elementwise("ffn_combine", "add", (y, inputs[1]), shape=x.shape)

    def _expert_linear(
        self,
        name: str,
        inputs: tuple[Tensor, ...],
        shape: tuple[float, ...],
        used: float,
    ) -> Tensor:
        inner = int(inputs[0].shape[-1])
        self._check(name, (inner, shape[-1], self.sizes.number("expert_count")))
        numbers = self._numbers(name)
        return self.w.op(
            name, "matmul", inputs, shape,
            flops=2 * math.prod(shape) * inner,
            parameters=numbers,
            read=inputs[0].elements - (1 - used) * numbers,
        )  # fmt: skip

    # -- both ends ---------------------------------------------------------------------------

    def _embedding(self) -> Tensor:
        """Reads the rows of its tokens only."""
        table = self.parts.weight("token_embd")
        self._check("token_embd", (self.hidden, table.shape[-1]))
        shape = (self.options.batch, self.tokens, self.hidden)
        numbers, item = self._numbers("token_embd"), self.w.item_bytes
        rows = self.options.batch * self.tokens * table.row_bytes / item
        x = self.w.op(
            "token_embd", "embedding", (), shape,
            parameters=numbers, read=rows - numbers, tied=None if self._has("output") else "output",
        )  # fmt: skip
        x = self._norm("token_embd_norm", x)
        if not self._has("position_embd"):
            return x
        positions = self.parts.weight("position_embd").shape[-1]
        if self.options.context > positions:
            raise FormatError(
                f"{self.parts.path}: context is {self.options.context}, but the model has "
                f"{positions} positions"
            )
        return self.w.elementwise(
            "position_embd", "add", (x,), parameters=self._numbers("position_embd")
        )

    def _head(self, x: Tensor) -> Tensor:
        """The logits; without an output matrix, by the embedding's."""
        if self._has("output"):
            return self._linear("output", x, self.parts.weight("output").shape[-1])
        table = self.parts.weight("token_embd")
        shape = (*x.shape[:-1], table.shape[-1])
        return self.w.op(
            "output", "matmul", (x,), shape,
            flops=2 * math.prod(shape) * self.hidden,
            parameters=table.bytes / self.w.item_bytes, tied="output",
        )  # fmt: skip

    # -- ops with weights ----------------------------------------------------------------------

    def _has(self, name: str) -> bool:
        return self.parts.has(self._stem + name)

    def _width(self, name: str) -> int:
        return self.parts.weight(self._stem + name).shape[-1]

    def _norm(self, name: str, x: Tensor) -> Tensor:
        """`x` normalised by the weights of that name; `x` itself where there are none."""
        if not self._has(name):
            return x
        return self.w.elementwise(name, self.kind.norm, (x,), parameters=self._numbers(name))

    def _linear(self, name: str, x: Tensor, width: int) -> Tensor:
        """x · W, and its bias."""
        inner = int(x.shape[-1])
        self._check(name, (inner, width))
        shape = (*x.shape[:-1], width)
        return self.w.op(
            name, "matmul", (x,), shape,
            flops=2 * math.prod(shape) * inner,
            parameters=self._numbers(name),
        )  # fmt: skip

    def _numbers(self, name: str) -> float:
        """How many of the activations' numbers take the bytes that the file has for a weight."""
        return self.parts.take(self._stem + name) / self.w.item_bytes

    def _check(self, name: str, shape: tuple[float, ...]) -> None:
        found = self.parts.weight(self._stem + name)
        given = found.shape if len(shape) <= len(found.shape) else (*found.shape, 1)
        if tuple(given) != tuple(shape):
            raise FormatError(
                f"{self.parts.path}: '{found.name}' has shape {list(found.shape)}; its metadata "
                f"says {[int(each) for each in shape]}"
            )
