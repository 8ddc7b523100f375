"""Measuring the optimizer's step of a parameter, as a run takes it: each parameter by itself.

A run has one optimizer of torch a parameter, without its `foreach` variants. Parameter, gradient
and state come from memory, as they do after a forward and a backward: copies take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from placewright.costs.profiles.program import THIS_PROCESS, copies_of, samples_at
from placewright.costs.profiles.steady import Watch
from placewright.errors import ExecutionError, reason
from placewright.importers.torch.programs import Executable
from placewright.importers.torch.signature import described
from placewright.system.accelerators.places import Place

if TYPE_CHECKING:
    import torch

Stepper = Literal["sgd", "adam", "adamw", "none"]

_TENSORS: Mapping[str, int] = {"sgd": 2, "adam": 4, "adamw": 4}
"""How many tensors like the parameter a step reads: itself, its gradient, and the state."""


def step_signatures(executable: Executable, optimizer: str) -> dict[str, torch.Tensor]:
    """By signature, a parameter of each shape and type that the program has a gradient of.

    ``optimizer.adamw(float32[768,768])``; the tensors have shapes only.
    """
    found: dict[str, torch.Tensor] = {}
    for node in executable.module.graph.find_nodes(op="placeholder"):
        if executable.weights.get(node.name) in executable.gradients:
            value = node.meta["val"]
            found.setdefault(f"optimizer.{optimizer}({described(value)})", value)
    return found


def step_seconds(
    optimizer: str,
    parameter: torch.Tensor,
    watch: Watch,
    *,
    seed: int = 0,
    place: Place = THIS_PROCESS,
) -> list[float]:
    """Seconds of a step of a parameter of that shape, on the `place` entered.

    ExecutionError if it fails.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    amount = parameter.numel() * parameter.element_size() * _TENSORS[optimizer]
    try:
        steps = [_step(optimizer, parameter, generator, place) for _ in range(copies_of(amount))]
        for step in steps:  # the first makes the state
            step()
        return samples_at(place, lambda number: steps[number % len(steps)](), watch)
    except Exception as error:
        raise ExecutionError(
            f"a step of {optimizer} cannot be made here ({type(error).__name__}: {reason(error)})"
        ) from error


def _step(
    optimizer: str, parameter: torch.Tensor, generator: torch.Generator, place: Place
) -> Callable[[], object]:
    import torch

    classes: Mapping[str, Any] = {
        "sgd": torch.optim.SGD,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    shape, strides = list(parameter.shape), list(parameter.stride())
    own, gradient = (
        torch.empty_strided(shape, strides, dtype=parameter.dtype, device=place.device).copy_(
            torch.randn(shape, generator=generator)
        )
        for _ in range(2)
    )
    own.grad = gradient
    made: Callable[[], object] = classes[optimizer]([own], lr=1e-6, foreach=False).step
    return made
