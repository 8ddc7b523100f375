"""A virtual stage as a module that torch.distributed.pipelining runs."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from placewright.runtime.pipelined.boundaries import Crossings
from placewright.runtime.pipelined.cutting import VirtualStage
from placewright.runtime.pipelined.randomness import Moment, Seeded, drawing
from placewright.runtime.pipelined.samples import Sample
from placewright.runtime.ranks.channels import OpError
from placewright.runtime.stages.code import Call
from placewright.runtime.stages.compiled import Compiled


class StageModule(torch.nn.Module):
    """Gets what the stage before sent, and gives what the next one needs.

    `state` holds the weights of the whole rank by name, so that its stages share them; new values
    take the place of old ones, which autograd may still need. `samples` are the program's inputs
    of each micro-batch. The number of the micro-batch is an argument, for torch hands out
    arguments as it hands out the batch.
    """

    def __init__(
        self,
        stage: VirtualStage,
        received: Crossings,
        sent: Crossings,
        state: MutableMapping[str, Any],
        samples: Sequence[Sample],
    ) -> None:
        super().__init__()
        self.stage = stage
        self.received = received
        self.sent = sent
        self.results: dict[int, list[Any]] | None = None
        """By micro-batch, the program's outputs made here; None if they are not to be kept."""
        self.step: int | None = None
        """The training step, which seeds what draws at random; None: nothing is seeded."""
        self.state = state
        self._samples = samples
        self._run = Compiled(stage.code)
        self._drawing = drawing(stage.code)

    def forward(self, *received: Tensor, micro_batch: Tensor) -> tuple[Tensor, ...]:
        number = int(micro_batch)
        sample = self._samples[number % len(self._samples)]
        made = self._made(
            [
                *(each.unpack(value) for each, value in zip(self.received, received, strict=True)),
                *(self.state[name] for name in self.stage.weights.values()),
                *(sample[name] for name in self.stage.inputs),
            ],
            number,
        )
        sends, ends = len(self.sent), len(made) - len(self.stage.updates)
        sent, results, updates = made[:sends], made[sends:ends], made[ends:]
        for name, value in zip(self.stage.updates, updates, strict=True):
            self.state[name] = value.detach()
        if self.results is not None:
            self.results[number] = [_copied(value) for value in results]
        return tuple(each.pack(value) for each, value in zip(self.sent, sent, strict=True))

    def _made(self, values: list[Any], number: int) -> list[Any]:
        seeded: AbstractContextManager[Any] = nullcontext()
        if self._drawing and self.step is not None:
            seeded = Seeded(self._drawing, Moment(self.step, number))
        try:
            with seeded:
                return self._run(None, values)  # type: ignore[no-any-return]
        except Exception as error:
            step = self._run.step_of(error)
            if isinstance(step, Call):
                raise OpError(step.name) from error
            raise


def state_of(weights: Mapping[str, Any], trained: Sequence[str]) -> dict[str, Any]:
    """The weights of a rank, those in `trained` with gradients; they share the memory given."""
    return {
        name: value.detach().requires_grad_(name in trained) if isinstance(value, Tensor) else value
        for name, value in weights.items()
    }


def _copied(value: Any) -> Any:
    """A tensor may look into what was received, whose place the next batch takes."""
    return value.detach().clone() if isinstance(value, Tensor) else value
