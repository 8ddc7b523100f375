"""A rank's part of a pipeline: its stages, a schedule of torch, and the clock beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage

from placewright.runtime.pipelined import schedules
from placewright.runtime.pipelined.module import StageModule
from placewright.runtime.ranks.channels import OpError
from placewright.runtime.ranks.worker import channel_errors


class StageError(Exception):
    """A stage's backward failed, for which no op can be named."""


class ClockedStage(PipelineStage):
    """Adds up the seconds that its module computes, and tells that it is alive."""

    def __init__(self, module: StageModule, count: int, alive: Callable[[], None]) -> None:
        super().__init__(
            module,
            module.stage.index,
            count,
            torch.device("cpu"),
            input_args=tuple(each.example() for each in module.received),
            output_args=tuple(each.example() for each in module.sent),
        )
        self.busy = 0.0
        self._alive = alive

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        return self._clocked(super().forward_one_chunk, *args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._clocked(super().backward_one_chunk, *args, **kwargs)
        except RuntimeError as error:
            cause = error.__cause__ or error
            raise StageError(f"backward of stage {self.stage_index}: {cause}") from error

    def _clocked(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._alive()
        started = time.perf_counter()
        try:
            return work(*args, **kwargs)
        finally:
            self.busy += time.perf_counter() - started


class Pipeline:
    """The stages of one rank under a schedule of so many micro-batches."""

    def __init__(
        self,
        modules: Sequence[StageModule],
        count: int,
        *,
        method: schedules.Method,
        micro_batches: int,
        training: bool,
        folder: Path,
        alive: Callable[[], None],
    ) -> None:
        self._stages = [ClockedStage(module, count, alive) for module in modules]
        self._last = any(module.stage.index == count - 1 for module in modules)
        self._training = training
        self._numbers = torch.arange(micro_batches)
        loss = _loss if training else None
        self._schedule = schedules.made(method, list(self._stages), micro_batches, loss, folder)

    def run(self) -> list[float]:
        """All micro-batches; the losses where the last stage is, and gradients added up.

        OpError or StageError where this rank is at fault, ChannelError where another is gone.
        """
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
        return [float(loss) for loss in losses]

    def busy(self) -> float:
        """Seconds of computing since the last call."""
        total = sum(stage.busy for stage in self._stages)
        for stage in self._stages:
            stage.busy = 0.0
        return total


def _loss(output: tuple[torch.Tensor, ...], _target: torch.Tensor) -> torch.Tensor:
    """What the last stage sends is the loss itself."""
    return output[0]
