"""ResNet, GoogLeNet and Inception v3 with the shapes of torchvision's models.

Every convolution is three ops, ``conv``, ``bn`` and ``relu`` (the relu after the add where there
is a shortcut). Dropout does nothing at inference and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placewright.importers.zoo.blocks import Tensor, Writer, model_input
from placewright.importers.zoo.options import Hyper, choice, number, switch

RESNET_LAYERS = {"50": (3, 4, 6, 3), "101": (3, 4, 23, 3), "152": (3, 8, 36, 3)}


@dataclass(frozen=True, kw_only=True)
class Convolutional(Hyper):
    """`image` is the side of the square input in pixels."""

    dtype: str = choice("fp32", "fp32", "fp64", "tf32", "bf16", "fp16", "fp8", "int8", "int4")
    image: int = number(224)
    classes: int = number(1000)


@dataclass(frozen=True, kw_only=True)
class ResNet(Convolutional):
    """Bottleneck ResNet; `width` channels after the stem."""

    depth: str = choice("50", *RESNET_LAYERS)
    width: int = number(64)


@dataclass(frozen=True, kw_only=True)
class Inception(Convolutional):
    """`auxiliary` adds the second classifier half way, which only training needs."""

    image: int = number(299)
    auxiliary: bool = switch(False)


# -- ResNet ------------------------------------------------------------------------------------


def write_resnet(w: Writer, shape: ResNet) -> None:
    """He et al. 2015, with the stride in the 3×3 convolution of a bottleneck."""
    x = model_input(shape.batch, 3, shape.image, shape.image)
    with w.scope("stem"):
        x = _unit(w, "conv", x, shape.width, 7, stride=2, padding=3)
        x = w.pool("maxpool", x, 3, stride=2, padding=1)
    for stage, count in enumerate(RESNET_LAYERS[shape.depth]):
        for block in range(count):
            with w.scope(f"stages.{stage}.blocks.{block}"):
                stride = 2 if stage and not block else 1
                x = _bottleneck(w, x, shape.width * 2**stage, stride, project=not block)
    _classify(w, x, shape.classes)


def _bottleneck(w: Writer, x: Tensor, width: int, stride: int, project: bool) -> Tensor:
    y = _unit(w, "conv1", x, width, 1)
    y = _unit(w, "conv2", y, width, 3, stride=stride, padding=1)
    y = _unit(w, "conv3", y, 4 * width, 1, relu=False)
    shortcut = x
    if project:
        shortcut = _unit(w, "shortcut", x, 4 * width, 1, stride=stride, relu=False)
    return w.elementwise("relu", "relu", (w.elementwise("add", "add", (y, shortcut)),))


# -- GoogLeNet ---------------------------------------------------------------------------------

_GOOGLENET: dict[str, tuple[int, int, int, int, int, int]] = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""Channels of 1×1; 3×3 reduce, 3×3; 5×5 reduce, 5×5; pool projection (Szegedy et al., Table 1)."""


def write_googlenet(w: Writer, shape: Convolutional) -> None:
    """Szegedy et al. 2014 with batch norm; as in torchvision, the "5×5" branch is 3×3."""
    x = model_input(shape.batch, 3, shape.image, shape.image)
    with w.scope("stem"):
        x = _unit(w, "conv1", x, 64, 7, stride=2, padding=3)
        x = w.pool("maxpool1", x, 3, stride=2, ceil=True)
        x = _unit(w, "conv2", x, 64, 1)
        x = _unit(w, "conv3", x, 192, 3, padding=1)
        x = w.pool("maxpool2", x, 3, stride=2, ceil=True)
    for name, channels in _GOOGLENET.items():
        if name in ("4a", "5a"):
            kernel = 3 if name == "4a" else 2
            x = w.pool(f"maxpool_{name}", x, kernel, stride=2, ceil=True)
        with w.scope(f"inception_{name}"):
            x = _googlenet_module(w, x, channels)
    _classify(w, x, shape.classes)


def _googlenet_module(w: Writer, x: Tensor, channels: Sequence[int]) -> Tensor:
    one, reduce3, three, reduce5, five, projected = channels
    pooled = w.pool("branch4.maxpool", x, 3, stride=1, padding=1)
    return _concat(w, "concat", [
        _unit(w, "branch1.conv", x, one, 1),
        _unit(w, "branch2.conv", _unit(w, "branch2.reduce", x, reduce3, 1), three, 3, padding=1),
        _unit(w, "branch3.conv", _unit(w, "branch3.reduce", x, reduce5, 1), five, 3, padding=1),
        _unit(w, "branch4.conv", pooled, projected, 1),
    ])  # fmt: skip


# -- Inception v3 ------------------------------------------------------------------------------


def write_inception(w: Writer, shape: Inception) -> None:
    """Szegedy et al. 2015: modules A ×3, B, C ×4, D, E ×2."""
    x = model_input(shape.batch, 3, shape.image, shape.image)
    with w.scope("stem"):
        x = _unit(w, "conv1", x, 32, 3, stride=2)
        x = _unit(w, "conv2", x, 32, 3)
        x = _unit(w, "conv3", x, 64, 3, padding=1)
        x = w.pool("maxpool1", x, 3, stride=2)
        x = _unit(w, "conv4", x, 80, 1)
        x = _unit(w, "conv5", x, 192, 3)
        x = w.pool("maxpool2", x, 3, stride=2)
    for name, projected in (("5b", 32), ("5c", 64), ("5d", 64)):
        with w.scope(f"mixed_{name}"):
            x = _module_a(w, x, projected)
    with w.scope("mixed_6a"):
        x = _module_b(w, x)
    for name, inner in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        with w.scope(f"mixed_{name}"):
            x = _module_c(w, x, inner)
    if shape.auxiliary:
        _auxiliary(w, x, shape.classes)
    with w.scope("mixed_7a"):
        x = _module_d(w, x)
    for name in ("7b", "7c"):
        with w.scope(f"mixed_{name}"):
            x = _module_e(w, x)
    _classify(w, x, shape.classes)


def _module_a(w: Writer, x: Tensor, projected: int) -> Tensor:
    five = _unit(w, "branch5x5.conv1", x, 48, 1)
    double = _unit(w, "branch3x3dbl.conv1", x, 64, 1)
    double = _unit(w, "branch3x3dbl.conv2", double, 96, 3, padding=1)
    return _concat(w, "concat", [
        _unit(w, "branch1x1.conv", x, 64, 1),
        _unit(w, "branch5x5.conv2", five, 64, 5, padding=2),
        _unit(w, "branch3x3dbl.conv3", double, 96, 3, padding=1),
        _pool_branch(w, x, projected),
    ])  # fmt: skip


def _module_b(w: Writer, x: Tensor) -> Tensor:
    double = _unit(w, "branch3x3dbl.conv1", x, 64, 1)
    double = _unit(w, "branch3x3dbl.conv2", double, 96, 3, padding=1)
    return _concat(w, "concat", [
        _unit(w, "branch3x3.conv", x, 384, 3, stride=2),
        _unit(w, "branch3x3dbl.conv3", double, 96, 3, stride=2),
        w.pool("branch_pool.maxpool", x, 3, stride=2),
    ])  # fmt: skip


def _module_c(w: Writer, x: Tensor, inner: int) -> Tensor:
    seven = _unit(w, "branch7x7.conv1", x, inner, 1)
    seven = _unit(w, "branch7x7.conv2", seven, inner, (1, 7), padding=(0, 3))
    double = _unit(w, "branch7x7dbl.conv1", x, inner, 1)
    double = _unit(w, "branch7x7dbl.conv2", double, inner, (7, 1), padding=(3, 0))
    double = _unit(w, "branch7x7dbl.conv3", double, inner, (1, 7), padding=(0, 3))
    double = _unit(w, "branch7x7dbl.conv4", double, inner, (7, 1), padding=(3, 0))
    return _concat(w, "concat", [
        _unit(w, "branch1x1.conv", x, 192, 1),
        _unit(w, "branch7x7.conv3", seven, 192, (7, 1), padding=(3, 0)),
        _unit(w, "branch7x7dbl.conv5", double, 192, (1, 7), padding=(0, 3)),
        _pool_branch(w, x, 192),
    ])  # fmt: skip


def _module_d(w: Writer, x: Tensor) -> Tensor:
    seven = _unit(w, "branch7x7x3.conv1", x, 192, 1)
    seven = _unit(w, "branch7x7x3.conv2", seven, 192, (1, 7), padding=(0, 3))
    seven = _unit(w, "branch7x7x3.conv3", seven, 192, (7, 1), padding=(3, 0))
    three = _unit(w, "branch3x3.conv1", x, 192, 1)
    return _concat(w, "concat", [
        _unit(w, "branch3x3.conv2", three, 320, 3, stride=2),
        _unit(w, "branch7x7x3.conv4", seven, 192, 3, stride=2),
        w.pool("branch_pool.maxpool", x, 3, stride=2),
    ])  # fmt: skip


def _module_e(w: Writer, x: Tensor) -> Tensor:
    three = _unit(w, "branch3x3.conv1", x, 384, 1)
    double = _unit(w, "branch3x3dbl.conv1", x, 448, 1)
    double = _unit(w, "branch3x3dbl.conv2", double, 384, 3, padding=1)
    return _concat(w, "concat", [
        _unit(w, "branch1x1.conv", x, 320, 1),
        _fork(w, "branch3x3", three),
        _fork(w, "branch3x3dbl", double),
        _pool_branch(w, x, 192),
    ])  # fmt: skip


def _fork(w: Writer, branch: str, x: Tensor) -> Tensor:
    """1×3 and 3×1 of the same input, side by side."""
    wide = _unit(w, f"{branch}.wide", x, 384, (1, 3), padding=(0, 1))
    tall = _unit(w, f"{branch}.tall", x, 384, (3, 1), padding=(1, 0))
    return _concat(w, f"{branch}.concat", [wide, tall])


def _pool_branch(w: Writer, x: Tensor, channels: int) -> Tensor:
    pooled = w.pool("branch_pool.avgpool", x, 3, stride=1, padding=1, type="avgpool")
    return _unit(w, "branch_pool.conv", pooled, channels, 1)


def _auxiliary(w: Writer, x: Tensor, classes: int) -> None:
    with w.scope("auxiliary"):
        x = w.pool("pool", x, 5, stride=3, type="avgpool")
        x = _unit(w, "conv1", x, 128, 1)
        x = _unit(w, "conv2", x, 768, 5)
        _classify(w, x, classes)


# -- shared ------------------------------------------------------------------------------------


def _unit(
    w: Writer,
    name: str,
    x: Tensor,
    channels: int,
    kernel: int | tuple[int, int],
    *,
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
    relu: bool = True,
) -> Tensor:
    """Convolution, batch norm and (unless told) relu."""
    kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = (padding, padding) if isinstance(padding, int) else padding
    x = w.conv(name, x, channels, kernel, stride=stride, padding=padding)
    x = w.batch_norm(f"{name}_bn", x)
    return w.elementwise(f"{name}_relu", "relu", (x,)) if relu else x


def _concat(w: Writer, name: str, parts: Sequence[Tensor]) -> Tensor:
    batch, _, height, width = parts[0].shape
    return w.concat(name, parts, (batch, sum(each.shape[1] for each in parts), height, width))


def _classify(w: Writer, x: Tensor, classes: int) -> None:
    """Mean over the image, then a linear layer."""
    pooled = (x.shape[0], x.shape[1])
    y = w.op("avgpool", "avgpool", (x,), pooled, flops=x.elements)
    w.linear("classifier", y, classes)
