"""What travels between two stages: shapes, types, and which of it has a gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from placewright.errors import InputError, PlacewrightError, reason
from placewright.importers.torch.programs import Executable
from placewright.runtime.pipelined.cutting import VirtualStage
from placewright.runtime.stages.compiled import Compiled


@dataclass(frozen=True)
class Crossing:
    """A tensor on its way to the next stage: densely packed, its dimensions in memory order.

    `order` has the tensor's dimensions as they lie in its memory, the widest stride first;
    `shape` is theirs. So a transposed tensor arrives transposed, and a `view` that the program
    takes of it is possible there too.
    """

    name: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    dtype: str
    element_bytes: int
    requires_grad: bool

    @classmethod
    def of(cls, name: str, value: Any) -> Crossing:
        if not isinstance(value, Tensor) or not all(
            isinstance(size, int) for size in (*value.shape, *value.stride())
        ):
            raise InputError(
                f"the shape of '{name}' depends on the data; export the module with static shapes"
            )
        strides = value.stride()
        order = sorted(range(value.dim()), key=lambda dimension: -strides[dimension])
        return cls(
            name,
            tuple(value.shape[dimension] for dimension in order),
            tuple(order),
            str(value.dtype).removeprefix("torch."),
            value.element_size(),
            value.requires_grad,
        )

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.element_bytes

    def pack(self, value: Tensor) -> Tensor:
        """As it travels; gradients go the same way back."""
        return value.resolve_conj().resolve_neg().permute(self.order).contiguous()

    def unpack(self, value: Tensor) -> Tensor:
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return value.permute(back)

    def example(self) -> Tensor:
        """Of this shape and type, without memory: what torch makes room by."""
        return torch.empty(
            self.shape,
            dtype=getattr(torch, self.dtype),
            device="meta",
            requires_grad=self.requires_grad,
        )


Crossings = tuple[Crossing, ...]


def crossings(executable: Executable, stages: Sequence[VirtualStage]) -> list[Crossings]:
    """What each stage sends, found by running the chain without values.

    Under autograd for a training program, so that it is known what has a gradient. InputError
    where an op cannot be run without values.
    """
    training = bool(executable.gradients)
    mode = FakeTensorMode()
    values = dict(_without_values(executable, mode))
    with mode, torch.set_grad_enabled(training):
        sent: list[Any] = []
        found = []
        for stage in stages:
            made = _run(stage, sent, values)
            found.append(tuple(map(Crossing.of, stage.sent, made)))
            sent = [value.detach().requires_grad_(value.requires_grad) for value in made]
    return found


def _without_values(executable: Executable, mode: FakeTensorMode) -> Iterator[tuple[str, Any]]:
    for placeholder, value in executable.values.items():
        if isinstance(value, Tensor):
            fake = mode.from_tensor(value.detach())
            trained = executable.weights.get(placeholder) in executable.gradients
            yield placeholder, fake.requires_grad_(trained)
        else:
            yield placeholder, value


def _run(stage: VirtualStage, sent: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
    own = [values[name] for name in (*stage.weights, *stage.inputs)]
    try:
        made = Compiled(stage.code)(None, [*sent, *own])
    except PlacewrightError:
        raise
    except Exception as error:
        raise InputError(
            f"stage {stage.index} of the pipeline cannot be run without values "
            f"({type(error).__name__}: {reason(error)}); remove what depends on data"
        ) from error
    return list(made[: len(stage.sent)])
