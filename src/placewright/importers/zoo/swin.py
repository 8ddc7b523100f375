"""Swin: a hierarchical vision transformer with attention inside windows.

How the Moirai paper's Table IV is read: it gives layers, one hidden size and one number of heads,
and ``layers · (11 + 12·heads)`` ops. The hidden size is the width of the first of Swin's four
stages (each later one is twice as wide): 512 with 32 layers as 2, 2, 26, 2 has 1.79 G parameters,
as the table says. The two larger models come out right (6.5 G and 13.2 G) with 4 layers in the last
stage, as in Swin V2-G. The number of heads is the same in every stage, as the counts demand;
published Swin (`swin-t`, `swin-b`) doubles it with the width (`grow_heads`).

Partition into windows, and back, is folded into the norm before and the residual add after in
granularity ``head`` (Table IV leaves no ops for it) and is a copy of its own in ``op``. Positions
are padded to whole windows, as the model does; the cyclic shift of every second layer changes no
cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from placewright.importers.zoo.attention import Attention, attend
from placewright.importers.zoo.blocks import Tensor, Writer, model_input, require
from placewright.importers.zoo.options import Hyper, choice, number, switch

PATCH = 4


@dataclass(frozen=True, kw_only=True)
class Swin(Hyper):
    """`hidden` and `heads` are the first stage's; `layers1` … `layers4` those of each stage."""

    hidden: int = number(96)
    heads: int = number(3)
    layers1: int = number(2)
    layers2: int = number(2)
    layers3: int = number(6)
    layers4: int = number(2)
    grow_heads: bool = switch(True)
    image: int = number(224, minimum=32)
    window: int = number(7)
    classes: int = number(1000)
    granularity: str = choice("op", "op", "head")


@dataclass(frozen=True)
class _Stage:
    """Sizes inside one stage: `side`² positions of `hidden` numbers, in windows of `window`²."""

    batch: int
    side: int
    hidden: int
    window: int
    how: Attention

    @property
    def windows(self) -> int:
        return math.ceil(self.side / self.window) ** 2

    @property
    def positions(self) -> tuple[int, int, int]:
        return (self.batch, self.side**2, self.hidden)

    @property
    def partitioned(self) -> tuple[int, int, int]:
        return (self.batch * self.windows, self.window**2, self.hidden)


def write_swin(w: Writer, shape: Swin) -> None:
    """Patch embedding, four stages joined by patch merging, mean over positions, classifier."""
    side = math.ceil(shape.image / PATCH)
    x = model_input(shape.batch, 3, side * PATCH, side * PATCH)
    with w.scope("patch_embedding"):
        x = w.conv("project", x, shape.hidden, (PATCH, PATCH), stride=PATCH, bias=True)
        x = w.view("flatten", "reshape", x, (shape.batch, side**2, shape.hidden))
        x = w.norm("norm", x)
    for number_, layers in enumerate((shape.layers1, shape.layers2, shape.layers3, shape.layers4)):
        with w.scope(f"stages.{number_}"):
            if number_:
                side = math.ceil(side / 2)
                x = _merge(w, x, side)
            stage = _stage(w, shape, number_, side)
            for layer in range(layers):
                with w.scope(f"blocks.{layer}"):
                    x = _block(w, x, stage)
    x = w.norm("final_norm", x)
    x = w.op("mean", "mean", (x,), (shape.batch, x.shape[-1]), flops=x.elements)
    w.linear("classifier", x, shape.classes)


def _stage(w: Writer, shape: Swin, stage: int, side: int) -> _Stage:
    hidden = shape.hidden * 2**stage
    heads = shape.heads * (2**stage if shape.grow_heads else 1)
    require(
        hidden % heads == 0,
        w.builder.name,
        f"hidden ({hidden} in stage {stage}) must be a multiple of heads ({heads} there)",
    )
    how = Attention(
        heads=heads,
        kv_heads=heads,
        head_size=hidden // heads,
        by_head=shape.granularity == "head",
        table=(2 * shape.window - 1) ** 2,
    )
    return _Stage(shape.batch, side, hidden, shape.window, how)


def _merge(w: Writer, x: Tensor, side: int) -> Tensor:
    """Four neighbours side by side, normed, projected to twice the width; `side` is the new one."""
    with w.scope("merge"):
        wide = w.copy("gather", "concat", x, (x.shape[0], side**2, 4 * x.shape[-1]))
        return w.linear("project", w.norm("norm", wide), 2 * int(x.shape[-1]), bias="none")


def _block(w: Writer, x: Tensor, stage: _Stage) -> Tensor:
    with w.scope("attention"):
        if stage.how.by_head:
            parts = w.elementwise(
                "norm", "layernorm", (x,), shape=stage.partitioned, parameters=2 * stage.hidden
            )
            y = attend(w, parts, stage.how)
        else:
            parts = w.copy("partition", "window", w.norm("norm", x), stage.partitioned)
            y = w.copy("reverse", "window", attend(w, parts, stage.how), stage.positions)
        x = w.elementwise("residual", "add", (x, y))
    with w.scope("mlp"):
        y = w.linear("fc1", w.norm("norm", x), 4 * stage.hidden)
        y = w.elementwise("gelu", "gelu", (y,))
        y = w.linear("fc2", y, stage.hidden, bias="inside" if stage.how.by_head else "op")
        return w.elementwise("residual", "add", (x, y))
