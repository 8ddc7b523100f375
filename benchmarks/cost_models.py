"""Models of `cost_accuracy` that Transformers does not have, with random weights."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

CHANNELS = (32, 64, 128, 256)


class Block(nn.Module):
    """Two convolutions, each normalised and rectified."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in (inputs, outputs):
            layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class UNet(nn.Module):
    """Ronneberger et al. 2015, at an eighth of its width: down, up, and skips between."""

    def __init__(self) -> None:
        super().__init__()
        pairs = list(pairwise(CHANNELS))
        self.first = Block(3, CHANNELS[0])
        self.down = nn.ModuleList(Block(a, b) for a, b in pairs)
        self.raise_ = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
        self.up = nn.ModuleList(Block(2 * a, a) for a, _ in reversed(pairs))
        self.last = nn.Conv2d(CHANNELS[0], 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        skips = [x]
        for block in self.down:
            x = block(nn.functional.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for raise_, block in zip(self.raise_, self.up, strict=True):
            x = block(torch.cat([skips.pop(), raise_(x)], dim=1))
        return self.last(x)


def unet() -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    return UNet().eval(), (torch.randn(1, 3, 192, 192),)
