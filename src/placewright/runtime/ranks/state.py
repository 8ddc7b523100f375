"""Weights between calls: new values of buffers, and the optimizer's step of parameters.

A buffer that the program writes to (a KV cache, a batch norm's running mean) has its new value in
the next call. Where a program gives gradients and there is an optimizer, it takes a step after
every call; each rank does so for the parameters it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placewright.errors import OptionError

if TYPE_CHECKING:
    import torch

_CLASSES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}  # in torch.optim
OPTIMIZERS = tuple(_CLASSES)


@dataclass(frozen=True)
class Optimizer:
    """One of torch's optimizers by name, with its learning rate.

    OptionError for another name, or a rate that is not positive.
    """

    name: str
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        if self.name not in _CLASSES:
            raise OptionError(
                f"optimizer is '{self.name}'; choose {', '.join(OPTIMIZERS)}, or none"
            )
        if not 0 < self.learning_rate < float("inf"):
            raise OptionError(f"learning rate is {self.learning_rate}; it must be positive")

    def over(self, parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        from torch import optim

        # Parameter by parameter: a rank that holds some makes the same steps as one with all.
        made: Any = getattr(optim, _CLASSES[self.name])
        return made(parameters, lr=self.learning_rate, foreach=False)  # type: ignore[no-any-return]


STEEPEST = Optimizer("sgd", 0.01)
"""Plain gradient descent: its step needs nothing but the gradients."""


class State:
    """The weights of one process, by name, as the next call is to have them."""

    def __init__(self, weights: Mapping[str, Any], optimizer: Optimizer | None = None) -> None:
        self.weights = dict(weights)
        self._optimizer = optimizer
        self._steps: dict[str, torch.optim.Optimizer] = {}

    def update(
        self, updates: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor]
    ) -> None:
        """After a call: take over new values, and step down the gradients."""
        self.weights.update(updates)
        if self._optimizer is None:
            return
        for name, gradient in gradients.items():
            if name not in self._steps:  # its own copy: the values it came with stay as they are
                self.weights[name] = self.weights[name].detach().clone()
                self._steps[name] = self._optimizer.over([self.weights[name]])
            self.weights[name].grad = gradient
            self._steps[name].step()
            self.weights[name].grad = None
