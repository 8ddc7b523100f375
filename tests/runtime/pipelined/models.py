"""Factories of small models for pipelines: the tiny families with a loss, and models with skips."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.runtime import models
from tests.runtime.models import Made


def _tokens(rows: int = 2) -> Tensor:
    return torch.randint(2, 96, (rows, 16), generator=torch.Generator().manual_seed(1))


def _trained(made: Made, **more: Any) -> Made:
    """The same model with what makes it return a loss."""
    module, args, kwargs = made
    return module.train(), args, {**kwargs, **more}


def gpt2() -> Made:
    """With its dropout."""
    return _trained(models.gpt2(), labels=_tokens())


def llama() -> Made:
    return _trained(models.llama(), labels=_tokens())


def resnet() -> Made:
    """With batch statistics."""
    return _trained(models.resnet(), labels=torch.tensor([0, 1]))


def t5() -> Made:
    module, _, kwargs = models.t5()
    module.config.decoder_start_token_id = 0  # type: ignore[union-attr]
    return _trained((module, (), {"input_ids": kwargs["input_ids"]}), labels=_tokens())


class Assigned(nn.Module):
    """Adds to a part of a tensor, and writes numbers of another type into one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x) * 1.0
        y[:, 0] += 1.0
        y[:, 1:3] = y[:, 3:4].double()
        return self.last(y.relu()).square().mean()


def assigned() -> Made:
    return _trained((Assigned(), (torch.ones(4, 6),), {}))


class UNet(nn.Module):
    """Down twice and up again, with a skip at each level; normalised over the batch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = _block(1, 4), _block(4, 8)
        self.bottom = _block(8, 8)
        self.up, self.last = _block(16, 4), _block(8, 4)
        self.head = nn.Conv2d(4, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        wide = self.first(image)
        narrow = self.second(nn.functional.max_pool2d(wide, 2))
        bottom = self.bottom(nn.functional.max_pool2d(narrow, 2))
        up = self.up(torch.cat([_doubled(bottom), narrow], 1))
        made: Tensor = self.head(self.last(torch.cat([_doubled(up), wide], 1)))
        return made


def _block(before: int, after: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.SiLU())


def _doubled(x: Tensor) -> Tensor:
    return nn.functional.interpolate(x, scale_factor=2)


class Words(nn.Module):
    """An embedding whose weight is the head's too, and an LSTM between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(24, 12)
        self.lstm = nn.LSTM(12, 12, num_layers=2, batch_first=True)
        self.head = nn.Linear(12, 24)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        made: Tensor = self.head(self.lstm(self.embed(tokens))[0])
        return made


class WithLoss(nn.Module):
    def __init__(self, model: nn.Module, loss: Any) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        made: Tensor = self.loss(self.model(x), wanted)
        return made


def _image() -> Tensor:
    return torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def unet() -> Made:
    return UNet(), (_image(),), {}


def unet_loss() -> Made:
    return WithLoss(UNet(), nn.functional.mse_loss), (_image(), _image().flip(2)), {}


def lstm() -> Made:
    return Words(), (_tokens()[:, :6] % 24,), {}


def lstm_loss() -> Made:
    def loss(made: Tensor, wanted: Tensor) -> Tensor:
        return nn.functional.cross_entropy(made.flatten(0, 1), wanted.flatten())

    tokens = _tokens()[:, :6] % 24
    return WithLoss(Words(), loss), (tokens, tokens.roll(1, 1)), {}


def chain_loss() -> Made:
    x = torch.arange(16.0).reshape(2, 8) / 16
    return WithLoss(models.Chain(torch.neg), nn.functional.mse_loss), (x, x.flip(1)), {}


class Taught(nn.Module):
    """A layer that learns what another one says, which learns something else meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.pupil, self.teacher = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.teacher(x).relu()
        made = self.teacher(self.pupil(x)).square().mean()
        return nn.functional.mse_loss(self.pupil(x), wanted) + made


def taught() -> Made:
    return Taught(), (torch.arange(16.0).reshape(2, 8) / 16,), {}


INFERENCE = {
    "gpt2": models.gpt2,
    "llama": models.llama,
    "resnet": models.resnet,
    "t5": models.t5,
    "unet": unet,
    "lstm": lstm,
}
TRAINING = {
    "gpt2": gpt2,
    "llama": llama,
    "resnet": resnet,
    "t5": t5,
    "unet": unet_loss,
    "lstm": lstm_loss,
    "assigned": assigned,
    "taught": taught,
}
