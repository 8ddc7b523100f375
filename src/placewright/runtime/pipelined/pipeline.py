"""A rank's part of a pipeline: its stages, a schedule of torch, and the clock beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.distributed.pipelining import PipelineStage

from placewright.runtime.pipelined import schedules
from placewright.runtime.pipelined.clock import BusyClock
from placewright.runtime.pipelined.module import StageModule
from placewright.runtime.ranks.channels import OpError
from placewright.runtime.ranks.joining import channel_errors


class Pipeline(Protocol):
    """The stages of one rank under a schedule of so many micro-batches."""

    def run(self) -> dict[int, float]:
        """All micro-batches; the losses where the last stage is, and gradients added up.

        OpError or StageError where this rank is at fault, ChannelError where another is gone.
        """


class ClockedStage(PipelineStage):
    """A stage whose module is clocked."""

    def __init__(self, module: StageModule, count: int, clock: BusyClock) -> None:
        super().__init__(
            module,
            module.stage.index,
            count,
            torch.device("cpu"),
            input_args=tuple(each.example() for each in module.received),
            output_args=tuple(each.example() for each in module.sent),
        )
        self._clock = clock

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        return self._clock.forward(super().forward_one_chunk, *args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        work = super().backward_one_chunk
        return self._clock.backward(self.stage_index, work, *args, **kwargs)


class TorchPipeline:
    """One of torch's schedules; see `Pipeline`. Its stages have one rank each."""

    def __init__(
        self,
        modules: Sequence[StageModule],
        count: int,
        *,
        method: schedules.Method,
        micro_batches: int,
        training: bool,
        folder: Path,
        clock: BusyClock,
    ) -> None:
        stages = [ClockedStage(module, count, clock) for module in modules]
        self._last = any(module.stage.index == count - 1 for module in modules)
        self._training = training
        self._numbers = torch.arange(micro_batches)
        loss = _loss if training else None
        self._schedule = schedules.made(method, stages, micro_batches, loss, folder)

    def run(self) -> dict[int, float]:
        losses: list[torch.Tensor] = []
        asked: dict[str, Any] = {"micro_batch": self._numbers, "return_outputs": False}
        if self._training:
            asked |= {"losses": losses}
            if self._last:
                asked["target"] = self._numbers  # torch wants one; the stages have the labels
        with channel_errors(), torch.set_grad_enabled(self._training):
            try:
                self._schedule.step(**asked)
            except RuntimeError as error:
                if isinstance(error.__cause__, OpError):
                    raise error.__cause__ from error.__cause__.__cause__
                raise
        return {number: float(loss) for number, loss in enumerate(losses)}


def _loss(output: tuple[torch.Tensor, ...], _target: torch.Tensor) -> torch.Tensor:
    """What the last stage sends is the loss itself."""
    return output[0]
