"""AlphaFold2's Evoformer stack (Jumper et al. 2021, supplement, algorithms 6 to 15).

A block updates the MSA representation [sequences, residues, hidden] and the pair representation
[residues, residues, pair]: MSA row attention with pair bias, MSA column attention, MSA transition,
outer product mean, two triangle multiplications, two triangle attentions, pair transition.
Templates, the extra MSA stack, recycling and the structure module are left out, and so is dropout.

How the Moirai paper's Table IV is read:

- Its hidden size is the MSA width, its heads those of MSA attention (32 numbers a head), its
  "sequence batch 128" the sequences of the MSA; 256 residues, as in AlphaFold2's first training.
- It does not give the pair width. 128, AlphaFold2's own, gives the 87 M model its parameters; the
  others need 512 to come within 10 % of their names.
- Its count of ops is ``layers · (11 + 12·heads)``. Granularity ``head`` (the default) meets it
  exactly: MSA row attention is opened head by head (12 ops a head: matmul of q, k, v and gate,
  sigmoid, transpose of k, scores, scale, pair bias, softmax, context, gating) with 3 ops shared
  (norm; pair norm and projection to biases; output projection with its residual add, which reads
  the heads where they are), and the other 8 modules are one op each, with the costs of all their
  parts.

Granularity ``op`` opens every module with all heads at once, ``full`` opens every module and
splits every attention head by head (over 130,000 ops for the 3.2 G model).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from placewright.importers.zoo.blocks import Tensor, Writer, model_input, require
from placewright.importers.zoo.options import Hyper, choice, number

HEAD_SIZE = 32
OUTER_WIDTH = 32
SINGLE_WIDTH = 384
MSA_FEATURES, TARGET_FEATURES, RELATIVE_POSITIONS = 49, 22, 65


@dataclass(frozen=True, kw_only=True)
class Evoformer(Hyper):
    """`hidden` and `pair`: widths of the MSA and the pair representation."""

    layers: int = number(48)
    hidden: int = number(256)
    pair: int = number(128)
    heads: int = number(8)
    sequences: int = number(128)
    residues: int = number(256)
    granularity: str = choice("head", "head", "op", "full")


def write_evoformer(w: Writer, shape: Evoformer) -> None:
    """Input embedding, the stack, and the projection to the single representation."""
    require(
        shape.pair % HEAD_SIZE == 0,
        w.builder.name,
        f"pair ({shape.pair}) must be a multiple of {HEAD_SIZE}, the size of a pair head",
    )
    msa, pair = _embed(w, shape)
    for layer in range(shape.layers):
        with w.scope(f"blocks.{layer}"):
            msa, pair = _block(w, msa, pair, shape)
    first = w.view("first_row", "slice", msa, (shape.batch, shape.residues, shape.hidden))
    w.linear("single", first, SINGLE_WIDTH, bias="inside")


def _embed(w: Writer, shape: Evoformer) -> tuple[Tensor, Tensor]:
    """Algorithms 3 and 4: features of MSA and target to the two representations."""
    rows, columns = shape.sequences, shape.residues
    features = model_input(shape.batch, rows, columns, MSA_FEATURES + TARGET_FEATURES)
    relative = model_input(shape.batch, columns, columns, RELATIVE_POSITIONS + 2 * TARGET_FEATURES)
    with w.scope("embedding"):
        msa = w.linear("msa", features, shape.hidden, bias="inside")
        return msa, w.linear("pair", relative, shape.pair, bias="inside")


def _block(w: Writer, msa: Tensor, pair: Tensor, shape: Evoformer) -> tuple[Tensor, Tensor]:
    """One Evoformer block (algorithm 6): both representations after it."""
    split = shape.granularity == "full"
    pair_heads = shape.pair // HEAD_SIZE

    def module(name: str, type: str, write: Callable[[], Tensor]) -> Tensor:
        if shape.granularity == "head":
            return w.whole(name, type, write)
        with w.scope(name):
            return write()

    with w.scope("msa_row_attention"):
        msa = _row_attention(w, msa, pair, shape)
    msa = module(
        "msa_column_attention", "column_attention",
        lambda: _column_attention(w, msa, shape.heads, split),
    )  # fmt: skip
    msa = module("msa_transition", "transition", lambda: _transition(w, msa))
    pair = module(
        "outer_product_mean", "outer_product_mean", lambda: _outer_product_mean(w, msa, pair)
    )
    for direction in ("outgoing", "incoming"):
        pair = module(
            f"triangle_multiplication_{direction}", "triangle_multiplication",
            partial(_triangle_multiplication, w, pair),
        )  # fmt: skip
    for end in ("start", "end"):
        pair = module(
            f"triangle_attention_{end}", "triangle_attention",
            partial(_triangle_attention, w, pair, pair_heads, split, turned=end == "end"),
        )  # fmt: skip
    pair = module("pair_transition", "transition", lambda: _transition(w, pair))
    return msa, pair


# -- the three attentions ----------------------------------------------------------------------


def _row_attention(w: Writer, msa: Tensor, pair: Tensor, shape: Evoformer) -> Tensor:
    """Algorithm 7: within a sequence, biased by the pair representation."""

    def biases() -> Tensor:
        return w.linear("bias", w.norm("bias_norm", pair), shape.heads, bias="none")

    def output() -> Tensor:
        return _output(w, heads, msa, joined_in_place=shape.granularity == "head")

    x = w.norm("norm", msa)
    whole = shape.granularity == "head"
    bias = w.whole("pair_bias", "pair_bias", biases) if whole else biases()
    heads = _heads(w, x, shape.heads, bias, split=shape.granularity != "op")
    return w.whole("output", "matmul", output) if whole else output()


def _column_attention(w: Writer, msa: Tensor, heads: int, split: bool) -> Tensor:
    """Algorithm 8: within a residue, across sequences."""
    x = _turn(w, "columns", w.norm("norm", msa))
    contexts = [
        _turn(w, f"rows_{i}", each) for i, each in enumerate(_heads(w, x, heads, None, split))
    ]
    return _output(w, contexts, msa)


def _triangle_attention(w: Writer, pair: Tensor, heads: int, split: bool, turned: bool) -> Tensor:
    """Algorithms 13 and 14: around the starting node, or (`turned`) the ending node."""
    x = w.norm("norm", pair)
    if turned:
        x = _turn(w, "columns", x)
    bias = w.linear("bias", x, heads, bias="none")
    contexts = _heads(w, x, heads, bias, split)
    if turned:
        contexts = [_turn(w, f"rows_{i}", each) for i, each in enumerate(contexts)]
    return _output(w, contexts, pair)


def _heads(w: Writer, x: Tensor, heads: int, bias: Tensor | None, split: bool) -> list[Tensor]:
    """The gated context of every head, or of all at once."""
    if not split:
        return [_gated_context(w, x, heads, bias)]
    contexts = []
    for head in range(heads):
        with w.scope(f"head.{head}"):
            contexts.append(_gated_context(w, x, 1, bias))
    return contexts


def _gated_context(w: Writer, x: Tensor, heads: int, bias: Tensor | None) -> Tensor:
    """Of x[batch, rows, length, width]: attention along `length`, each row by itself."""
    width = heads * HEAD_SIZE
    length = int(x.shape[2])
    query, key, value = (w.linear(name, x, width, bias="none") for name in ("q", "k", "v"))
    gate = w.linear("gate", x, width, bias="inside")
    gate = w.elementwise("gate_sigmoid", "sigmoid", (gate,))
    key = w.view("k_transpose", "transpose", key)
    shape = (*x.shape[:2], heads, length, length)
    scores = w.matmul("scores", (query, key), shape, HEAD_SIZE)
    scores = w.elementwise("scale", "scale", (scores,))
    if bias is not None:
        used = x.shape[0] * heads * length * length
        scores = w.op(
            "add_bias", "add", (scores, bias), shape,
            flops=scores.elements, read=scores.elements + used,
        )  # fmt: skip
    weights = w.elementwise("softmax", "softmax", (scores,))
    context = w.matmul("context", (weights, value), (*x.shape[:3], width), length)
    return w.elementwise("gated", "mul", (context, gate))


def _output(
    w: Writer, contexts: list[Tensor], residual: Tensor, joined_in_place: bool = False
) -> Tensor:
    """Join the heads, project them and add to `residual`."""
    joined = contexts[0]
    if len(contexts) > 1:
        width = sum(each.shape[-1] for each in contexts)
        shape = (*residual.shape[:-1], width)
        moved = 0.0 if joined_in_place else None
        joined = w.op("concat", "concat", contexts, shape, read=moved, written=moved)
    y = w.linear("output", joined, int(residual.shape[-1]), bias="inside")
    return w.elementwise("residual", "add", (y, residual))


def _turn(w: Writer, name: str, x: Tensor) -> Tensor:
    """Swap rows and columns: a view."""
    batch, rows, columns, width = x.shape
    return w.view(name, "transpose", x, (batch, columns, rows, width))


# -- the other modules -------------------------------------------------------------------------


def _transition(w: Writer, x: Tensor) -> Tensor:
    """Algorithms 9 and 15: a feed-forward four times as wide."""
    width = int(x.shape[-1])
    y = w.linear("fc1", w.norm("norm", x), 4 * width, bias="inside")
    y = w.elementwise("relu", "relu", (y,))
    y = w.linear("fc2", y, width, bias="inside")
    return w.elementwise("residual", "add", (y, x))


def _outer_product_mean(w: Writer, msa: Tensor, pair: Tensor) -> Tensor:
    """Algorithm 10: the outer product of every two columns of the MSA, averaged over it."""
    batch, sequences, residues, _ = msa.shape
    x = w.norm("norm", msa)
    left = w.linear("left", x, OUTER_WIDTH, bias="inside")
    right = w.linear("right", x, OUTER_WIDTH, bias="inside")
    shape = (batch, residues, residues, OUTER_WIDTH**2)
    outer = w.matmul("outer", (left, right), shape, int(sequences))
    outer = w.elementwise("mean", "scale", (outer,))
    y = w.linear("output", outer, int(pair.shape[-1]), bias="inside")
    return w.elementwise("residual", "add", (y, pair))


def _triangle_multiplication(w: Writer, pair: Tensor) -> Tensor:
    """Algorithms 11 and 12; the two directions cost the same."""
    width = int(pair.shape[-1])
    x = w.norm("norm", pair)
    sides = []
    for side in ("left", "right"):
        y = w.linear(side, x, width, bias="inside")
        sides.append(_gate(w, side, x, y))
    product = w.matmul("product", (sides[0], sides[1]), pair.shape, int(pair.shape[1]))
    y = w.linear("output", w.norm("product_norm", product), width, bias="inside")
    return w.elementwise("residual", "add", (_gate(w, "output", x, y), pair))


def _gate(w: Writer, name: str, x: Tensor, y: Tensor) -> Tensor:
    """y · sigmoid(linear(x))."""
    gate = w.linear(f"{name}_gate", x, int(y.shape[-1]), bias="inside")
    gate = w.elementwise(f"{name}_gate_sigmoid", "sigmoid", (gate,))
    return w.elementwise(f"{name}_gated", "mul", (y, gate))
