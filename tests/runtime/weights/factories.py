"""Factories that tests name as ``torch:tests.runtime.weights.factories:…``."""

from __future__ import annotations

from typing import Any

import torch


class Tied(torch.nn.Module):
    """Tied and transposed weights, a buffer outside the state dict, and constants."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.turned = torch.nn.Parameter(torch.rand(4, 4).t())
        self.register_buffer("scale", torch.full((4,), 3.0), persistent=False)
        self.shift = torch.arange(4.0)

    def forward(self, x: Any) -> Any:
        made = self.second(self.first(x)) @ self.turned * self.scale
        return made + self.shift + torch.tensor([1.0, 2.0, 3.0, 4.0])


def real() -> tuple[Any, ...]:
    torch.manual_seed(0)
    return Tied(), (torch.zeros(2, 4),)


def on_meta() -> tuple[Any, ...]:
    with torch.device("meta"):
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)), (
            torch.zeros(2, 4),
        )


class OnlyBuilt(torch.nn.Module):
    """Its parameter has a value only from its constructor."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: Any) -> Any:
        return x * self.gain


def only_built() -> tuple[Any, ...]:
    with torch.device("meta"):
        return torch.nn.Sequential(OnlyBuilt()), (torch.zeros(2, 4),)


def with_constant() -> tuple[Any, ...]:
    with torch.device("meta"):
        module = torch.nn.Sequential(torch.nn.Linear(4, 4))
        module.append(Shift())
        return module, (torch.zeros(2, 4),)


class Shift(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.ones(4)

    def forward(self, x: Any) -> Any:
        return x + self.shift
